"""Means and spreads over seeds, the paired test of two systems on one text, and how much each document moves F1.

All random draws are seeded. Rows are compared in `scoring.compare`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe.scoring.metrics import f1_of

SHUFFLES = 10_000
CHUNK = 1_000  # shuffles at once: bounds the memory
FEWEST_DOCUMENTS = 20  # with fewer a test over documents could tell little apart: D of them allow no p below 2 / 2^D


@dataclass(frozen=True)
class Cell:
    """A row's score over its seeds, fractions: mean, sample standard deviation, range, 95 % interval.

    None where there are too few seeds for it.
    """

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    interval: list[float] | None


def summary(values: Sequence[float]) -> Cell:
    """What the scores of several seeds come to."""
    if not values:
        return Cell(None, None, None, None, None)
    many = len(values) > 1
    std = float(np.std(values, ddof=1)) if many else None
    return Cell(float(np.mean(values)), std, min(values), max(values), interval(values) if many else None)


def interval(values: Sequence[float], minus: Sequence[float] | None = None) -> list[float]:
    """95 % interval of the mean by Student's t, or of the difference of two means by Welch's; two values each at least.

    For normal values it holds what it says from two values on. Resampling a few seeds (a percentile bootstrap) does
    not: with three values it covers the mean 76 times in 100, with five 84 times.
    """
    sides = [np.asarray(side, dtype=float) for side in ([values] if minus is None else [values, minus])]
    centre = float(sides[0].mean() - (sides[1].mean() if minus is not None else 0.0))
    variances = [float(side.var(ddof=1)) / len(side) for side in sides]  # of the means
    if not (total := sum(variances)):
        return [centre, centre]
    freedom = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(variances, sides, strict=True))
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, 0.975)) * math.sqrt(total)
    return [centre - reach, centre + reach]


@dataclass(frozen=True)
class Randomisation:
    """Outcome of a paired test: the difference of F1, and its two-sided p (never 0: the observed division counts)."""

    difference: float
    p: float
    shuffles: int
    units: int


def approximate_randomisation(
    a: np.ndarray,
    b: np.ndarray,
    units: Sequence[int] | np.ndarray | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> Randomisation:
    """Paired test of two systems' micro F1 over the same sentences (Noreen 1989; Yeh 2000).

    a, b: (sentences, 3), the number of gold, predicted and correct spans. units: the document of each sentence, swapped
    as a whole; None: sentences are swapped one by one. The difference is a - b. Raises ValueError if shapes differ.
    """
    return randomisation_tests([(a, b)], units, shuffles, seed)[0]


def randomisation_tests(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    units: Sequence[int] | np.ndarray | None = None,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> list[Randomisation]:
    """`approximate_randomisation` of several pairs over one text, with the same shuffles: drawing them costs most."""
    if not pairs:
        return []
    for a, b in pairs:
        if a.shape != b.shape:
            raise ValueError(f"counts of {len(a)} and of {len(b)} sentences cannot be paired")
    first, second = (np.stack([pair[side] for pair in pairs], 1).astype(np.float32) for side in (0, 1))
    if units is not None:
        _, place = np.unique(np.asarray(units), return_inverse=True)
        first, second = (_sums_by(place, side) for side in (first, second))
    num_units = len(first)
    change = (second - first).reshape(num_units, -1)  # (units, pairs * 3)
    first_total, second_total = first.sum(0, dtype=float), second.sum(0, dtype=float)  # (pairs, 3)
    observed = f1_of(first_total) - f1_of(second_total)
    draw = np.random.default_rng(seed)
    as_extreme = np.zeros(len(pairs))
    for done in range(0, shuffles, CHUNK):
        swapped = draw.integers(2, size=(min(CHUNK, shuffles - done), num_units), dtype=np.uint8)
        moved = (swapped.astype(np.float32) @ change).astype(float)  # exact: counts stay below 2^24
        moved = moved.reshape(-1, len(pairs), 3)
        differences = f1_of(first_total + moved) - f1_of(second_total - moved)
        as_extreme += np.sum(np.abs(differences) >= np.abs(observed) - 1e-12, axis=0)
    return [
        Randomisation(float(d), float((n + 1) / (shuffles + 1)), shuffles, num_units)
        for d, n in zip(observed, as_extreme, strict=True)
    ]


def units_of(
    documents: Sequence[int] | np.ndarray | None, others: Sequence[int] | np.ndarray | None
) -> np.ndarray | None:
    """What a paired test of two systems takes as its units: documents, where both sides know the same and there are
    enough of them; else None, which is sentences."""
    if documents is None or others is None or not np.array_equal(documents, others):
        return None
    return np.asarray(documents) if len(np.unique(documents)) >= FEWEST_DOCUMENTS else None


def influence(counts: np.ndarray, units: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
    """How much each unit of a text moves micro F1, to first order (delta method): (U,), which sum to 0.

    counts: (sentences, 3), the number of gold, predicted and correct spans. units: the document of each sentence; None:
    sentences are the units. Over texts of this kind and length, F1 has the variance sum(influence^2) * U / (U - 1), and
    the difference of two systems on one text that of the difference of their influences.
    """
    gold, predicted, correct = np.asarray(counts, dtype=float).T
    moves = (2 * correct - float(f1_of(counts.sum(0))) * (gold + predicted)) / max(1.0, float(np.sum(gold + predicted)))
    if units is None:
        return moves
    _, place = np.unique(np.asarray(units), return_inverse=True)
    return np.bincount(place, moves)


def _sums_by(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums of rows that have one place."""
    sums = np.zeros((int(place.max()) + 1, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, place, values)
    return sums
