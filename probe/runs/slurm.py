"""Submits a sweep to SLURM as an array of workers: hydra/launcher=slurm. submitit, which Hydra's plugin uses, submits.

Each worker is the command itself, and shares its runs by the results folder. SLURM tells it that its time is nearly
over, and it frees its run. submitit would kill it then, so submitit's process becomes the worker.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from probe.config import UserError

LAUNCHER, SETTING = "hydra/launcher=slurm", "hydra.launcher."
DELAY = "slurm_signal_delay_s"  # so long before the end a worker is told to stop; submitit's name
DEFAULTS = {"array": "4", "timeout_min": "120", DELAY: "30", "cpus_per_task": "1"}  # the last one is submitit's
EARLIER_S = 60  # SLURM may send a signal so much earlier than asked for


def without_launcher(overrides: Sequence[str]) -> tuple[list[str], dict[str, str] | None]:
    """Separates the launcher's settings from a run's. Returns both; None where no launcher is asked for."""
    if LAUNCHER not in overrides:
        return list(overrides), None
    others = [one for one in overrides if one != LAUNCHER and not one.startswith(SETTING)]
    parameters = dict(
        one.removeprefix(SETTING).split("=", 1) for one in overrides if one.startswith(SETTING) and "=" in one
    )
    return others, parameters


def number_of(parameters: Mapping[str, str], name: str) -> int:
    """Returns a launcher's parameter that is a number, as given or as in DEFAULTS. Raises UserError for others."""
    if not (value := parameters.get(name, DEFAULTS.get(name, "0"))).isdecimal():
        raise UserError(f"{SETTING}{name}={value}: expected a number.")
    return int(value)


def work_s(parameters: Mapping[str, str]) -> int:
    """Returns the seconds that a worker surely has until it is told to stop. Raises UserError if there are none."""
    minutes, delay = number_of(parameters, "timeout_min"), number_of(parameters, DELAY)
    if (seconds := 60 * minutes - delay - EARLIER_S) <= 0:
        least = (delay + EARLIER_S) // 60 + 1
        raise UserError(
            f"{SETTING}timeout_min={minutes} leaves no time: SLURM tells a worker to stop up to {delay + EARLIER_S} s "
            f"before its end. Use {least} or more."
        )
    return seconds


def submit(arguments: Sequence[str], parameters: Mapping[str, str], results_dir: Path, is_trial: bool = False) -> str:
    """Submits `hydra.launcher.array` workers and returns the job's number.

    parameters: submitit's parameters, such as timeout_min, mem_gb, cpus_per_task and slurm_partition. is_trial: submits
    nothing. Raises UserError for other parameters, for a time that is too short, and without submitit or SLURM.
    """
    if importlib.util.find_spec("submitit") is None:
        raise UserError(f"{LAUNCHER} needs submitit: pip install 'layer-probe[slurm]'.")
    from submitit import AutoExecutor

    workers = max(1, number_of(parameters, "array"))
    work_s(parameters)
    times = {name: number_of(parameters, name) for name in ("timeout_min", DELAY)}
    try:
        executor = AutoExecutor(results_dir / "logs" / "slurm", cluster="slurm")
        executor.update_parameters(
            **{
                name: int(value) if value.isdecimal() else value
                for name, value in parameters.items()
                if name != "array"
            }
            | times
        )
        if is_trial:
            return ""
        with executor.batch():
            worker = [sys.executable, "-m", "probe", "train", *arguments]
            jobs = [executor.submit(os.execv, sys.executable, worker) for _ in range(workers)]
    except (NameError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{LAUNCHER}: {' '.join(str(error).split())}") from None
    return jobs[0].job_id.partition("_")[0]
