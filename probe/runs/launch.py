"""Starts jobs where `hydra/launcher` says: in this process, in processes of this machine, or on a cluster.

Hydra's own launchers are not called, because a job here is any planned config, not one that Hydra composes again from a
command line. submitit, the engine of its SLURM launcher, is called directly with the settings of `hydra.launcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probe.config import UserError
from probe.runs.cluster import again, executor, run_array
from probe.system.workers import ProcessDied, run_in_subprocesses

# By the name of Hydra's class, or of our preset: submitit's name of the cluster, or None for jobs of this machine.
CLUSTERS = {"local": None, "BasicLauncher": None, "LocalLauncher": "local", "SlurmLauncher": "slurm"}
ONE_BY_ONE = "BasicLauncher"


@dataclass(frozen=True)
class Launcher:
    """Where the jobs of a sweep run. name: as `hydra/launcher` has it. settings: those of `hydra.launcher`."""

    name: str
    kind: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, name: str, settings: dict[str, Any]) -> Launcher:
        """Raises UserError for a launcher that is not known here."""
        kind = str(settings.pop("_target_", name)).rpartition(".")[2]
        if kind not in CLUSTERS:
            raise UserError(f"hydra/launcher={name} cannot be used here. There are: local, basic, slurm.")
        n_jobs = settings.get("n_jobs", -1)
        if not isinstance(n_jobs, int) or n_jobs not in (-1, max(1, n_jobs)):
            raise UserError(f"hydra.launcher.n_jobs={n_jobs}: this setting is a whole number from 1, or -1.")
        return cls(name, kind, settings)

    @property
    def is_here(self) -> bool:
        """Whether the jobs run on this machine and share it."""
        return CLUSTERS[self.kind] is None

    def is_this_process(self, at_once: int) -> bool:
        """Whether so many jobs at once run in this very process, one after another."""
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
        """Does the work for each job, and returns when all have ended.

        at_once: how many run side by side on this machine. on_failure: called with a job whose process ended without
        a word of its own, and the reason. on_end: called after each job that has run on this machine. Raises what a job
        raises, and UserError where a cluster takes no job.
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
            sent = executor("local", self.settings).map_array(again(work, self.settings), jobs)
            for job, ended in zip(jobs, sent, strict=True):
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
    """Does the jobs in processes of this machine. A job whose process dies is done once more, alone, after the others.

    The others go on with one process fewer. A job whose process dies when it runs alone has failed.
    """
    once_more = []
    for job, error in run_in_subprocesses(work, jobs, at_once, keep=True):
        if isinstance(error, ProcessDied) and len(jobs) == 1:
            on_failure(job, f"{error}. The same command tries again")
        elif isinstance(error, ProcessDied):
            once_more.append(job)
            at_once = max(1, at_once - 1)
            log(
                f"A process of the sweep was {error}. Its run is made once more at the end, alone; the others go on, "
                f"{at_once} at a time."
            )
        elif error is not None:
            raise error
        else:
            on_end()
    for job in once_more:
        _run_side_by_side(work, [job], 1, log, on_failure, on_end)
