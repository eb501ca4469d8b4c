"""Jobs whose process dies, for tests of what notices it. A worker imports them."""

from __future__ import annotations

import os
import signal
from multiprocessing import connection
from pathlib import Path

import probe.system.files  # noqa: F401  the package that is tested, and nothing that takes long


def killed_in_its_answer(job: tuple[Path, int, int]) -> None:
    """Notes that it was called. job: folder, number, and how often its process is killed in an answer."""
    folder, number, deaths = job
    notes = folder / f"{number}.txt"
    with notes.open("a") as file:
        file.write(f"{os.getpid()}\n")

    def send_half(self: connection.Connection, content: bytes, write: object = None) -> None:
        os.write(self.fileno(), bytes(content)[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    if len(notes.read_text().split()) <= deaths:
        connection.Connection._send = send_half  # type: ignore[attr-defined]


def raises(job: object) -> None:
    raise ValueError(f"no {job}")


class Unsendable(Exception):
    """An error that the other process cannot make from its arguments."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def raises_what_cannot_be_sent(job: object) -> None:
    raise Unsendable("too ", str(job))


def dies_at_once(job: int) -> None:
    os._exit(job)
