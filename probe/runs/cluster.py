"""Submits a sweep as a SLURM job array, waits until it ends, and finds out how each job ended.

submitit writes the script and packs the jobs. `squeue` tells a job's state; `scontrol`, or `sacct` where the cluster
keeps accounting, how it ended. A run is over when its record or failure file exists, whatever SLURM says.
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

# What submitit's executor takes for every kind of cluster; all else is the cluster's own.
COMMON = (
    "timeout_min",
    "cpus_per_task",
    "gpus_per_node",
    "tasks_per_node",
    "mem_gb",
    "nodes",
    "name",
    "stderr_to_stdout",
)
OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
ON_A_NODE = ("CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")
EARLY_S = 90  # SLURM may warn up to a minute before it is told to, and a job begins before its program does
ANSWER_S = 60  # how long an answer of SLURM is waited for
END_OF_LOG = 2000  # characters


class Job(Protocol):
    """What is sent: a run, by its key."""

    @property
    def key(self) -> str: ...

    def is_over(self) -> bool:
        """Whether its record or its failure is there."""


class TimeLimitReached(BaseException):
    """Raised in a job when its time is up; a BaseException, so that no library's `except Exception` catches it."""


@dataclass
class RequeueableJob:
    """Work that a cluster may interrupt and requeue with the same job.

    limit_min: a job's time limit. notice_s: how long before it the cluster sends a signal. times_left: how often a job
    that reaches the limit is requeued; a preempted one always is.
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
        """Called by submitit, in the midst of the work, when a time limit or a preemption is near.

        Raises TimeLimitReached at the limit when no requeues are left.
        """
        import submitit

        if time.monotonic() - self.began < self.limit_min * 60 - self.notice_s - EARLY_S:
            return submitit.helpers.DelayedSubmission(self, job)
        if self.times_left < 1:
            raise TimeLimitReached(out_of_time(self.limit_min))
        return submitit.helpers.DelayedSubmission(replace(self, times_left=self.times_left - 1), job)


def out_of_time(limit_min: int) -> str:
    return (
        f"out of time: hydra.launcher.timeout_min={limit_min} cut it off. Type a larger one: a run begins anew, with "
        "the features that are there."
    )


def executor(cluster: str, settings: dict[str, Any]) -> Any:
    """submitit's executor with the settings of `hydra.launcher`."""
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


def again(work: Callable[[Any], None], settings: dict[str, Any]) -> RequeueableJob:
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
    first_word_s: float = 10,
) -> None:
    """Sends the jobs that are not in SLURM's queue yet, and waits for all of them.

    on_failure: called with a job that has ended and left neither record nor failure, as soon as that is known, and the
    reason: a line, then what SLURM and its log say. ask_every_s: the pause between two looks at the queue, at first and
    later. first_word_s: for how long nothing is said of jobs that wait. Raises UserError where SLURM takes nothing, or
    does not say what it has.
    """
    folder = Path(settings["submitit_folder"]).parent
    by_key = {job.key: job for job in jobs}
    sent = {number: by_key[key] for number, key in _in_the_queue(folder, by_key).items()}
    if sent:
        log(
            f"{len(sent)} of them are in SLURM's queue already (job {_arrays(sent)}): waited for, not sent again. "
            f"To send them anew: scancel {_arrays(sent)}, then the same command."
        )
    queued = {job.key for job in sent.values()}
    if fresh := [job for job in jobs if job.key not in queued]:
        numbers = _submit(again(work, settings), fresh, settings)
        keys = {number: job.key for number, job in zip(numbers, fresh, strict=True)}
        sent_now = {"jobs": keys, "settings": settings}
        write_atomically(folder / f"{_arrays(keys)}.json", json.dumps(sent_now, indent=1) + "\n")
        log(f"{len(fresh)} runs sent as SLURM job {_arrays(keys)}; scancel {_arrays(keys)} withdraws them.")
        sent |= dict(zip(numbers, fresh, strict=True))
    try:
        _wait(sent, settings, log, on_failure, ask_every_s, first_word_s)
    except KeyboardInterrupt:
        log(f"\nThe runs go on without this command: SLURM job {_arrays(sent)}. To end them: scancel {_arrays(sent)}")
        raise


def _submit(work: RequeueableJob, jobs: Sequence[Job], settings: dict[str, Any]) -> list[str]:
    """The numbers of the jobs, in their order. Raises UserError with SLURM's reason."""
    try:
        return [str(job.job_id) for job in executor("slurm", settings).map_array(work, jobs)]
    except (RuntimeError, OSError, ValueError, NameError, AssertionError) as error:
        lines = [re.sub(r"^sbatch: (error: )?", "", line) for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:2])[:300]
        if 'not detect "srun"' in reason or isinstance(error, FileNotFoundError):
            raise UserError(
                "nothing was sent: SLURM's `srun` and `sbatch` are not here. Type the command on a login node."
            ) from None
        raise UserError(
            f"nothing was sent, SLURM does not take it: {reason.rstrip('.')}.\n"
            "Set hydra.launcher.NAME=VALUE; every NAME: probe --cfg hydra -p hydra.launcher hydra/launcher=slurm"
        ) from None


def _arrays(numbers: Iterable[str]) -> str:
    """What scancel takes: the numbers of the arrays."""
    return " ".join(dict.fromkeys(number.split("_")[0] for number in numbers))


def _in_the_queue(folder: Path, wanted: Container[str]) -> dict[str, str]:
    """The wanted keys by the numbers of the jobs that earlier commands sent and that have not ended.

    Forgets the jobs that have. Raises UserError where SLURM does not say whether a wanted one has.
    """
    found: dict[str, str] = {}
    for file, keys, _ in _sent_before(folder):
        states = _states(keys)
        if states is None:
            if any(key in wanted for key in keys.values()):
                raise UserError(
                    f"nothing was sent: SLURM's squeue gives no answer, and job {_arrays(keys)}, sent earlier, "
                    f"may still run.\nType the same command later, on a login node; if that job is gone: rm {file}"
                )
            continue
        alive = {number: key for number, key in keys.items() if states.get(number, ("COMPLETED",))[0] not in OVER}
        found |= {number: key for number, key in alive.items() if key in wanted}
        if not alive:
            with contextlib.suppress(OSError):  # somebody else's, or on a full disk: asked again next time
                file.unlink()
    return found


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended without a result. state: what squeue still says of it."""

    number: str
    state: str
    settings: dict[str, Any]

    @property
    def reason(self) -> str:
        """Why it ended, as `_why` finds out."""
        return _why(self.number, self.state, self.settings)


def ended_jobs(folder: Path, wanted: Collection[str], timeout_s: float = ANSWER_S) -> dict[str, EndedJob]:
    """The jobs of the wanted keys that earlier commands sent and of which none is left, by key.

    Asks SLURM once per array, and not at all without a job of the wanted keys. Of a job that SLURM does not speak of
    now, nothing is known. wanted: keys that have neither record nor failure.
    """
    found: dict[str, EndedJob] = {}
    alive: set[str] = set()
    for _, keys, settings in _sent_before(folder):
        mine = {number: key for number, key in keys.items() if key in wanted}
        states = _states(mine, timeout_s)
        for number, key in mine.items():
            state = states.get(number, ("", ""))[0] if states is not None else "UNKNOWN"
            if state and state not in OVER:
                alive.add(key)
            else:
                found[key] = EndedJob(number, state, settings)
    return {key: job for key, job in found.items() if key not in alive}


def _sent_before(folder: Path) -> Iterator[tuple[Path, dict[str, str], dict[str, Any]]]:
    """What earlier commands sent, by array: the file that holds it, keys by the numbers of jobs, and the settings."""
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # half there, or not of this kind
            content = json.loads(file.read_text(encoding="utf-8"))
            yield file, dict(content["jobs"]), dict(content["settings"])


def _ask(*command: str, timeout_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
    """What a command of SLURM answers; nothing, and an exit code, where there is none or it takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _states(numbers: Iterable[str], timeout_s: float = ANSWER_S) -> dict[str, tuple[str, str]] | None:
    """State and reason of each job that SLURM still knows; None where it does not answer."""
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
    first_word_s: float,
) -> None:
    """Waits until every job is over, or gone for SLURM at two looks in a row: files may take a moment to be seen."""
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
        if now - begun > first_word_s and (reason := _why_nothing_runs(states)) != logged:
            logged = reason
            if reason:
                log(f"In SLURM's queue, none runs yet: {reason}.")


def _why_nothing_runs(states: dict[str, tuple[str, str]]) -> str:
    """SLURM's reason why jobs wait; empty while one runs."""
    if any(state in ON_A_NODE for state, _ in states.values()):
        return ""
    reasons = [reason for state, reason in states.values() if state not in OVER and reason not in ("", "None")]
    return ", ".join(dict.fromkeys(reasons))


def _why(number: str, state: str, settings: dict[str, Any]) -> str:
    """Why a job ended, in a line; below it what SLURM says of it, and the end of its log."""
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
    elif log is None and state in ("", "CANCELLED"):  # of a task that never left its array SLURM keeps nothing
        line = "cancelled before it began, by scancel or by the cluster. The same command sends it again."
    elif state == "CANCELLED":
        line = "killed: cancelled, by scancel or by the cluster. The same command sends it again."
    elif state == "PREEMPTED":
        line = "killed: it had to make room for another job. The same command sends it again."
    elif state in ("NODE_FAIL", "BOOT_FAIL"):
        line = f"killed: its node failed ({state}). The same command sends it again."
    elif killer:
        name = signal.strsignal(killer) or killer
        line = f"killed (signal {killer}, {name}). The same command sends it again."
    elif log is None:
        line = f"ended without a result or any output ({state}, exit code {code}). The same command sends it again."
    else:
        parts = [part.strip() for part in text.splitlines() if part.strip()]
        own = [part for part in parts if not part.startswith("srun: ")]  # srun comes after the reason
        line = f"ended without a result. Its output, {log}, ends: {(own or parts or ['nothing'])[-1][:160]}"
    ends = f" {log} ends:\n{text}" if log else " It left no output."
    return f"{line}\n\nSLURM job {number}: {state or 'unknown by now'}, exit code {code}.{ends}"


def _ending(number: str, state: str) -> tuple[str, int, int]:
    """State, exit code and signal of a job that has ended, from whoever still knows."""
    answer = _ask("scontrol", "--oneliner", "show", "job", number)
    found = re.search(r"JobState=(\w+).*?ExitCode=(\d+):(\d+)", answer.stdout)
    if not found:
        answer = _ask(
            "sacct", "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode", f"--jobs={number}"
        )
        found = re.search(r"^(\w+)[^|]*\|(\d+):(\d+)", answer.stdout)
    return (found[1], int(found[2]), int(found[3])) if found else (state, 0, 0)
