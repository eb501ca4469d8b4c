"""Computes means and intervals over seeds, and the units of a text with their influence on F1.

`scoring.compare` compares rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe.scoring.metrics import f1_of

CONFIDENCE = 0.95  # of every interval and critical value
BLOCKS = 18  # of a text without marked documents: each holds several, which vary together
SHORTEST_BLOCK = 30  # sentences
MOST_IN_COMMON = 0.2  # correlation of neighbouring blocks; more of it says that documents are longer than blocks
FEWEST_UNITS = 15  # effective; with fewer, or less equal ones, too many rows are called worse that are not


@dataclass(frozen=True)
class Cell:
    """Holds a row's score over its seeds, as fractions: mean, sample standard deviation, 95 % interval.

    A value is None if there are too few seeds for it.
    """

    mean: float | None
    std: float | None
    interval: list[float] | None


def summary(values: Sequence[float]) -> Cell:
    """Summarises the scores of several seeds."""
    if not values:
        return Cell(None, None, None)
    many = len(values) > 1
    std = float(np.std(values, ddof=1)) if many else None
    return Cell(float(np.mean(values)), std, interval(values) if many else None)


def interval(values: Sequence[float]) -> list[float]:
    """Returns the 95 % interval of the mean of two or more values (Student's t).

    For normal values the coverage is right from two values on. Resampling a few
    seeds (a percentile bootstrap) is not: it covers the mean in 76 % of cases with three values, in 84 % with five.
    """
    from scipy.special import stdtrit

    centre, error = float(np.mean(values)), math.sqrt(float(np.var(values, ddof=1)) / len(values))
    reach = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error
    return [centre - reach, centre + reach]


def units_of(num_sentences: int, documents: Sequence[int] | np.ndarray | None) -> tuple[np.ndarray, str]:
    """Returns the unit of each sentence of a text, (sentences,), and what these units are called.

    Sentences of a document vary together, so a text is a sample of documents. Where they are unknown, blocks of
    neighbouring sentences take their place.
    """
    if documents is None:
        size = max(SHORTEST_BLOCK, -(-num_sentences // BLOCKS))
        return np.arange(num_sentences) // size, f"blocks of {size} sentences"
    return np.unique(np.asarray(documents), return_inverse=True)[1], "documents"


def effective_number(counts: np.ndarray, units: np.ndarray) -> float:
    """Returns how many equally long units would carry as much of a text: 1 / sum(share^2) (Kish 1965).

    counts: (sentences, 3), the number of gold, predicted and correct spans. A unit's share is that of its gold spans.
    """
    sizes = np.bincount(units, np.asarray(counts, dtype=float)[:, 0])
    return float(sizes.sum() ** 2 / max(1.0, (sizes**2).sum()))


def with_neighbours(influences: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Scales what blocks of a text move for what neighbouring ones have in common; None if that is too much.

    A document that ends in the next block makes both move alike, so the sum of all varies more than independent blocks
    would. The variance of a sum is 1 + 2 r times as large, where r is the correlation of neighbours, over all rows.
    But r is only estimated. To be on the safe side, 1 + 3 (r + half its standard error) is used.

    influences: of each row, (seeds, U), with units in the order of the text.
    """
    moves = np.stack([one.mean(0) for one in influences])
    moves = moves - moves.mean(0) if len(moves) > 1 else moves
    moves = moves - moves.mean(1, keepdims=True)
    r = float((moves[:, 1:] * moves[:, :-1]).sum()) / max(1e-30, float((moves**2).sum()))
    rows, blocks = moves.shape
    r += 1 / blocks  # of independent blocks it is -1 / U on average
    high = max(0.0, r + 0.5 / (blocks * max(1, rows - 1)) ** 0.5)
    return None if r > MOST_IN_COMMON else [one * (1 + 3 * high) ** 0.5 for one in influences]


def influence(counts: np.ndarray, units: np.ndarray | None = None) -> np.ndarray:
    """Returns how much micro F1 moves where a unit of the text is left out, to first order (delta method): (U,).

    counts: (sentences, 3), the number of gold, predicted and correct spans. units: the number of each sentence's unit;
    None: sentences are the units. Over texts of this kind and length, F1 has about the variance
    sum(influence^2) * (U - 1) / U, and the difference of two systems on one text that of the difference of their
    influences. The F1 of the whole text includes the unit, so the difference between the two understates the effect of
    a long unit. Dividing by 1 - share gives the effect of leaving it out (jackknife; CR3 of Bell & McCaffrey 2002).
    """
    gold, predicted, correct = np.asarray(counts, dtype=float).T
    sizes, total = gold + predicted, max(1.0, float(np.sum(gold + predicted)))
    moves = (2 * correct - float(f1_of(counts.sum(0))) * sizes) / total
    if units is not None:
        moves, sizes = np.bincount(units, moves), np.bincount(units, sizes)
    return np.asarray(moves / np.maximum(1 - sizes / total, 1e-9))
