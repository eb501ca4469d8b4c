"""Fits the majority-tag baseline: a tagger that only counts how often train has each word with which tag.

Its score shows what a corpus gives away without an encoder and without a word's context. Each task has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from probe.probes.fitting import Fit, FitInputs
from probe.system.provenance import hardware


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Counts the tags of train and tags dev and test with the counts: no features, no training."""
    clock = time.perf_counter()
    splits, task = inputs.corpus.splits, inputs.corpus.task
    baseline = task.baselines[inputs.selection.combine](splits["train"])
    return Fit(
        predictions={name: baseline.predict(splits[name].words) for name in ("dev", "test")},
        outcome="converged",
        parameters=len(baseline),
        hardware=hardware("cpu", 1),
        train_s=time.perf_counter() - clock,
    )
