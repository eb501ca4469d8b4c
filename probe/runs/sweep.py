"""Many runs: what is asked for, what is done, what failed and why.

A launcher starts the jobs, in whatever processes; each calls `run_job`. All that they share is the results folder: a
record says done, a file under logs/ says failed, and `sweep.json` says what the sweep asks for. So another terminal, a
continued sweep and the table see the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from probe.config import Config, UserError
from probe.runs.expected import write_expected
from probe.runs.launch import Launcher
from probe.runs.plan import Plan, plan, prepare_results, training_device
from probe.runs.progress import Standing, first_line, running
from probe.runs.provenance import bfloat16_way
from probe.runs.records import RunRecord
from probe.runs.run import extract, run
from probe.system import hub
from probe.system.bfloat16 import EMULATED
from probe.system.machine import gpus, side_by_side, take_gpu
from probe.system.show import duration, percent


@dataclass(frozen=True)
class Job:
    """One run of a sweep, as it goes to the process that makes it.

    keys: of all runs of the sweep. at_once: how many share this machine and its gpus. command: what was typed. commits:
    what names on the Hub meant when the sweep was planned.
    """

    cfg: Config
    keys: tuple[str, ...]
    at_once: int
    gpus: tuple[str, ...]
    command: str
    commits: hub.Commits


@dataclass(frozen=True)
class Outcome:
    """What came of a sweep: its folders of results, and for each run that has no record its name and the reason."""

    folders: list[Path]
    failed: list[tuple[str, str]]


def scores_line(record: RunRecord) -> str:
    """A run's scores in one line."""
    dev, test = (percent(split.headline) for split in (record.scores.dev, record.scores.test))
    name = record.task.score
    return f"dev {name} {dev} · test {name} {test} · best epoch {record.best_epoch} of {len(record.curve)}"


def run_sweep(
    configs: Sequence[Config], launcher: Launcher, command: str, tell: Callable[[str], None] = print
) -> Outcome:
    """Extracts what is missing, launches the runs that are not done, and waits for them.

    On another machine than this each job extracts what it finds missing. Raises UserError for what cannot be planned.
    """
    plans = list({planned.identity.key: planned for planned in map(plan, configs)}.values())
    folders = sorted({planned.results_dir for planned in plans})
    for folder in folders:
        prepare_results(folder)
        write_expected(folder, [planned.expected for planned in plans if planned.results_dir == folder])
    for corpus in {id(planned.corpus): planned.corpus for planned in plans}.values():
        for note in corpus.notes:
            tell(f"data {corpus.name}: {note}.")
    todo = _not_done(plans)
    tell(f"{len(plans)} runs, {len(plans) - len(todo) if todo else 'all'} done already.")
    for planned in todo:
        _failure_file(planned).unlink(missing_ok=True)
    at_once, names = 1, []
    if launcher.is_here and todo:
        names = gpus() if "cuda" in [training_device(planned.cfg) for planned in todo] else []
        for line in dict.fromkeys(filter(None, map(_told_of_bfloat16, todo))):
            tell(line)
        at_once = side_by_side(launcher.settings.get("n_jobs", todo[0].cfg.jobs), len(names))
        _extract_each(todo)
    elif todo:
        tell(f"Runs are sent elsewhere; `probe sweep-status {folders[0]}` shows where they stand.")
    keys = tuple(planned.identity.key for planned in plans)
    while waiting := _neither_done_nor_failed(plans):
        shared = (keys, min(at_once, len(todo)), tuple(names), command, hub.commits())
        jobs = [Job(planned.cfg, *shared) for planned in waiting]
        with _errors_to(waiting[0].results_dir / "logs" / "launcher.log"):
            launcher.launch(run_job, jobs, at_once)
        for folder in folders:
            prepare_results(folder)
        still = _neither_done_nor_failed(plans)
        if not launcher.is_here:  # others of the array may still run: never send them twice
            break
        no_progress = len(still) == len(waiting)
        if no_progress and at_once == 1:
            break
        at_once = max(1, at_once // 2) if no_progress else at_once
        if still:
            fewer = f", now {at_once} at a time" if no_progress else ""
            tell(f"A process of the sweep was killed (often for lack of memory); {len(still)} runs are left{fewer}.")
    return Outcome(folders, [(planned.label, _why_not_done(planned, launcher)) for planned in _not_done(plans)])


def run_job(job: Job) -> None:
    """One run of a sweep. A failure is written down, never raised, so that the others go on."""
    hub.pin(job.commits)
    try:
        planned = plan(job.cfg)
    except UserError as error:  # the sweep could plan it: on a node of a cluster something is not there
        print(f"probe: {error}", file=sys.stderr, flush=True)
        return
    if planned.record_path.exists() or _failure_file(planned).exists():
        return
    try:
        prepare_results(planned.results_dir)
    except UserError:
        return  # the sweep says it once, at its end
    clock = time.perf_counter()
    take_gpu(job.gpus, planned.results_dir / "logs")
    try:
        with running(planned.results_dir, planned.identity.key) as tell:
            is_made = planned.record_path.exists()
            record = run(job.cfg, tell, job.at_once, len(job.gpus), job.command)
        by = "by another process" if is_made else f"{time.perf_counter() - clock:.0f} s"
        outcome = f"{scores_line(record)} · {by}"
    except Exception as error:
        outcome = f"failed: {_write_failure(planned, error)}"
    print(f"{_standing(planned.results_dir, job)} · {planned.label} · {outcome}", flush=True)


def _told_of_bfloat16(planned: Plan) -> str | None:
    """What is to be said of a run's arithmetic before it starts."""
    emulated = bfloat16_way(planned.cfg, training_device(planned.cfg)) == "emulated"
    return f"bfloat16: {EMULATED}." if emulated else None


def _extract_each(plans: Sequence[Plan]) -> None:
    """Fills every store that these runs read; where one cannot be, its runs have failed and the others go on."""
    for key, cfg in {planned.store.key: planned.cfg for planned in plans}.items():
        try:
            extract(cfg)
        except Exception as error:
            for planned in plans:
                if planned.store.key == key:
                    _write_failure(planned, error)


def _not_done(plans: Sequence[Plan]) -> list[Plan]:
    return [planned for planned in plans if not planned.record_path.exists()]


def _neither_done_nor_failed(plans: Sequence[Plan]) -> list[Plan]:
    return [planned for planned in _not_done(plans) if not _failure_file(planned).exists()]


def _failure_file(planned: Plan) -> Path:
    return planned.results_dir / "logs" / f"{planned.record_path.stem}.failed.txt"


def _write_failure(planned: Plan, error: Exception) -> str:
    """Keeps the traceback in a file; returns the one line that says why."""
    reason = str(error).splitlines()[0] if str(error) else ""
    line = reason if isinstance(error, UserError) else f"{type(error).__name__}: {reason}"
    trace = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # a full disk may be the very reason
        _failure_file(planned).write_text(f"{line}\n\n{trace}", encoding="utf-8")
    return line


def _why_not_done(planned: Plan, launcher: Launcher) -> str:
    file = _failure_file(planned)
    if file.exists():
        return f"{first_line(file)} (log: {file})"
    log = file.parent / "launcher.log"
    text = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line.strip() for line in reversed(text) if line.strip()), "nothing")
    what = (
        "its process was killed; the same command tries again"
        if launcher.is_here
        else f"no result came back. It may still run: `probe sweep-status {planned.results_dir}`; once nothing "
        "does, the same command sends what is left"
    )
    return f"{what} (log: {log}, which ends: {last[:120]})"


def _standing(results_dir: Path, job: Job) -> str:
    """Where the sweep stands: "run 7 of 18, 2 failed, about 6 min left"."""
    now = Standing(results_dir, job.keys)
    over = len(now.done) + len(now.failed)
    parts = [f"run {over} of {len(now.keys)}"] + [f"{len(now.failed)} failed"] * bool(now.failed)
    left_s = now.left_s(job.at_once)
    if over < len(now.keys) and left_s is not None:
        parts.append(f"{duration(left_s)} left")
    return ", ".join(parts)


@contextlib.contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Sends what libraries and dying processes write on stderr, here and in child processes, to a file.

    There, too, goes the error of a launcher that breaks down: what became of its runs, the records and failures say.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
