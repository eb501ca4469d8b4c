"""Describes a score by statistics of sentences, and how much each unit of a text moves it.

Whatever needs a score asks this object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from probe.scoring.metrics import Counts, by_sentence, f1_of


@dataclass(frozen=True)
class Score:
    """Describes a score of a split, a fraction.

    name: in tables. title: in captions. statistics: (sentences, C), what it needs of each sentence, from the counts of
    a split. value: the score of a split, given these statistics. influence: how much a score moves where a unit of the
    text is left out, (U,), given these statistics and each sentence's unit (see `jackknife`). None: nothing says how
    it varies over texts, as of quantiles. items: how many gold items each sentence has, (sentences,), or how many of
    each of K kinds that it needs, (sentences, K), given these statistics. Runs on one text are recognised by
    them, so they must not depend on what was predicted.
    """

    name: str
    title: str
    statistics: Callable[[Counts], np.ndarray]
    value: Callable[[np.ndarray], float]
    influence: Callable[[np.ndarray, np.ndarray], np.ndarray] | None
    items: Callable[[np.ndarray], np.ndarray] = lambda statistics: statistics[:, 0]

    def of(self, counts: Counts) -> float:
        return self.value(self.statistics(counts))


def score_of_sums(
    name: str, title: str, statistics: Callable[[Counts], np.ndarray], value: Callable[[np.ndarray], np.ndarray]
) -> Score:
    """Describes a score that is a function of sums over sentences. value: of these sums, (..., C) to (...)."""
    return Score(name, title, statistics, lambda sentences: float(value(sentences.sum(0))), partial(jackknife, value))


def jackknife(value: Callable[[np.ndarray], np.ndarray], statistics: np.ndarray, unit_of: np.ndarray) -> np.ndarray:
    """Returns how much a score of sums moves where a unit of the text is left out: (U,).

    value: see `score_of_sums`. statistics: (sentences, C). unit_of: (sentences,), the number of each one's unit. Over
    texts of this kind and length, the score has about the variance sum(influence^2) * (U - 1) / U, and the difference
    of two systems on one text that of the difference of their influences (CR3 of Bell & McCaffrey 2002).
    """
    units = np.stack([np.bincount(unit_of, column) for column in statistics.T], 1)
    total = units.sum(0)
    return np.asarray(value(total) - value(total - units))


F1 = score_of_sums("F1", "Span F1 (conlleval)", by_sentence, f1_of)
# Of one label per word or sentence, gold and predicted items are as many as labels, so micro F1 is the accuracy.
ACCURACY = score_of_sums("accuracy", "Accuracy", by_sentence, f1_of)
