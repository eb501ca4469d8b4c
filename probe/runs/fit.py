"""Fits the probe of a planned run: looks up its kind in `PROBES` and calls the kind's fit."""

from __future__ import annotations

from collections.abc import Callable

from probe.probes.fitting import Fit, FitInputs
from probe.runs.outputs import unfinished_path
from probe.runs.plan import Plan


def fit(planned: Plan, log: Callable[[str], None], runs: int = 1, num_gpus: int = 1) -> Fit:
    """Fits and predicts. log: gets progress lines. runs: how many runs share this machine and its GPUs."""
    return planned.kind.fit(fit_inputs(planned, runs, num_gpus), log)


def fit_inputs(planned: Plan, runs: int = 1, num_gpus: int = 1) -> FitInputs:
    """Returns the inputs for the probe of a planned run."""
    return FitInputs(
        planned.cfg,
        planned.text,
        planned.corpus,
        planned.sample,
        planned.encoder,
        planned.selection,
        planned.store,
        planned.label,
        unfinished_path(planned.record_path),
        runs,
        num_gpus,
    )
