"""Submits a sweep as a SLURM job array, waits until it ends, and finds out how each job ended.

submitit writes the script and pickles the jobs. `squeue` gives a job's state. `scontrol`, or `sacct` if the cluster has
accounting, says how it ended. A run is over when its record or failure file exists, whatever SLURM says.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from probe.config import UserError
from probe.system.files import write_atomically

# Parameters that submitit's executor takes for every kind of cluster. Others get the cluster's name as a prefix.
COMMON = "timeout_min cpus_per_task gpus_per_node tasks_per_node mem_gb nodes name stderr_to_stdout".split()
# States of jobs that have ended, and of jobs that have a node.
OVER = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split()
ON_A_NODE = "CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING".split()
EARLY_S = 90  # SLURM may send the signal up to a minute early, and a job starts before its program does
ANSWER_S = 60  # longest wait for an answer of SLURM
END_OF_LOG = 2000  # characters
SUBMIT_AGAIN = "The same command submits it again."


class Job(Protocol):
    """Represents a job that is submitted: a run, identified by its key."""

    @property
    def key(self) -> str: ...

    def is_over(self) -> bool:
        """Returns whether its record or its failure file exists."""


class TimeLimitReached(BaseException):
    """Ends a job at its time limit. It is a BaseException, so that no library's `except Exception` catches it."""


@dataclass
class RequeueableJob:
    """Wraps work that a cluster may interrupt and requeue.

    limit_min: a job's time limit. notice_s: how long before the limit the cluster sends a signal. times_left: how often
    a job that reaches the limit is requeued; a preempted job is always requeued.
    """

    work: Callable[[Any], None]
    limit_min: int
    notice_s: int
    times_left: int
    began: float = 0.0

    def __call__(self, job: Any) -> None:
        self.began = time.monotonic()
        self.work(job)

    def checkpoint(self, job: Any) -> Any:
        """Returns what to requeue. submitit calls this during the work when a time limit or a preemption is near.

        Raises TimeLimitReached at the limit when no requeues remain.
        """
        import submitit

        if time.monotonic() - self.began < self.limit_min * 60 - self.notice_s - EARLY_S:
            return submitit.helpers.DelayedSubmission(self, job)
        if self.times_left < 1:
            raise TimeLimitReached(out_of_time(self.limit_min))
        return submitit.helpers.DelayedSubmission(replace(self, times_left=self.times_left - 1), job)


def out_of_time(limit_min: int) -> str:
    return (
        f"out of time: it reached hydra.launcher.timeout_min={limit_min}. Type a larger one. The run starts from the "
        "beginning; extracted features are reused."
    )


def executor(cluster: str, settings: dict[str, Any]) -> Any:
    """Returns submitit's executor with the settings of `hydra.launcher`."""
    import submitit

    own = {} if cluster == "local" else {f"{cluster}_max_num_timeout": 10**6}  # `RequeueableJob` counts
    made = submitit.AutoExecutor(cluster=cluster, folder=settings["submitit_folder"], **own)
    without = ("submitit_folder", "max_num_timeout")
    made.update_parameters(
        **{
            name if name in COMMON else f"{cluster}_{name}": value
            for name, value in settings.items()
            if name not in without
        }
    )
    return made


def requeueable(work: Callable[[Any], None], settings: dict[str, Any]) -> RequeueableJob:
    return RequeueableJob(
        work, settings["timeout_min"], settings.get("signal_delay_s") or 0, settings.get("max_num_timeout") or 0
    )


def run_array(
    work: Callable[[Any], None],
    jobs: Sequence[Job],
    settings: dict[str, Any],
    log: Callable[[str], None],
    on_failure: Callable[[Any, str], None],
    ask_every_s: tuple[float, float] = (2, 30),
    quiet_s: float = 10,
) -> None:
    """Submits the jobs that are not in SLURM's queue yet, and waits for all of them.

    on_failure: called as soon as a job has ended without record or failure file, with the job and the reason: one line,
    then SLURM's answer and the end of its log. ask_every_s: the shortest and the longest pause between two looks at the
    queue. quiet_s: for how long nothing is logged about waiting jobs. Raises UserError if SLURM accepts no job or does
    not answer.
    """
    folder = Path(settings["submitit_folder"]).parent
    by_key = {job.key: job for job in jobs}
    sent = {number: by_key[key] for number, key in _in_the_queue(folder, by_key).items()}
    if sent:
        log(
            f"{len(sent)} of them are already in SLURM's queue (job {_arrays(sent)}) and are not submitted again. "
            f"To submit them again: scancel {_arrays(sent)}, then the same command."
        )
    queued = {job.key for job in sent.values()}
    if fresh := [job for job in jobs if job.key not in queued]:
        numbers = _submit(requeueable(work, settings), fresh, settings)
        keys = {number: job.key for number, job in zip(numbers, fresh, strict=True)}
        content = {"jobs": keys, "settings": settings}
        write_atomically(folder / f"{_arrays(keys)}.json", json.dumps(content, indent=1) + "\n")
        log(f"{len(fresh)} runs submitted as SLURM job {_arrays(keys)}. To cancel them: scancel {_arrays(keys)}")
        sent |= dict(zip(numbers, fresh, strict=True))
    try:
        _wait(sent, settings, log, on_failure, ask_every_s, quiet_s)
    except KeyboardInterrupt:
        log(
            f"\nThe runs continue without this command: SLURM job {_arrays(sent)}. To end them: scancel {_arrays(sent)}"
        )
        raise


def _submit(work: RequeueableJob, jobs: Sequence[Job], settings: dict[str, Any]) -> list[str]:
    """Submits the jobs and returns their numbers, in their order. Raises UserError with SLURM's reason."""
    try:
        return [str(job.job_id) for job in executor("slurm", settings).map_array(work, jobs)]
    except (RuntimeError, OSError, ValueError, NameError, AssertionError) as error:
        lines = [re.sub(r"^sbatch: (error: )?", "", line) for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:2])[:300]
        if 'not detect "srun"' in reason or isinstance(error, FileNotFoundError):
            raise UserError(
                "nothing was submitted: SLURM's `srun` and `sbatch` are not installed here. Use a login node."
            ) from None
        raise UserError(
            f"nothing was submitted, SLURM refused: {reason.rstrip('.')}.\n"
            "Set hydra.launcher.NAME=VALUE. For all names: probe --cfg hydra -p hydra.launcher hydra/launcher=slurm"
        ) from None


def _arrays(numbers: Iterable[str]) -> str:
    """Returns the numbers of the arrays, as scancel takes them."""
    return " ".join(dict.fromkeys(number.split("_")[0] for number in numbers))


def _in_the_queue(folder: Path, wanted: Container[str]) -> dict[str, str]:
    """Returns the wanted keys of jobs that earlier commands submitted and that have not ended, by job number.

    Removes the files of arrays that have ended. Raises UserError if SLURM does not answer about a wanted job.
    """
    found: dict[str, str] = {}
    for file, keys, _ in _earlier_arrays(folder):
        states = _states(keys)
        if states is None:
            if any(key in wanted for key in keys.values()):
                raise UserError(
                    f"nothing was submitted: SLURM's squeue does not answer, and job {_arrays(keys)}, submitted "
                    f"earlier, may still run.\nTry again later on a login node. If that job has ended: rm {file}"
                )
            continue
        alive = {number: key for number, key in keys.items() if states.get(number, ("COMPLETED",))[0] not in OVER}
        found |= {number: key for number, key in alive.items() if key in wanted}
        if not alive:
            with contextlib.suppress(OSError):  # another user's file: SLURM is asked again next time
                file.unlink()
    return found


@dataclass(frozen=True)
class EndedJob:
    """Describes a job that has ended without a result. state: as squeue gives it; may be empty."""

    number: str
    state: str
    settings: dict[str, Any]

    @property
    def reason(self) -> str:
        """Returns why it ended, see `_why`."""
        return _why(self.number, self.state, self.settings)


def ended_jobs(folder: Path, wanted: Collection[str], timeout_s: float = ANSWER_S) -> dict[str, EndedJob]:
    """Returns jobs that earlier commands submitted for the wanted keys and that have all ended, by key.

    Asks SLURM once per array, and only if a job has a wanted key. A job that SLURM does not answer about counts as not
    ended. wanted: keys that have neither record nor failure file.
    """
    found: dict[str, EndedJob] = {}
    alive: set[str] = set()
    for _, keys, settings in _earlier_arrays(folder):
        of_array = {number: key for number, key in keys.items() if key in wanted}
        states = _states(of_array, timeout_s)
        for number, key in of_array.items():
            state = states.get(number, ("", ""))[0] if states is not None else "UNKNOWN"
            if state and state not in OVER:
                alive.add(key)
            else:
                found[key] = EndedJob(number, state, settings)
    return {key: job for key, job in found.items() if key not in alive}


def _earlier_arrays(folder: Path) -> Iterator[tuple[Path, dict[str, str], dict[str, Any]]]:
    """Yields each submitted array: its file, the keys by job number, and the settings."""
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # incomplete, or another kind of file
            content = json.loads(file.read_text(encoding="utf-8"))
            yield file, dict(content["jobs"]), dict(content["settings"])


def _ask(*command: str, timeout_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Runs a command of SLURM. If it does not exist or takes too long, returns exit code 1 and no output."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _states(numbers: Iterable[str], timeout_s: float = ANSWER_S) -> dict[str, tuple[str, str]] | None:
    """Returns state and reason of each job that SLURM still knows; None if it does not answer."""
    found: dict[str, tuple[str, str]] = {}
    for array in _arrays(numbers).split():
        options = ("--noheader", "--array", "--states=all", f"--jobs={array}", "--format=%i|%T|%r")
        answer = _ask("squeue", *options, timeout_s=timeout_s)
        if answer.returncode and "Invalid job id" not in answer.stderr:
            return None
        for line in answer.stdout.splitlines():
            number, state, reason = [*line.split("|", 2), "", ""][:3]
            found[number.strip()] = (state, reason)
    return found


def _wait(
    sent: dict[str, Job],
    settings: dict[str, Any],
    log: Callable[[str], None],
    on_failure: Callable[[Any, str], None],
    ask_every_s: tuple[float, float],
    quiet_s: float,
) -> None:
    """Waits until every job is over, or missing in SLURM at two looks in a row, as files may become visible late."""
    dead: set[str] = set()
    begun = looked = time.monotonic()
    gone: set[str] = set()
    logged = ""
    while waiting := [number for number, job in sent.items() if number not in dead and not job.is_over()]:
        time.sleep(1)
        now = time.monotonic()
        pause = min(max(ask_every_s[0], (now - begun) / 4), ask_every_s[1])
        if now - looked < (ask_every_s[0] if gone else pause):
            continue
        looked = now
        states = _states(waiting)
        if states is None:
            continue
        before, gone = gone, {n for n in waiting if n not in states or states[n][0] in OVER}
        for number in sorted(gone & before):
            dead.add(number)
            on_failure(sent[number], _why(number, states.get(number, ("", ""))[0], settings))
        if now - begun > quiet_s and (reason := _why_nothing_runs(states)) != logged:
            logged = reason
            if reason:
                log(f"No job in SLURM's queue runs yet: {reason}.")


def _why_nothing_runs(states: dict[str, tuple[str, str]]) -> str:
    """Returns SLURM's reasons why jobs wait; "" if one runs."""
    if any(state in ON_A_NODE for state, _ in states.values()):
        return ""
    reasons = [reason for state, reason in states.values() if state not in OVER and reason not in ("", "None")]
    return ", ".join(dict.fromkeys(reasons))


def _why(number: str, state: str, settings: dict[str, Any]) -> str:
    """Says in a line why a job ended; adds SLURM's answer and the end of its log below."""
    from submitit.core.utils import JobPaths

    state, code, killer = _ending(number, state)
    paths = JobPaths(settings["submitit_folder"], number)
    log = next((path for path in (paths.stderr, paths.stdout) if path.exists()), None)
    text = log.read_text(encoding="utf-8", errors="replace")[-END_OF_LOG:] if log else ""
    killer = killer or (code - 128 if 128 < code < 160 else 0)
    if state == "OUT_OF_MEMORY" or (killer and re.search(r"oom.kill|memory limit", text, re.IGNORECASE)):
        line = f"out of memory: hydra.launcher.mem_gb={settings['mem_gb']} was not enough. Type a larger one."
    elif state in ("TIMEOUT", "DEADLINE"):
        line = out_of_time(settings["timeout_min"])
    elif log is None and state in ("", "CANCELLED"):  # SLURM stores nothing about a task that never started
        line = f"cancelled before it began, by scancel or by the cluster. {SUBMIT_AGAIN}"
    elif state == "CANCELLED":
        line = f"killed: cancelled, by scancel or by the cluster. {SUBMIT_AGAIN}"
    elif state == "PREEMPTED":
        line = f"killed: preempted by another job. {SUBMIT_AGAIN}"
    elif state in ("NODE_FAIL", "BOOT_FAIL"):
        line = f"killed: its node failed ({state}). {SUBMIT_AGAIN}"
    elif killer:
        name = signal.strsignal(killer) or killer
        line = f"killed (signal {killer}, {name}). {SUBMIT_AGAIN}"
    elif log is None:
        line = f"ended without a result or any output ({state}, exit code {code}). {SUBMIT_AGAIN}"
    else:
        parts = [part.strip() for part in text.splitlines() if part.strip()]
        own = [part for part in parts if not part.startswith("srun: ")]  # srun's lines follow the reason
        line = f"ended without a result. Its output, {log}, ends: {(own or parts or ['nothing'])[-1][:160]}"
    ends = f" {log} ends:\n{text}" if log else " It wrote no output."
    return f"{line}\n\nSLURM job {number}: {state or 'unknown'}, exit code {code}.{ends}"


def _ending(number: str, state: str) -> tuple[str, int, int]:
    """Returns state, exit code and signal of a job that has ended, from scontrol or sacct; else the given state."""
    answer = _ask("scontrol", "--oneliner", "show", "job", number)
    found = re.search(r"JobState=(\w+).*?ExitCode=(\d+):(\d+)", answer.stdout)
    if not found:
        answer = _ask(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode", f"--jobs={number}"
        )
        found = re.search(r"^(\w+)[^|]*\|(\d+):(\d+)", answer.stdout)
    return (found[1], int(found[2]), int(found[3])) if found else (state, 0, 0)
