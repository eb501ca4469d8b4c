"""Runs the jobs of a sweep on this machine: in this process one after another, or side by side in others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probe.system.workers import ProcessDied, run_in_subprocesses


def launch(
    work: Callable[[Any], None],
    jobs: Sequence[Any],
    at_once: int,
    log: Callable[[str], None],
    on_failure: Callable[[Any, str], None],
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Runs the work for each job, and returns when all jobs have ended.

    at_once: how many run side by side; 1: in this process. on_failure: called with a job and the reason, if its process
    ended without a report. on_end: called after each job. Raises what a job raises.
    """
    if at_once == 1:
        for job in jobs:
            work(job)
            on_end()
    else:
        _run_side_by_side(work, jobs, at_once, log, on_failure, on_end)


def _run_side_by_side(
    work: Callable[[Any], None],
    jobs: Sequence[Any],
    at_once: int,
    log: Callable[[str], None],
    on_failure: Callable[[Any, str], None],
    on_end: Callable[[], None],
) -> None:
    """Runs the jobs in processes of this machine. A job whose process dies is repeated alone, after the others.

    The others continue with one process fewer. A job whose process dies when it runs alone has failed.
    """
    to_repeat = []
    for job, error in run_in_subprocesses(work, jobs, at_once, keep=True):
        if isinstance(error, ProcessDied) and len(jobs) == 1:
            on_failure(job, f"{error}. The same command tries again")
        elif isinstance(error, ProcessDied):
            to_repeat.append(job)
            at_once = max(1, at_once - 1)
            log(
                f"A process of the sweep was {error}. Its run is repeated at the end, alone. The others continue, "
                f"{at_once} at a time."
            )
        elif error is not None:
            raise error
        else:
            on_end()
    for job in to_repeat:
        _run_side_by_side(work, [job], 1, log, on_failure, on_end)
