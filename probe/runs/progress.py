"""Records to rows: means and spreads over seeds, tests against the best row and the next, cost; missing cells stay.

Rows are plain dicts, what `probe table --format json` prints. A pure function of a results folder's files: records, the
counts beside them, and what its sweeps asked for. Imports nothing that takes long.


Where a sweep stands, from what is on disk: records, failures, and a file that each running job holds locked.

Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import load_records
from probe.system.files import key_of, write_atomically
from probe.system.locks import held_file, is_held

SWEEP = "sweep.json"  # what sweeps into a folder have asked for


def write_expected(results_dir: Path, runs: list[dict[str, Any]]) -> None:
    """Adds the runs a sweep asks for to those asked for before: key, row, identity, width and setting of each.

    They stay asked for until the file is removed, so that a narrower sweep does not hide what a wider one left open.
    """
    merged = {run["key"]: run for run in [*read_expected(results_dir), *runs]}
    text = json.dumps({"runs": list(merged.values())}, indent=1, ensure_ascii=False) + "\n"
    write_atomically(results_dir / SWEEP, text)


def read_expected(results_dir: Path) -> list[dict[str, Any]]:
    try:
        runs = json.loads((results_dir / SWEEP).read_text(encoding="utf-8"))["runs"]
        parts = {"key", "row", "identity", "width", "setting"}
        if all(parts <= run.keys() and run["key"] == key_of(run["identity"]) for run in runs):
            return runs
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{results_dir / SWEEP} is damaged. Remove it, or start the sweep again.")


def failures(results_dir: Path) -> dict[str, Path]:
    """The logs of failed runs, by the first ten characters of their keys."""
    return {path.name.split(".")[0][-10:]: path for path in sorted((results_dir / "logs").glob("*.failed.txt"))}


def first_line(failure: Path) -> str:
    """Why a run failed. A full disk may have left nothing to read."""
    return (failure.read_text(encoding="utf-8").splitlines() or ["the reason could not be written"])[0]


@contextlib.contextmanager
def running(results_dir: Path, key: str) -> Iterator[Callable[[str], None]]:
    """Says that a run is under way; yields what takes its latest line. A killed process holds nothing any more.

    Waits while another process makes the same run, under whatever name of its row: then its record is there.
    """
    path = results_dir / "logs" / f"{key[:10]}.running.txt"
    with held_file(path) as stream:

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
    alive = {key: path for key, path in alive.items() if key in names and is_held(path)}
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
