"""Describes a score as a function of what the units of a text add up to. Whatever needs a score asks this object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probe.scoring.metrics import Counts, by_sentence, f1_of


@dataclass(frozen=True)
class Score:
    """Describes a score of a split, a fraction.

    name: in tables. title: in captions. statistics: (sentences, C), what it needs of each sentence, from the counts of
    a split. value: the score of sums of statistics, (..., C) to (...). has_influence: whether leaving out one unit at
    a time says how it varies over texts. That is false for quantiles, which then have no interval over text.
    """

    name: str
    title: str
    statistics: Callable[[Counts], np.ndarray]
    value: Callable[[np.ndarray], np.ndarray]
    has_influence: bool = True

    def of(self, counts: Counts) -> float:
        return float(self.value(self.statistics(counts).sum(0)))


def influence(value: Callable[[np.ndarray], np.ndarray], statistics: np.ndarray, unit_of: np.ndarray) -> np.ndarray:
    """Returns how much a score moves where a unit of the text is left out (jackknife): (U,).

    value: see `Score`. statistics: (sentences, C). unit_of: (sentences,), the number of each one's unit. Over texts of
    this kind and length, the score has about the variance sum(influence^2) * (U - 1) / U, and the difference of two
    systems on one text that of the difference of their influences (CR3 of Bell & McCaffrey 2002).
    """
    units = np.stack([np.bincount(unit_of, column) for column in statistics.T], 1)
    total = units.sum(0)
    return np.asarray(value(total) - value(total - units))


F1 = Score("F1", "Span F1 (conlleval)", by_sentence, f1_of)
# Of one label per word or sentence, gold and predicted items are as many as labels, so micro F1 is the accuracy.
ACCURACY = Score("accuracy", "Accuracy", by_sentence, f1_of)
