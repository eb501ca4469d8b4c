"""Starts jobs where Hydra's launcher setting says: in this process, in processes of this machine, or on a cluster.

joblib and submitit are the engines of Hydra's own launchers; they are called directly, with the settings of
`hydra.launcher`, because a job here is any planned config, not one that Hydra composes again from a command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probe.config import UserError
from probe.system.processes import WithThisProcess

# By the name of Hydra's class: submitit's name of the cluster, or None for jobs of this machine.
CLUSTERS = {"BasicLauncher": None, "JoblibLauncher": None, "LocalLauncher": "local", "SlurmLauncher": "slurm"}
ONE_BY_ONE = "BasicLauncher"
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

    def launch(self, work: Callable[[Any], None], jobs: Sequence[Any], at_once: int) -> None:
        """Does the work for each job, and returns when all have ended.

        at_once: how many run side by side on this machine. Raises what the engine raises when a process dies.
        """
        if self.kind == ONE_BY_ONE or (self.is_here and at_once == 1):
            for job in jobs:
                work(job)
        elif self.is_here:
            from joblib import Parallel, delayed

            child = delayed(WithThisProcess(work))
            Parallel(**{**self.settings, "n_jobs": at_once, "backend": "loky"})(child(job) for job in jobs)
        else:
            self._submit(work, jobs)

    def _submit(self, work: Callable[[Any], None], jobs: Sequence[Any]) -> None:
        import submitit

        cluster, settings = CLUSTERS[self.kind], dict(self.settings)
        own = {"folder": settings.pop("submitit_folder")}
        if "max_num_timeout" in settings:
            own[f"{cluster}_max_num_timeout"] = settings.pop("max_num_timeout")
        executor = submitit.AutoExecutor(cluster=cluster, **own)
        executor.update_parameters(
            **{name if name in COMMON else f"{cluster}_{name}": value for name, value in settings.items()}
        )
        for job in executor.map_array(Again(work), jobs):
            job.results()


@dataclass(frozen=True)
class Again:
    """Work that a cluster may cut off and queue again, with the job it was given."""

    work: Callable[[Any], None]

    def __call__(self, job: Any) -> None:
        self.work(job)

    def checkpoint(self, job: Any) -> Any:
        """What submitit asks for when a time limit or a preemption is near."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, job)
