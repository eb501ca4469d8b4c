"""Makes many runs. A results folder is their queue, and any number of processes of one command share it.

All that processes share are files: `sweep.json` says which runs are asked for, a record says done, a locked file under
logs/ says running, and others there say what was tried and why it failed. So a second terminal, an array of a cluster,
a continued sweep and the table see the same. Where locks do nothing, a process makes its own part of the runs only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from probe.config import Config, UserError
from probe.format import duration, percent, pluralize, reason_of
from probe.probes.kinds import slow_bfloat16
from probe.runs.outputs import remove_leftovers
from probe.runs.plan import Plan, plan, prepare_results
from probe.runs.progress import (
    Attempt,
    SweepStatus,
    attempts_of,
    first_line,
    is_running,
    running,
    running_here,
    write_attempts,
)
from probe.runs.records import RunRecord, remedy_of
from probe.runs.run import make
from probe.runs.sweep_plan import labels_of, write_expected
from probe.system import hub
from probe.system.files import keys_in, short
from probe.system.grouping import group_by
from probe.system.locks import FileLock
from probe.system.machine import gpus, num_cores, resolve_device, side_by_side, take_gpu
from probe.system.processes import LOOK_EVERY_S, THREADS, Crew, is_child
from probe.vectors.sources import complete_store

LINE_EVERY_S = 60  # so often a run prints how far it is
MOST_DEATHS = 2  # of a run in one launch: if it needs too much memory, it would kill one process after another
COMMITS = "LAYER_PROBE_COMMITS"  # what names on the Hub mean to all processes of a launch


def scores_line(record: RunRecord) -> str:
    scores = {"dev": record.scores.dev, "test": record.scores.test}
    parts = [f"{split} {record.task.headline.name} {percent(its.headline)}" for split, its in scores.items()]
    parts += [f"best epoch {record.best_epoch} of {len(record.curve)}"] if record.curve else []
    parts += [f"not converged: {remedy_of(record)}"] if record.outcome != "converged" else []
    return " · ".join(parts)


def crew_of(command: str) -> Crew:
    """Returns the processes that share the runs of a command. Must be called before anything is planned."""
    try:
        hub.commits.update({hub.Repo(*repo): commit for *repo, commit in json.loads(os.environ.get(COMMITS, "[]"))})
    except (ValueError, TypeError):
        raise UserError(
            f"{COMMITS} holds no commits: this program sets it, for processes that it starts. Unset it."
        ) from None
    return Crew(command)


def make_runs(configs: Sequence[Config], crew: Crew, log: Callable[[str], None] = print) -> list[tuple[str, str]]:
    """Extracts what is missing, makes the runs that are not done with the crew, and returns when all are over.

    Returns name and reason of each run that failed. A child only makes runs.
    Raises UserError for what cannot be planned.
    """
    plans = [*{(one.results_dir, one.identity.key): one for one in map(plan, configs)}.values()]
    folders = sorted({planned.results_dir for planned in plans})
    if not is_child():
        _ask_for(plans, folders, crew.command, log)
    if not crew.gpus and any(cfg.device != "cpu" for cfg in configs):
        crew.gpus = gpus()
    queue = _Queue(plans, crew)
    todo = queue.left(plans)
    at_once = min(queue.at_once, len(todo))
    # A run that needs too much memory must not kill this process, so even the last one is left to a child.
    is_alone = is_child() or queue.at_once <= 1 or not todo
    if is_alone:
        take_gpu(crew.gpus, plans[0].results_dir / "logs")  # before CUDA is asked for anything
    if todo and not is_child():
        for line in dict.fromkeys(slow_bfloat16(planned.cfg, resolve_device(planned.cfg.device)) for planned in todo):
            if line:
                log(f"{line}.")
        if is_alone or not crew.gpus:  # else the children extract, each on its GPU
            queue.extract(todo)
        others = sum(map(running_here, folders))
        beside = f", beside {pluralize(others, 'run')} of another command" if others else ""
        log(f"Training, {'one run after another' if is_alone else f'{at_once} at a time'}{beside}.")
    if is_alone:
        queue.work()
    else:
        num_threads = str(max(1, num_cores() // queue.at_once))
        threads = {name: os.environ.get(name, num_threads) for name in THREADS}
        commits = [[*dataclasses.astuple(repo), commit] for repo, commit in hub.commits.items()]
        crew.start(at_once, {**threads, COMMITS: json.dumps(commits)})
        crew.work(queue.is_empty, MOST_DEATHS * len(plans), replace=not queue.has_locks)
    for folder in folders:
        prepare_results(folder)
    return queue.failed()


def _ask_for(plans: Sequence[Plan], folders: Sequence[Path], command: str, log: Callable[[str], None]) -> None:
    """Writes which runs are asked for, and logs how many of them are done."""
    for folder in folders:
        prepare_results(folder)
        remove_leftovers(folder)
        own = [planned for planned in plans if planned.results_dir == folder]
        expected, margin = [one.expected for one in own], own[0].cfg.margin
        if (kept := write_expected(folder, expected, margin=margin, command=command).margin) != margin:
            log(
                f"The tables of {folder} keep the margin of its first sweep, {kept:g}. "
                f"For another: probe table {folder} --margin {margin:g}"
            )
    for line in dict.fromkeys(f"data {one.corpus.name}: {note}." for one in plans for note in one.corpus.notes):
        log(line)
    num_done = sum(planned.is_done for planned in plans)
    log(f"{pluralize(len(plans), 'run')}, {'all' if num_done == len(plans) else num_done} done already.")


class _Queue:
    """Makes runs, one after another, each under its lock, until none is left. See `make_runs`.

    A run is over if it has a record, or if it failed in this launch. Failures of earlier launches are tried again.
    """

    def __init__(self, plans: Sequence[Plan], crew: Crew) -> None:
        self.plans, self.crew = plans, crew
        self.at_once = side_by_side(plans[0].cfg.jobs, len(crew.gpus))
        self.keys = [planned.identity.key for planned in plans]
        self.folders = {planned.results_dir for planned in plans}
        self.over: set[int] = set()  # ids of plans whose runs were seen to be over, which they stay
        self.seconds: list[float] = []  # that runs took here
        self.labels = labels_of([planned.expected for planned in plans])
        self.tried: set[str] = set()  # by this process: a full disk may keep no note of it
        end = plans[0].results_dir / "logs" / "end.lock"
        with FileLock(end) as lock:
            self.has_locks = lock.held or lock.busy
        if not lock.busy:
            end.unlink(missing_ok=True)

    def is_over(self, planned: Plan) -> bool:
        key = planned.identity.key
        return planned.is_done or key in self.tried or self._failed_here(attempts_of(planned.results_dir, key))

    def left(self, plans: Sequence[Plan]) -> list[Plan]:
        """Returns which of these runs are not over, those last that died most often, also in earlier launches.

        Lists each folder once. Only runs that have a file there are asked about, and those that are over never again.
        """
        of_runs = {short(key) for key in self.tried}
        for folder in self.folders:
            of_runs |= keys_in(folder / "records").keys() | keys_in(folder / "logs").keys()
        plans = [one for one in plans if id(one) not in self.over]
        known = [one for one in plans if short(one.identity.key) in of_runs]
        self.over |= {id(one) for one in known if self.is_over(one)}
        attempts = {id(one): attempts_of(one.results_dir, one.identity.key) for one in known}
        died = {number: sum(attempt.end == "begun" for attempt in tried) for number, tried in attempts.items()}
        left = [one for one in plans if id(one) not in self.over]
        return sorted(left, key=lambda one: died.get(id(one), 0))  # they must not keep the others from their turn

    def is_empty(self) -> bool:
        """Returns whether all runs are over, and said to be."""
        return not self.left(self.plans) and not any(
            is_running(one.results_dir, one.identity.key) for one in self.plans
        )

    def failed(self) -> list[tuple[str, str]]:
        """Returns name and reason of each run that failed. Without locks, others may still make what has no reason."""
        failed = []
        for planned in self.plans:
            file = _failure_file(planned)
            if not planned.is_done and (file.exists() or self.has_locks):
                why = f"its process was killed; the same command tries again (logs: {file.parent})"
                if file.exists():
                    why = f"{first_line(file)} (log: {file})"
                failed.append((self.labels[planned.identity.key], why))
        return failed

    def extract(self, todo: Sequence[Plan]) -> None:
        """Fills every store that these runs read. If one cannot be filled, its runs have failed; the others go on."""
        readers = group_by((one for one in todo if one.kind.reads_features), lambda one: one.store.key)
        for same in readers.values():
            try:
                complete_store(same[0].store, resolve_device(same[0].cfg.device))
            except Exception as error:
                for planned in same:
                    _write_failure(planned, error)
                    write_attempts(planned.results_dir, planned.identity.key, [self._attempt("failed")])

    def work(self) -> None:
        """Makes this process's part of the runs, then any that is free; waits for those that others make."""
        number, of = self.crew.number, self.crew.of
        parts = [self.plans[(number + part) % of :: of] for part in range(of if self.has_locks else 1)]
        plans = [planned for part in parts for planned in part]
        host = socket.gethostname()
        with _errors_to(self.plans[0].results_dir / "logs" / f"{host}-{os.getpid()}.log"):
            while left := self.left(plans):
                if not any(self._take(planned) for planned in left):
                    time.sleep(LOOK_EVERY_S)

    def _attempt(self, end: str) -> Attempt:
        return Attempt(self.crew.launch, socket.gethostname(), str(os.getpid()), end)

    def _failed_here(self, attempts: Sequence[Attempt]) -> bool:
        return any(one.launch == self.crew.launch and one.end == "failed" for one in attempts)

    def _take(self, planned: Plan) -> bool:
        """Makes a run, unless another process does or has. Returns whether it did."""
        with running(planned.results_dir, planned.identity.key, wait=False) as set_status:
            if set_status is None or self.is_over(planned):
                return False
            prepare_results(planned.results_dir)
            print(self._line(planned, self._make(planned, set_status)), flush=True)
            return True

    def _make(self, planned: Plan, set_status: Callable[[str], None]) -> str:
        """Makes a run; returns its scores, or why it failed. Notes the attempt, which stays if this process dies."""
        clock = time.perf_counter()
        key = planned.identity.key
        before = attempts_of(planned.results_dir, key)
        deaths = [one for one in before if one.launch == self.crew.launch and one.end == "begun"]
        kept: list[Attempt] = []
        said = clock

        def log(line: str) -> None:
            nonlocal said
            set_status(line)
            if time.perf_counter() - said > LINE_EVERY_S:
                said = time.perf_counter()
                print(f"{self.labels[key]} · {line}", flush=True)

        _failure_file(planned).unlink(missing_ok=True)  # of an earlier launch
        try:
            if len(deaths) >= MOST_DEATHS:
                hosts = ", ".join(dict.fromkeys(one.host for one in deaths))
                raise UserError(f"died {len(deaths)} times on {hosts} (memory? time limit?)")
            write_attempts(planned.results_dir, key, [*before, self._attempt("begun")])
            if planned.kind.reads_features and planned.store.missing():
                set_status("extracting features")
            runs = max(self.at_once, running_here(planned.results_dir))
            record = make(planned, log, runs, len(self.crew.gpus), self.crew.command)
            self.seconds.append(time.perf_counter() - clock)
            return f"{scores_line(record)} · {self.seconds[-1]:.0f} s"
        except Exception as error:
            kept = [*before, self._attempt("failed")]
            self.tried.add(key)
            return f"failed: {_write_failure(planned, error)}"
        except BaseException:
            kept = before
            raise
        finally:
            write_attempts(planned.results_dir, key, kept)

    def _line(self, planned: Plan, outcome: str) -> str:
        """Writes what is printed of a run that has ended: "run 7 of 18, 2 failed, 6 min left · last seed 1 · ..."."""
        now = SweepStatus(planned.results_dir, self.keys)
        num_failed = sum(self._failed_here(now.attempts[key]) for key in now.failed)
        over = len(now.done) + num_failed
        parts = [f"run {over} of {len(now.keys)}"] + [f"{num_failed} failed"] * bool(num_failed)
        remaining_s = now.remaining_s(self.at_once, self.seconds)
        if over < len(now.keys) and remaining_s is not None:
            parts.append(f"{duration(remaining_s)} left")
        return f"{', '.join(parts)} · {self.labels[planned.identity.key]} · {outcome}"


def _failure_file(planned: Plan) -> Path:
    return planned.results_dir / "logs" / f"{planned.record_path.stem}.failed.txt"


def _write_failure(planned: Plan, error: Exception) -> str:
    """Keeps the traceback in a file; returns the one line that says why."""
    line = reason_of(error)
    if not isinstance(error, UserError):
        line = f"{type(error).__name__}: {line}"
    with contextlib.suppress(OSError):  # a full disk may be the very reason
        text = f"{line}\n\n{''.join(traceback.format_exception(error))}"
        _failure_file(planned).write_text(text, encoding="utf-8")
    return line


@contextlib.contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Sends what libraries and a dying process write on stderr to a file; of a child, until it ends."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        if not is_child():
            os.dup2(kept, 2)
        os.close(kept)
        if not file.stat().st_size:
            file.unlink()
