"""Starts jobs where Hydra's launcher setting says: in this process, in processes of this machine, or on a cluster.

joblib and submitit are the engines of Hydra's own launchers; they are called directly, with the settings of
`hydra.launcher`, because a job here is any planned config, not one that Hydra composes again from a command line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probe.config import UserError
from probe.runs.cluster import again, executor, run_array
from probe.system.processes import LOOK_EVERY_S, end_with

# By the name of Hydra's class: submitit's name of the cluster, or None for jobs of this machine.
CLUSTERS = {"BasicLauncher": None, "JoblibLauncher": None, "LocalLauncher": "local", "SlurmLauncher": "slurm"}
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
        kind = str(settings.pop("_target_")).rpartition(".")[2]
        if kind not in CLUSTERS:
            raise UserError(f"hydra/launcher={name} cannot be used here. There are: local, joblib, basic, slurm.")
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
        tell: Callable[[str], None],
        died: Callable[[Any, str], None],
    ) -> None:
        """Does the work for each job, and returns when all have ended.

        at_once: how many run side by side on this machine. died: called with a cluster's job that ended without a
        word of its own, and the reason. Raises what the engine raises when a process dies, and UserError where a
        cluster takes no job.
        """
        if self.is_this_process(at_once):
            for job in jobs:
                work(job)
        elif self.is_here:
            from joblib import Parallel, delayed

            ours = {"n_jobs": at_once, "backend": "loky", "initializer": end_with, "initargs": (os.getpid(),)}
            Parallel(**{**self.settings, **ours})(delayed(work)(job) for job in jobs)
        elif CLUSTERS[self.kind] == "slurm":
            run_array(work, jobs, self.settings, tell, died)
        else:
            sent = executor("local", self.settings).map_array(again(work, self.settings), jobs)
            for job, ended in zip(jobs, sent, strict=True):
                if (why := ended.exception()) is not None:
                    died(job, f"killed: {why}")


def run_in_subprocesses(work: Callable[[Any], None], jobs: Sequence[Any]) -> None:
    """Does the work for each job at once, each in a process that ends with it. Raises what a job raises."""
    from joblib.externals.loky import ProcessPoolExecutor, wait

    pool = ProcessPoolExecutor(max_workers=len(jobs), initializer=end_with, initargs=(os.getpid(),))
    try:
        for part in [pool.submit(work, job) for job in jobs]:
            while not part.done():
                wait([part], LOOK_EVERY_S)
            part.result()
    finally:
        pool.shutdown(kill_workers=True)
