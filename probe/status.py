"""Where a sweep stands, from what is on disk: records, failures, and a file that each running job holds locked.

Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.records import load_records
from probe.rows import failures, first_line, read_expected


@contextlib.contextmanager
def running(results_dir: Path, key: str) -> Iterator[Callable[[str], None]]:
    """Says that a run is under way; yields what takes its latest line. A killed process holds nothing any more.

    Waits while another process makes the same run, under whatever name of its row: then its record is there.
    """
    path = results_dir / "logs" / f"{key[:10]}.running.txt"
    with _held(path) as stream:

        def tell(line: str) -> None:
            with contextlib.suppress(OSError):  # a disk full for a moment need not end a run of hours
                stream.seek(0)
                stream.truncate()
                stream.write(line.encode())

        tell("starting")
        try:
            yield tell
        finally:
            path.unlink(missing_ok=True)


def count(results_dir: Path, keys: Iterable[str]) -> tuple[int, int]:
    """How many of these runs are done, and how many have failed."""
    short = {key[:10] for key in keys}
    done = {path.stem[-10:] for path in (results_dir / "records").glob("*.json")} & short
    failed = failures(results_dir).keys() & short
    return len(done), len(failed - done)


def minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 60 else f"about {seconds:.0f} s"


def lines(results_dir: Path) -> Iterator[str]:
    """What `probe sweep-status` prints. Raises UserError where no sweep was started."""
    expected = read_expected(results_dir)
    if not expected:
        raise UserError(f"{results_dir}: no sweep was started here (there is no sweep.json).")
    names = {run["key"][:10]: f"{run['row']} seed {run['identity']['seed']}" for run in expected}
    done, failed = count(results_dir, (run["key"] for run in expected))
    alive = {path.name.split(".")[0][-10:]: path for path in sorted((results_dir / "logs").glob("*.running.txt"))}
    alive = {key: path for key, path in alive.items() if key in names and _is_held(path)}
    waiting = len(names) - done - failed - len(alive)
    left = ""
    seconds = [_seconds(record) for record in load_records(results_dir).values()]
    if seconds and alive:
        left = f"; {minutes(statistics.median(seconds) * (waiting / len(alive) + 0.5))} left"
    counts = f"{done} done, {len(alive)} running, {failed} failed, {waiting} waiting"
    yield f"{results_dir}: {len(names)} runs: {counts}{left}"
    for key, path in alive.items():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            yield f"running  {names[key]}: {path.read_text(encoding='utf-8')}"
    for key, path in failures(results_dir).items():
        if key in names:
            with contextlib.suppress(FileNotFoundError):  # it is tried again
                yield f"failed   {names[key]}: {first_line(path)} (log: {path})"


def _seconds(record: dict[str, Any]) -> float:
    begin, end = (datetime.fromisoformat(record[name]) for name in ("started", "finished"))
    return (end - begin).total_seconds()


def _held(path: Path) -> FileIO:
    """The file, open and locked. Where there are no locks nobody waits, and the run only looks as if it had stopped."""
    while True:
        stream = FileIO(path, "a")
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
        stream.close()  # it was removed by whoever held it


def _is_held(path: Path) -> bool:
    """Whether a living process holds the file's lock."""
    try:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
