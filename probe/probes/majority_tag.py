"""Fits the majority-tag baseline: a tagger that only counts how often train has each word with which tag.

Its score shows what a corpus gives away without an encoder and without a word's context. Each task has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from probe.config import UserError
from probe.probes.fitting import Fit, FitInputs
from probe.system.provenance import hardware


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Counts the tags of train and tags dev and test with the counts: no features, no training.

    Raises UserError for a baseline that the task does not have, and for texts that are ids alone.
    """
    clock = time.perf_counter()
    splits, task, wanted = inputs.corpus.splits, inputs.corpus.task, inputs.selection.combine
    if wanted not in task.baselines:
        raise UserError(
            f"layers={inputs.selection.name} is no baseline of data.task={task.name}. Type layers=majority_tag."
        )
    data = inputs.cfg.data
    if data.id_field is not None and data.id_field == data.words_field:
        raise UserError(
            f"layers={inputs.selection.name} reads texts, and data.words_field={data.words_field} has ids. "
            "Name the field with the text: data.words_field=text."
        )
    baseline = task.baselines[wanted](splits["train"])
    return Fit(
        predictions={name: baseline.predict(splits[name].words) for name in ("dev", "test")},
        outcome="converged",
        parameters=len(baseline),
        hardware=hardware("cpu", 1),
        train_s=time.perf_counter() - clock,
    )
