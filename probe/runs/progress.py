"""Reports the status of a sweep from files: records, failures, and a file that each running job holds locked.

Writes nothing and imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from probe.conditions import MAIN
from probe.config import UserError
from probe.runs.identity import normalized_name
from probe.runs.records import BadRecord, RunRecord, load_record
from probe.runs.sweep_plan import SWEEP, labels_of, read_expected
from probe.system.files import SHORT_KEY, short
from probe.system.format import closest, duration, percent, pluralize, short_name
from probe.system.grouping import group_by
from probe.system.locks import is_locked, wait_for_lock


def failures(results_dir: Path) -> dict[str, Path]:
    """Returns the logs of failed runs, by their short keys."""
    return _by_key((results_dir / "logs").glob("*.failed.txt"))


def first_line(failure: Path) -> str:
    """Returns why a run failed, from its log. A full disk may have left an empty log."""
    return (failure.read_text(encoding="utf-8").splitlines() or ["the reason could not be written"])[0]


def _by_key(paths: Iterable[Path]) -> dict[str, Path]:
    """Returns files by the short key at the end of their names, before the first dot."""
    return {path.name.split(".")[0][-SHORT_KEY:]: path for path in sorted(paths)}


@contextlib.contextmanager
def running(results_dir: Path, key: str) -> Iterator[Callable[[str], None]]:
    """Marks a run as running by a file locked until its process ends; yields a function that sets its status line.

    Waits while another process makes the same run, even under another row name, so that its record can be used.
    """
    path = _running_file(results_dir, key)
    with wait_for_lock(path) as stream:

        def set_status(line: str) -> None:
            with contextlib.suppress(OSError):  # a full disk should not end a run of hours
                stream.seek(0)
                stream.truncate()
                stream.write(line.encode())

        set_status("starting")
        try:
            yield set_status
        finally:
            path.unlink(missing_ok=True)


def is_running(results_dir: Path, key: str) -> bool:
    """Returns whether a living process makes this run."""
    return is_locked(_running_file(results_dir, key))


def _running_file(results_dir: Path, key: str) -> Path:
    return results_dir / "logs" / f"{short(key)}.running.txt"


class SweepStatus:
    """Holds which of some runs are done, failed, running and waiting, and estimates the remaining time.

    bad: what is wrong with records that cannot be read; their runs are neither done nor waiting.
    """

    def __init__(self, results_dir: Path, keys: Iterable[str]) -> None:
        self.results_dir, self.keys = results_dir, {short(key) for key in keys}
        files = {k: path for k, path in _by_key((results_dir / "records").glob("*.json")).items() if k in self.keys}
        self.done: dict[str, RunRecord] = {}
        self.bad: dict[str, BadRecord] = {}
        for short_key, path in files.items():
            try:
                self.done[short_key] = load_record(path)
            except BadRecord as error:
                self.bad[short_key] = error
        wanted = self.keys - files.keys()
        self.failed = {k: path for k, path in failures(results_dir).items() if k in wanted}
        logs = _by_key((results_dir / "logs").glob("*.running.txt"))
        self.running = {k: path for k, path in logs.items() if k in self.keys and is_locked(path)}
        self.waiting = wanted - self.failed.keys() - self.running.keys()

    def remaining_s(self, at_once: int) -> float | None:
        """Estimates the remaining seconds with this many runs at once; None if no run is done yet."""
        seconds = []
        for record in self.done.values():
            with contextlib.suppress(ValueError, TypeError):  # an edited record may hold any text
                begin, end = (datetime.fromisoformat(time) for time in (record.started, record.finished))
                seconds.append((end - begin).total_seconds())
        if not seconds:
            return None
        return statistics.median(seconds) * (len(self.waiting) + len(self.running) / 2) / max(1, at_once)


def closest_results(folder: Path) -> Path | None:
    """Returns the results folder with the most similar name in the same place, for a name that was mistyped."""
    there = {file.parent.name for name in ("records", SWEEP, "screen.json") for file in folder.parent.glob(f"*/{name}")}
    close = closest(folder.name, sorted(there))
    return folder.with_name(close) if close else None


def leaders(records: Iterable[RunRecord]) -> str | None:
    """Says which row leads each table by its dev mean, and which one follows; None if no table has two rows yet.

    While a sweep runs, rows differ in their number of seeds, so it is given. Only the table tests differences.
    """
    main = (record for record in records if record.identity.section == MAIN)
    tables = group_by(main, lambda record: record.identity.group)
    found = []
    for table in tables.values():
        cells = group_by(table, lambda record: record.identity.cell)
        rows = [(statistics.mean(one.scores.dev.headline for one in row), row) for row in cells.values()]
        rows.sort(key=lambda pair: -pair[0])
        if len(rows) > 1:
            (best, leader), (second, follower) = rows[:2]
            of = f"{leader[0].data.name}, {short_name(leader[0].encoder.name)}: " if len(tables) > 1 else ""
            with_scale = len({row[0].identity.layers.normalize for _, row in rows}) > 1
            found.append(
                f"{of}{_with_seeds(leader, with_scale)} leads with dev {leader[0].task.score} {percent(best)}, "
                f"{percent(best - second)} points before {_with_seeds(follower, with_scale)}"
            )
    return "; ".join(found) or None


def _with_seeds(records: Sequence[RunRecord], with_scale: bool) -> str:
    """Returns a row's name and number of seeds; with_scale: also the normalization of its layers."""
    name = normalized_name(records[0].row, records[0].identity.layers.normalize if with_scale else None)
    return f"{name} ({pluralize(len(records), 'seed')})"


def status_of(results_dir: Path) -> SweepStatus:
    """Returns the status of a folder's sweep. Raises UserError if none was started."""
    if expected := read_expected(results_dir):
        return SweepStatus(results_dir, [run.key for run in expected])
    found = f"{SWEEP} names no run" if (results_dir / SWEEP).exists() else f"there is no {SWEEP}"
    close = None if results_dir.is_dir() else closest_results(results_dir)
    hint = f" Did you mean {close}?" if close else ""
    raise UserError(f"{results_dir}: no sweep was started here ({found}).{hint}")


def lines(now: SweepStatus) -> Iterator[str]:
    """Yields what `probe sweep-status` prints."""
    labels = {short(key): label for key, label in labels_of(read_expected(now.results_dir)).items()}
    remaining_s = now.remaining_s(len(now.running)) if now.running else None
    remaining = "" if remaining_s is None else f"; {duration(remaining_s)} left"
    counts = f"{len(now.done)} done, {len(now.running)} running, {len(now.failed)} failed, {len(now.waiting)} waiting"
    counts += f", {len(now.bad)} with a record that cannot be read" if now.bad else ""
    yield f"{now.results_dir}: {pluralize(len(labels), 'run')}: {counts}{remaining}"
    for key, path in now.running.items():
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            yield f"running  {labels[key]}: {path.read_text(encoding='utf-8')}"
    for key, error in now.bad.items():
        yield f"no record  {labels[key]}: {error}"
    for key, path in now.failed.items():
        with contextlib.suppress(FileNotFoundError):  # it is tried again
            yield f"failed   {labels[key]}: {first_line(path)} (log: {path})"
