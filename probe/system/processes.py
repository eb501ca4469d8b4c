"""Processes that end together."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

LOOK_EVERY_S = 0.5  # between two looks. No wait lasts longer: a signal that comes just before one is heard at its end


@functools.cache
def end_with(parent: int) -> None:
    """Makes this process end within a second after its parent. parent: its process id.

    A killed parent's pipes stay open while its other children hold them too: children would wait on them for ever, with
    all their memory and locks. Linux's PR_SET_PDEATHSIG is sent when the thread that started the process ends, and
    joblib starts processes from several threads.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


@dataclass(frozen=True)
class WithThisProcess:
    """Work to send to a child of this process, which is to end when this one has ended, however it ended."""

    work: Callable[[Any], None]
    sender: int = field(default_factory=os.getpid)

    def __call__(self, job: Any) -> None:
        end_with(self.sender)
        self.work(job)
