"""Starts jobs where `hydra/launcher` says: in this process, in processes of this machine, or on a cluster.

Hydra's own launchers are not used: a job here is any planned config, while theirs compose a config again from a command
line. submitit, which runs Hydra's SLURM launcher, is called directly with the settings of `hydra.launcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probe.config import UserError
from probe.runs.cluster import executor, requeueable, run_array
from probe.system.workers import ProcessDied, run_in_subprocesses

# By the name of Hydra's class, or of our preset: submitit's name of the cluster, or None for jobs of this machine.
CLUSTERS = {"local": None, "BasicLauncher": None, "LocalLauncher": "local", "SlurmLauncher": "slurm"}
ONE_BY_ONE = "BasicLauncher"


@dataclass(frozen=True)
class Launcher:
    """Says where the jobs of a sweep run. name: the value of `hydra/launcher`. settings: those of `hydra.launcher`."""

    name: str
    kind: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Launcher:
        """Checks the launcher's name and settings. Raises UserError for an unknown launcher."""
        kind = str(settings.pop("_target_", name)).rpartition(".")[2]
        if kind not in CLUSTERS:
            raise UserError(f"hydra/launcher={name} cannot be used here. There are: local, basic, slurm.")
        n_jobs = settings.get("n_jobs", -1)
        if not isinstance(n_jobs, int) or n_jobs not in (-1, max(1, n_jobs)):
            raise UserError(f"hydra.launcher.n_jobs={n_jobs}: this setting is a whole number from 1, or -1.")
        return cls(name, kind, settings)

    @property
    def is_here(self) -> bool:
        """Returns whether the jobs run on this machine and share it."""
        return CLUSTERS[self.kind] is None

    def is_this_process(self, at_once: int) -> bool:
        """Returns whether jobs run in this process, one after another. at_once: how many were asked to run at once."""
        return self.kind == ONE_BY_ONE or (self.is_here and at_once == 1)

    def launch(
        self,
        work: Callable[[Any], None],
        jobs: Sequence[Any],
        at_once: int,
        log: Callable[[str], None],
        on_failure: Callable[[Any, str], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs the work for each job, and returns when all jobs have ended.

        at_once: how many run side by side on this machine. on_failure: called with a job and the reason, if its process
        ended without a report. on_end: called after each job on this machine. Raises what a job raises, and
        UserError if a cluster accepts no job.
        """
        if self.is_this_process(at_once):
            for job in jobs:
                work(job)
                on_end()
        elif self.is_here:
            _run_side_by_side(work, jobs, at_once, log, on_failure, on_end)
        elif CLUSTERS[self.kind] == "slurm":
            run_array(work, jobs, self.settings, log, on_failure)
        else:
            submitted = executor("local", self.settings).map_array(requeueable(work, self.settings), jobs)
            for job, ended in zip(jobs, submitted, strict=True):
                if (why := ended.exception()) is not None:
                    on_failure(job, f"killed: {why}")


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
