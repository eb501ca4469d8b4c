"""Makes many runs, and finds what is asked for, what is done, what failed and why.

Each job calls `run_job`, in this process or in another. All that processes share is the results folder: a record says
done, a file under logs/ says failed, and `sweep.json` says what the sweep asks for. So another terminal, the same
command on another machine, a continued sweep and the table see the same.
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
from probe.probes.kinds import slow_bfloat16
from probe.runs.launch import launch
from probe.runs.outputs import is_done, set_aside_truncated
from probe.runs.plan import Plan, plan, prepare_results
from probe.runs.progress import SweepStatus, first_line, is_running, leaders, running
from probe.runs.records import RunRecord, load_record, record_path
from probe.runs.run import extract, run
from probe.runs.sweep_plan import RequestedRun, labels_of, write_expected
from probe.system import hub
from probe.system.files import short
from probe.system.format import duration, first_few, percent, pluralize, reason_of
from probe.system.grouping import group_by
from probe.system.machine import gpus, resolve_device, side_by_side, take_gpu
from probe.system.processes import LOOK_EVERY_S
from probe.system.workers import run_in_subprocesses

# What is said of a run whose training did not converge.
ENDINGS = {
    "hit_epoch_limit": "not converged: ended by probe.max_epochs",
    "never_learned": "never above 0: too little text for these settings, or too few epochs",
}
FIRST_LINE_S, LATER_LINE_S = 5, 120  # seconds of a run before it prints how far it is


@dataclass(frozen=True)
class Job:
    """Describes one run of a sweep, as it goes to the process that makes it.

    expected: the run that should result, so that a failure can be reported even if planning fails. keys: of all runs of
    the sweep. at_once: how many share this machine and its gpus. command: what was typed. commits: what names on the
    Hub meant when the sweep was planned. dev_only: test scores are not printed. label: names the run, and its encoder
    where the sweep has several.
    """

    cfg: Config
    expected: RequestedRun
    keys: tuple[str, ...]
    at_once: int
    gpus: tuple[str, ...]
    command: str
    commits: hub.Commits
    dev_only: bool
    label: str

    @property
    def key(self) -> str:
        return self.expected.key

    @property
    def results_dir(self) -> Path:
        return Path(self.cfg.results_dir)

    @property
    def record_path(self) -> Path:
        return record_path(self.results_dir, self.expected.row, self.expected.identity)

    def is_over(self) -> bool:
        """Tells whether its record or its failure is there."""
        return is_done(self.record_path, self.cfg.save_probe) or _failure_file(self).exists()


@dataclass(frozen=True)
class Outcome:
    """Holds what came of a sweep: its folders of results, and name and reason of each run that has no record."""

    folders: list[Path]
    failed: list[tuple[str, str]]


def scores_line(record: RunRecord, dev_only: bool = False) -> str:
    """Writes a run's scores in one line."""
    scores = {"dev": record.scores.dev} | ({} if dev_only else {"test": record.scores.test})
    parts = [f"{split} {record.task.score} {percent(its.headline)}" for split, its in scores.items()]
    parts += [f"best epoch {record.best_epoch} of {len(record.curve)}"] if record.curve else []
    line = " · ".join(parts)
    return line + (f" · {ENDINGS[record.outcome]}" if record.outcome in ENDINGS else "")


def run_sweep(
    configs: Sequence[Config],
    command: str,
    log: Callable[[str], None] = print,
    dev_only: bool = False,
) -> Outcome:
    """Extracts what is missing, launches the runs that are not done, and waits for them.

    dev_only: no test score is shown; their records have it all the same. Raises UserError for what cannot be planned.
    """
    by_run = group_by(map(plan, configs), lambda planned: (planned.results_dir, planned.identity.key))
    plans = [same[-1] for same in by_run.values()]
    if len(configs) > len(plans):
        log(_repeated([*by_run.values()]))
    folders = sorted({planned.results_dir for planned in plans})
    for folder in folders:
        prepare_results(folder)
        if note := write_expected(folder, [planned.expected for planned in plans if planned.results_dir == folder]):
            log(note)
    for message in map(set_aside_truncated, [planned.record_path for planned in plans]):
        if message:
            log(message)
    todo = _not_done(plans)
    _log_what_remains(plans, todo, log)
    for planned in todo:
        _failure_file(planned).unlink(missing_ok=True)
    at_once, names = 1, []
    if todo:
        names = gpus() if "cuda" in [resolve_device(planned.cfg.device) for planned in todo] else []
        for line in dict.fromkeys(slow_bfloat16(planned.cfg, resolve_device(planned.cfg.device)) for planned in todo):
            if line:
                log(f"{line}.")
        at_once = side_by_side(todo[0].cfg.jobs, len(names))
        _extract_each(todo, () if at_once == 1 else names)
    keys = tuple(planned.identity.key for planned in plans)
    labels = labels_of([planned.expected for planned in plans])

    def job(planned: Plan) -> Job:
        shared = (min(at_once, len(todo)), tuple(names), command, hub.commits(), dev_only)
        return Job(planned.cfg, planned.expected, keys, *shared, labels[planned.identity.key])

    if todo:
        log(f"Training, {min(at_once, len(todo))} at a time." if at_once > 1 else "Training, one run after another.")
    said = _Leaders(plans, log) if not dev_only else lambda: None  # a race says itself who leads
    _launch(plans, job, at_once, log, said)
    return Outcome(folders, [(labels[planned.identity.key], _why_not_done(planned)) for planned in _not_done(plans)])


def _repeated(runs: Sequence[Sequence[Plan]]) -> str:
    """Says which runs several combinations of settings ask for. `layers.indices`, say, replaces a preset's layers.

    runs: for each run, the plan of every combination that asks for it.
    """
    names = [f"{same[-1].label} ({len(same)} times)" for same in runs if len(same) > 1]
    return (
        f"{sum(map(len, runs))} combinations of settings make {pluralize(len(runs), 'run')}. "
        f"Asked for more than once: {first_few(names, 3)}."
    )


def _log_what_remains(plans: Sequence[Plan], todo: Sequence[Plan], log: Callable[[str], None]) -> None:
    for line in dict.fromkeys(f"data {one.text.name}: {note}." for one in plans for note in one.text.notes):
        log(line)
    keys = [one.identity.key for one in plans]
    bad = [error for folder in {one.results_dir for one in plans} for error in SweepStatus(folder, keys).bad.values()]
    log(f"{pluralize(len(plans), 'run')}, {len(plans) - len(todo) - len(bad) if todo or bad else 'all'} done already.")
    for error in bad:
        log(f"Not made again, since a record is there that cannot be read: {error}")
    if anew := sum(planned.record_path.exists() for planned in todo):
        log(f"{anew} of the others have a record but not their weights: made again, and their records with them.")


def _launch(
    plans: Sequence[Plan],
    job: Callable[[Plan], Job],
    at_once: int,
    log: Callable[[str], None],
    on_end: Callable[[], None],
) -> None:
    """Launches runs until each has a record or a failure, or two launches in a row brought neither.

    Runs that another process makes are passed over for as long as there are others, then waited for.
    """
    is_stuck = has_announced_wait = False
    while unfinished := _neither_done_nor_failed(plans):
        with _errors_to(unfinished[0].results_dir / "logs" / "launcher.log"):
            launch(run_job, [job(planned) for planned in unfinished], at_once, log, _on_failure, on_end)
        for folder in {planned.results_dir for planned in plans}:
            prepare_results(folder)
        remaining = _neither_done_nor_failed(plans)
        has_no_progress = len(remaining) == len(unfinished)
        if remaining and all(map(_is_elsewhere, remaining)):
            if not has_announced_wait:
                log(f"{len(remaining)} of {len(plans)} runs are left, all made by other processes: waiting for them.")
            for done in map(job, _first_to_end(remaining)):
                log(_line(done, _scores_elsewhere(done)))
            has_announced_wait, has_no_progress = True, False  # what was waited for is free now
        elif has_no_progress and is_stuck:
            return
        is_stuck = has_no_progress


class _Leaders:
    """Logs, when called after a run, what is known so far.

    It does so once for as many new records as the sweep has rows, or as a third of its runs if fewer; at least 2.
    """

    def __init__(self, plans: Sequence[Plan], log: Callable[[str], None]) -> None:
        self.folders = sorted({planned.results_dir for planned in plans})
        self.keys = [planned.identity.key for planned in plans]
        self.log = log
        self.every = max(2, min(len({planned.identity.cell for planned in plans}), -(-len(plans) // 3)))
        self.last = len(self._done())

    def _done(self) -> list[RunRecord]:
        return [record for folder in self.folders for record in SweepStatus(folder, self.keys).done.values()]

    def __call__(self) -> None:
        done = self._done()
        if self.last + self.every <= len(done) < len(self.keys) and (known := leaders(done)):
            self.last = len(done)
            self.log(f"so far, {len(done)} of {len(self.keys)} runs: {known}")


def _on_failure(job: Job, why: str) -> None:
    """Writes why a job ended that left nothing, unless it has left something after all."""
    if not job.is_over():
        _keep_failure(job, why)


def _is_elsewhere(planned: Plan) -> bool:
    return is_running(planned.results_dir, planned.identity.key)


def _first_to_end(plans: Sequence[Plan]) -> list[Plan]:
    """Waits until another process has let go of one of these runs; returns those that are done then."""
    while all(map(_is_elsewhere, plans)):
        time.sleep(LOOK_EVERY_S)
    return [planned for planned in plans if planned.is_done]


def _scores_elsewhere(job: Job) -> str:
    try:
        return f"{scores_line(load_record(job.record_path), job.dev_only)} · by another process"
    except UserError as error:
        return str(error)


def run_job(job: Job) -> None:
    """Makes one run of a sweep. A failure is written down, never raised, so that the others go on."""
    if job.is_over() or is_running(job.results_dir, job.key):  # the sweep comes back to a run made elsewhere
        return
    clock = time.perf_counter()
    hub.pin(job.commits)
    try:
        prepare_results(job.results_dir)
    except UserError:  # the sweep says it at its end; its log may lie on the same full disk
        return
    try:
        planned = _planned_again(job)
        take_gpu(job.gpus, planned.results_dir / "logs")
    except Exception as error:  # the sweep could plan it: something is no longer there
        print(f"probe: {_write_failure(job, error)}", file=sys.stderr, flush=True)
        return
    try:
        with running(planned.results_dir, planned.identity.key) as set_status:
            if planned.is_done:
                outcome = _scores_elsewhere(job)
            elif _failure_file(planned).exists():
                return  # another process tried it meanwhile; the sweep says why it failed, at its end
            else:
                outcome = _made(planned, job, set_status, clock)
    except Exception as error:  # of the lock, or while it was waited for
        outcome = f"failed: {_write_failure(planned, error)}"
    print(_line(job, outcome), flush=True)


def _made(planned: Plan, job: Job, set_status: Callable[[str], None], clock: float) -> str:
    """Makes the run; returns its scores, or why it failed, which is written before the run's lock is let go."""
    try:
        if planned.kind.reads_features and planned.store.missing():
            set_status("extracting features")
        record = run(job.cfg, _now_and_then(set_status, job), job.at_once, len(job.gpus), job.command)
        return f"{scores_line(record, job.dev_only)} · {time.perf_counter() - clock:.0f} s"
    except Exception as error:
        return f"failed: {_write_failure(planned, error)}"


def _now_and_then(set_status: Callable[[str], None], job: Job) -> Callable[[str], None]:
    """Returns `set_status`, which also prints a run's line once it has taken long, and again after three times as long.

    Of a sweep's first runs, before any has ended, it prints sooner.
    """
    is_first = not SweepStatus(job.results_dir, job.keys).done
    begun = time.monotonic()
    wait_s: float = FIRST_LINE_S if is_first else LATER_LINE_S

    def heard(line: str) -> None:
        nonlocal wait_s
        set_status(line)
        if line.startswith("epoch") and time.monotonic() - begun >= wait_s:
            wait_s = 3 * (time.monotonic() - begun)
            print(f"{job.label} · {line}", flush=True)

    return heard


def _planned_again(job: Job) -> Plan:
    """Plans the run where it is made. Raises UserError if that is another run than was asked for, or none."""
    planned = plan(job.cfg)
    if planned.identity.key != job.key:
        raise UserError(
            "data or encoder have changed since the sweep was started: the run would be "
            f"{short(planned.identity.key)}, not {short(job.key)}. Start the sweep again."
        )
    return planned


@dataclass(frozen=True)
class Extraction:
    """Describes one GPU's part in filling a store: the shards that no other process is at.

    locks: the folder that says which GPUs are taken. quiet: another process shows how far all are.
    """

    cfg: Config
    gpus: tuple[str, ...]
    locks: Path
    commits: hub.Commits
    quiet: bool


def run_extraction(part: Extraction) -> None:
    hub.pin(part.commits)
    take_gpu(part.gpus, part.locks)
    extract(part.cfg, part.quiet)


def _extract_each(plans: Sequence[Plan], gpus: Sequence[str] = ()) -> None:
    """Fills every store that these runs read; if one fails, so do its runs, and the others go on.

    gpus: fill each store together, in a process each, which frees its memory at the end. Empty: done in this process.
    """
    readers = [planned for planned in plans if planned.kind.reads_features]
    for key, one in {planned.store.key: planned for planned in readers}.items():
        try:
            if gpus and one.store.missing():
                shared = (one.cfg, tuple(gpus), one.results_dir / "logs", hub.commits())
                parts = [Extraction(*shared, quiet=number > 0) for number in range(len(gpus))]
                for _, error in run_in_subprocesses(run_extraction, parts, len(parts)):
                    if error is not None:
                        raise error
            extract(one.cfg)  # nothing is left to compute after that: holds the store for as long as this process lives
        except Exception as error:
            for planned in readers:
                if planned.store.key == key:
                    _write_failure(planned, error)


def _not_done(plans: Sequence[Plan]) -> list[Plan]:
    return [planned for planned in plans if not planned.is_done]


def _neither_done_nor_failed(plans: Sequence[Plan]) -> list[Plan]:
    return [planned for planned in _not_done(plans) if not _failure_file(planned).exists()]


def _failure_file(of: Plan | Job) -> Path:
    return of.results_dir / "logs" / f"{of.record_path.stem}.failed.txt"


def _write_failure(of: Plan | Job, error: Exception) -> str:
    """Keeps the traceback in a file; returns the one line that says why."""
    line = reason_of(error)
    if not isinstance(error, UserError):
        line = f"{type(error).__name__}: {line}"
    _keep_failure(of, f"{line}\n\n{''.join(traceback.format_exception(error))}")
    return line


def _keep_failure(of: Plan | Job, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk may be the very reason
        _failure_file(of).write_text(text, encoding="utf-8")


def _why_not_done(planned: Plan) -> str:
    file = _failure_file(planned)
    if file.exists():
        return f"{first_line(file)} (log: {file})"
    log = file.parent / "launcher.log"
    text = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line.strip() for line in reversed(text) if line.strip()), "nothing")
    return f"its process was killed; the same command tries again (log: {log}, which ends: {last[:120]})"


def _line(job: Job, outcome: str) -> str:
    """Writes what is logged of a run that has ended: "run 7 of 18, 2 failed, about 6 min left · last seed 1 · ..."."""
    now = SweepStatus(job.results_dir, job.keys)
    over = len(now.done) + len(now.failed) + len(now.bad)
    parts = [f"run {over} of {len(now.keys)}"] + [f"{len(now.failed)} failed"] * bool(now.failed)
    remaining_s = now.remaining_s(job.at_once)
    if over < len(now.keys) and remaining_s is not None:
        parts.append(f"{duration(remaining_s)} left")
    return f"{', '.join(parts)} · {job.label} · {outcome}"


@contextlib.contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Sends what libraries and dying processes write on stderr, here and in child processes, to a file.

    An exception of `launch` itself goes there too; records and failures tell what became of its runs.
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
