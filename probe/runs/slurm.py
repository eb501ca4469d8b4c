"""Submits a sweep to SLURM as an array of workers: hydra/launcher=slurm. submitit, which Hydra's plugin uses, submits.

Each worker is the command itself, and shares its runs by the results folder.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from probe.config import UserError

LAUNCHER, SETTING = "hydra/launcher=slurm", "hydra.launcher."
WORKERS = "4"


def without_launcher(overrides: Sequence[str]) -> tuple[list[str], dict[str, str] | None]:
    """Separates the launcher's settings from a run's. Returns both; None where no launcher is asked for."""
    if LAUNCHER not in overrides:
        return list(overrides), None
    others = [one for one in overrides if one != LAUNCHER and not one.startswith(SETTING)]
    given = dict(one.removeprefix(SETTING).split("=", 1) for one in overrides if one.startswith(SETTING) and "=" in one)
    return others, given


def submit(arguments: Sequence[str], given: dict[str, str], results_dir: Path) -> str:
    """Submits `hydra.launcher.array` workers and returns the job's number.

    given: submitit's parameters, such as timeout_min, mem_gb, cpus_per_task and slurm_partition. Raises UserError for
    others, and without submitit or SLURM.
    """
    if importlib.util.find_spec("submitit") is None:
        raise UserError(f"{LAUNCHER} needs submitit: pip install 'layer-probe[slurm]'.")
    from submitit import AutoExecutor
    from submitit.helpers import CommandFunction

    workers = int(given.get("array", WORKERS))
    try:
        executor = AutoExecutor(results_dir / "logs" / "slurm", cluster="slurm")
        executor.update_parameters(
            **{name: int(value) if value.isdecimal() else value for name, value in given.items() if name != "array"}
        )
        with executor.batch():
            worker = CommandFunction([sys.executable, "-m", "probe", *arguments])
            jobs = [executor.submit(worker) for _ in range(workers)]
    except (NameError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{LAUNCHER}: {' '.join(str(error).split())}") from None
    return jobs[0].job_id.partition("_")[0]
