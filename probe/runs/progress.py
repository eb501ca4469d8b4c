"""Reports the status of a sweep from files: records, failures, and a file that each running job holds locked.

Imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from probe.config import UserError, closest
from probe.format import duration, first_few, pluralize
from probe.runs.records import load_record
from probe.runs.sweep_plan import SWEEP, labels_of, read_asked
from probe.system.files import closest_path, keys_in, read_note, short
from probe.system.locks import is_locked, try_lock, wait_for_lock


def failures(results_dir: Path) -> dict[str, Path]:
    """Returns the logs of failed runs, by their short keys."""
    return {key: results_dir / "logs" / name for key, name in keys_in(results_dir / "logs", ".failed.txt").items()}


def first_line(failure: Path) -> str:
    """Returns why a run failed, from its log. A full disk may have left an empty log."""
    return (read_note(failure).splitlines() or ["the reason could not be written"])[0]


@contextlib.contextmanager
def running(results_dir: Path, key: str, wait: bool = True) -> Iterator[Callable[[str], None] | None]:
    """Marks a run as running by a file locked until its process ends; yields a function that sets its status line.

    While another process makes the same run, even under another row name: waits, or with wait=False yields None.
    """
    path = _file(results_dir, key, "running")
    stream = wait_for_lock(path) if wait else try_lock(path)
    if stream is None:
        yield None
        return

    def set_status(line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk should not end a run of hours
            stream.seek(0)
            stream.truncate()
            stream.write(line.encode())

    with stream:
        set_status("starting")
        try:
            yield set_status
        finally:
            path.unlink(missing_ok=True)


def is_running(results_dir: Path, key: str) -> bool:
    return is_locked(_file(results_dir, key, "running"))


def _file(results_dir: Path, key: str, kind: str) -> Path:
    return results_dir / "logs" / f"{short(key)}.{kind}.txt"


class Attempt(NamedTuple):
    """Says that a process began a run. end: `begun` until it ends, then `failed`. One that succeeds is forgotten."""

    launch: str
    host: str
    pid: str
    end: str


def attempts_of(results_dir: Path, key: str) -> list[Attempt]:
    """Returns the attempts at a run that failed, whose process died, or that goes on."""
    text = read_note(_file(results_dir, key, "attempts"))
    return [Attempt(*line.split()) for line in text.splitlines() if len(line.split()) == 4]


def write_attempts(results_dir: Path, key: str, attempts: Sequence[Attempt]) -> None:
    """Writes the attempts at a run, which must be marked as running; a full disk keeps none."""
    file = _file(results_dir, key, "attempts")
    with contextlib.suppress(OSError):
        if attempts:
            file.write_text("".join(f"{' '.join(one)}\n" for one in attempts), encoding="utf-8")
        else:
            file.unlink(missing_ok=True)


def running_here(results_dir: Path) -> int:
    """Returns how many runs are being made on this host, by any process."""
    keys = keys_in(results_dir / "logs", ".attempts.txt")
    last = {key: attempts[-1] for key in keys if (attempts := attempts_of(results_dir, key))}
    return sum(one.host == socket.gethostname() and is_running(results_dir, key) for key, one in last.items())


class SweepStatus:
    """Holds which of some runs are done, failed, running, died and waiting, and estimates the remaining time.

    done: the files of their records, which are listed and not read. bad: see `read`.
    """

    def __init__(self, results_dir: Path, keys: Iterable[str]) -> None:
        self.results_dir, self.keys = results_dir, {short(key) for key in keys}
        records, logs = results_dir / "records", results_dir / "logs"
        self.done = {key: records / name for key, name in keys_in(records, ".json").items() if key in self.keys}
        self.bad: dict[str, UserError] = {}
        wanted = self.keys - self.done.keys()
        self.failed = {key: path for key, path in failures(results_dir).items() if key in wanted}
        running = {key: logs / name for key, name in keys_in(logs, ".running.txt").items() if key in self.keys}
        self.running = {key: path for key, path in running.items() if is_locked(path)}
        tried = keys_in(logs, ".attempts.txt").keys() & self.keys
        self.attempts = defaultdict(list, {key: attempts_of(results_dir, key) for key in tried})
        waiting = wanted - self.failed.keys() - self.running.keys()
        self.died = {key for key in waiting if self.attempts[key]}
        self.waiting = waiting - self.died

    def read(self) -> list[float]:
        """Reads the records; returns the seconds that each run took. What is wrong with one is in `bad` then."""
        seconds = []
        for key, path in [*self.done.items()]:
            try:
                record = load_record(path)
                begin, end = (datetime.fromisoformat(time) for time in (record.started, record.finished))
                seconds.append((end - begin).total_seconds())
            except UserError as error:
                self.bad[key] = error
                del self.done[key]
            except (ValueError, TypeError):  # an edited record may hold any text
                pass
        return seconds

    def remaining_s(self, at_once: int, seconds: Sequence[float]) -> float | None:
        """Estimates the remaining seconds with this many runs at once, by those of some runs; None without any."""
        if not seconds:
            return None
        return statistics.median(seconds) * (len(self.waiting | self.died) + len(self.running) / 2) / max(1, at_once)


def other_results(folder: Path) -> str:
    """Says which results folders there are for one that is none: below it, or beside it the one of a similar name."""
    parent = folder.parent if folder.parent.is_dir() else closest_path(folder.parent) or folder.parent
    for home in (folder, parent):
        files = (file for name in ("records", SWEEP, "screen.json") for file in home.glob(f"*/{name}"))
        names = sorted({file.parent.name for file in files if file.parent != folder})
        if home != folder and (close := closest(folder.name, names)):
            return f"Did you mean {shlex.quote(str(home / close))}?"
        if names:
            return f"There are in {home}: {first_few(names, 10)}."
    return "`probe +sweep=quickstart` makes results/quickstart."


def status_of(results_dir: Path) -> SweepStatus:
    """Returns the status of a folder's sweep. Raises UserError if none was started."""
    if expected := read_asked(results_dir).runs:
        return SweepStatus(results_dir, [run.key for run in expected])
    found = f"{SWEEP} names no run" if (results_dir / SWEEP).exists() else f"there is no {SWEEP}"
    raise UserError(f"{results_dir}: no sweep was started here ({found}). {other_results(results_dir)}")


def status_lines(now: SweepStatus) -> Iterator[str]:
    """Yields what `probe sweep-status` prints."""
    labels = {short(key): label for key, label in labels_of(read_asked(now.results_dir).runs).items()}
    seconds = now.read()
    remaining_s = now.remaining_s(len(now.running), seconds) if now.running else None
    remaining = "" if remaining_s is None else f"; {duration(remaining_s)} left"
    kinds = ("done", "running", "failed", "died", "waiting", "bad")
    counts = ", ".join(f"{len(getattr(now, kind))} {kind}" for kind in kinds if kind != "bad" or now.bad)
    yield f"{now.results_dir}: {pluralize(len(labels), 'run')}: {counts}{remaining}"
    for key, path in now.running.items():
        if status := read_note(path):  # else it has just ended
            yield f"running  {labels[key]}: {status}{_tried(now.attempts[key])}"
    for key in now.died:
        yield f"died     {labels[key]}{_tried(now.attempts[key])}"
    for key, error in now.bad.items():
        yield f"bad      {labels[key]}: {error}"
    for key, path in now.failed.items():
        yield f"failed   {labels[key]}: {first_line(path)} (log: {path}){_tried(now.attempts[key])}"


def _tried(attempts: Sequence[Attempt]) -> str:
    hosts = ", ".join(dict.fromkeys(one.host for one in attempts))
    return f" ({pluralize(len(attempts), 'attempt')}, on {hosts})" if attempts else ""
