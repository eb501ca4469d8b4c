"""Means, spreads and tests, in plain numpy: `probe table` must answer in a second, and importing scipy.stats takes one.

Checked against scipy and closed forms in the tests. All random draws are seeded.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

SHUFFLES = 10_000
MOST_DIVISIONS = 100_000  # of seeds into two rows: 10 against 10 are 184,756
CHUNK = 1_000  # shuffles at once: bounds the memory
ALPHA = 0.05
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
    reach = _t_quantile(round(freedom, 6)) * math.sqrt(total)
    return [centre - reach, centre + reach]


@functools.cache
def _t_quantile(freedom: float) -> float:
    """What Student's t stays within 95 times in 100, either side of 0; freedom: 1 or more.

    With t = sqrt(freedom) * tan(angle) the density is cos(angle) ** (freedom - 1), summed here over a fine grid.
    Rounded: the last digits of cosines and powers are each CPU's own, and committed tables are compared to the bit.
    """
    angles = np.linspace(0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return round(math.sqrt(freedom) * math.tan(float(np.interp(0.95 * mass[-1], mass, angles))), 9)


def permutation_test(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p of the difference of two means: twice the one-sided share of divisions at least as extreme.

    Exact, unpaired: seeds of two rows have nothing in common but their number. The lowest p is 2 / (n choose k): 0.1
    for 3 against 3, 0.0079 for 5 against 5. Of more than MOST_DIVISIONS divisions that many are drawn at random. None
    if either side has a single value.
    """
    if min(len(a), len(b)) < 2:
        return None
    values = np.asarray([*a, *b])
    if math.comb(len(values), len(a)) <= MOST_DIVISIONS:
        chosen = np.array(list(itertools.combinations(range(len(values)), len(a))))
    else:
        shuffled = np.random.default_rng(0).permuted(np.tile(np.arange(len(values)), (MOST_DIVISIONS, 1)), axis=1)
        chosen = np.concatenate([np.arange(len(a))[None], shuffled[:, : len(a)]])
    first = values[chosen].sum(1)
    differences = first / len(a) - (values.sum() - first) / len(b)
    observed = differences[0]  # the first division is the one seen
    return float(min(1.0, 2 * min(np.mean(differences >= observed - 1e-12), np.mean(differences <= observed + 1e-12))))


def lowest_p(n_a: int, n_b: int) -> float:
    """The lowest p that `permutation_test` can give for so many values; 1 where either side has a single one."""
    return min(1.0, 2 / math.comb(n_a + n_b, n_a)) if min(n_a, n_b) > 1 else 1.0


def sample_size(difference: float, spread: float, alpha: float, power: float, most: int) -> int:
    """Values a side with which `permutation_test` detects a difference of means (p < alpha) with this power.

    spread: standard deviation within a side. Sample size of a t-test by the normal approximation with Guenther's
    correction (1981), at the level that the exact test attains with so few values. `most` + 1 if it exceeds `most`.
    """
    normal = NormalDist()
    for n in range(2, most + 1):
        divisions = math.comb(2 * n, n)
        level = 2 * (math.ceil(alpha / 2 * divisions) - 1) / divisions  # the largest p below alpha that it can give
        if level <= 0:
            continue
        quantile = normal.inv_cdf(1 - level / 2)
        distance = (quantile + normal.inv_cdf(power)) * spread
        if (n - quantile**2 / 4) * difference**2 >= 2 * distance**2 and difference > 0:
            return n
    return most + 1


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
    observed = _f1(first_total) - _f1(second_total)
    draw = np.random.default_rng(seed)
    as_extreme = np.zeros(len(pairs))
    for done in range(0, shuffles, CHUNK):
        swapped = draw.integers(2, size=(min(CHUNK, shuffles - done), num_units), dtype=np.uint8)
        moved = (swapped.astype(np.float32) @ change).astype(float)  # exact: counts stay below 2^24
        moved = moved.reshape(-1, len(pairs), 3)
        differences = _f1(first_total + moved) - _f1(second_total - moved)
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


def paired_variance(a: np.ndarray, b: np.ndarray, units: Sequence[int] | np.ndarray | None = None) -> float:
    """Sampling variance, over texts of this kind and length, of the difference of two micro F1 (delta method).

    a, b: (sentences, 3), the number of gold, predicted and correct spans of the same sentences. units: the document of
    each sentence, the sampling unit; None: sentences are the units. Raises ValueError if shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(f"counts of {len(a)} and of {len(b)} sentences cannot be paired")
    pull = _pull(a) - _pull(b)
    if units is not None:
        _, place = np.unique(np.asarray(units), return_inverse=True)
        pull = np.bincount(place, pull)
    return float(np.sum(pull**2) * len(pull) / max(1, len(pull) - 1))


def _pull(counts: np.ndarray) -> np.ndarray:
    """Each sentence's influence on micro F1, to first order; the sum is 0."""
    gold, predicted, correct = np.asarray(counts, dtype=float).T
    return (2 * correct - float(_f1(counts.sum(0))) * (gold + predicted)) / max(1.0, float(np.sum(gold + predicted)))


def _sums_by(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums of rows that have one place."""
    sums = np.zeros((int(place.max()) + 1, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, place, values)
    return sums


def _f1(totals: np.ndarray) -> np.ndarray:
    """F1 from sums of gold, predicted and correct, along the last axis."""
    gold, predicted, correct = totals[..., 0], totals[..., 1], totals[..., 2]
    return 2 * correct / np.maximum(gold + predicted, 1)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values corrected for multiple tests (Holm 1979); None stays None and is not counted as a test."""
    given = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(given):
        largest = max(largest, min(1.0, p * (len(given) - rank)))
        corrected[i] = largest
    return corrected
