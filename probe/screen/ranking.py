"""Ranks scored candidates, and says which of them are tied with the first (no torch).

The scores of a candidate are computed several times, each time without a different part of the sentences. Their spread
is a jackknife's (Tukey 1958): of g scores, each without one part, the standard error is the square root of (g - 1) / g
times the sum of squared deviations.

A candidate is *tied* unless it lies significantly behind the first. The first was chosen among N for its score, so the
critical value is that of the largest of N such differences, familywise: of screens whose candidates are all equally
good, at most 5 % call any of them not tied. A difference's variance has g - 1 degrees of freedom alone; the mean over
all candidates' differences to the first is averaged with it (a moderated t statistic, as in Smyth 2004).

N candidates, g samples, D simulated screens.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from probe.config import LayersConfig

TIES = 2  # rises when `rank` decides `tied` otherwise than before on the same scores; screen.json has it
LEVEL = 0.05  # of screens without any difference, how many may call a candidate not tied
SIMULATED = 2000  # screens, of each structure
AT_ONCE = 2_000_000  # simulated scores that are held at once


@dataclass(frozen=True)
class Scored:
    """Holds a candidate and its scores on dev, one per sample.

    f1: the task's headline score, fractions. error: squared error per word. alike: presets that are equivalent for a
    linear readout. num_blocks: how many encoder blocks it needs. tied: whether it is not significantly behind the
    first.
    """

    layers: LayersConfig
    width: int
    num_blocks: int
    f1: list[float]
    error: list[float]
    alike: list[str] = field(default_factory=list)
    tied: bool = False

    @property
    def name(self) -> str:
        return self.layers.name

    @property
    def dev_f1(self) -> float:
        return statistics.fmean(self.f1)

    @property
    def spread(self) -> float:
        """Returns the standard error of dev_f1."""
        return jackknife(self.f1)

    @property
    def dev_error(self) -> float:
        return statistics.fmean(self.error)

    @property
    def error_spread(self) -> float:
        return jackknife(self.error)


def jackknife(values: Sequence[float]) -> float:
    """Returns the standard error of a score, from its values without each part of the sentences."""
    mean, parts = statistics.fmean(values), len(values)
    return math.sqrt((parts - 1) / parts * sum((value - mean) ** 2 for value in values))


def rank(candidates: Sequence[Scored]) -> list[Scored]:
    """Sorts candidates by dev F1, then by squared error, and fills in `tied`."""
    return [ranked for _, ranked in rank_encoders({"": candidates})]


def rank_encoders(candidates: Mapping[str, Sequence[Scored]]) -> list[tuple[str, Scored]]:
    """Ranks the candidates of several encoders as those of one, and fills in `tied`: encoders with their candidates.

    candidates: by encoder. Their scores must be of the same sentences, in the same parts.
    """
    every = [(encoder, one) for encoder, some in candidates.items() for one in some]
    every.sort(key=lambda pair: (-pair[1].dev_f1, pair[1].dev_error, pair[1].width, pair[1].layers.name))
    if len(every) < 2:
        return [(encoder, replace(one, tied=True)) for encoder, one in every]
    scores = np.array([one.f1 for _, one in every])
    behind = _behind(scores[None])[0] <= critical(*scores.shape)
    return [(encoder, replace(one, tied=bool(tied))) for (encoder, one), tied in zip(every, behind, strict=True)]


def _behind(scores: np.ndarray) -> np.ndarray:
    """Returns how far each candidate lies behind the first, in moderated standard errors: (D, N, g) to (D, N)."""
    samples = scores.shape[2]
    first = scores.mean(2).argmax(1)
    differences = np.take_along_axis(scores, first[:, None, None], 1) - scores
    mean = differences.mean(2)
    own = (samples - 1) / samples * ((differences - mean[..., None]) ** 2).sum(2)
    error = np.sqrt((own + own.sum(1, keepdims=True) / (own.shape[1] - 1)) / 2)
    apart = np.where(mean > 0, np.inf, 0.0)  # where nothing varies, any difference is one
    return np.divide(mean, error, out=apart, where=error > 0)


@functools.lru_cache
def critical(candidates: int, samples: int) -> float:
    """Returns the value that the largest `_behind` exceeds in LEVEL of screens without any difference.

    How the candidates' errors correlate is not known, so it is the largest such value over STRUCTURES, each
    simulated with normal scores and a fixed seed. Errors that all candidates share cancel in differences.
    """
    draw = np.random.default_rng(0)
    at_once = max(1, AT_ONCE // (candidates * samples))
    found = []
    for structure in STRUCTURES:
        largest: list[float] = []
        while len(largest) < SIMULATED:
            parts = structure(draw, min(at_once, SIMULATED - len(largest)), candidates, samples)
            without = (parts.sum(2, keepdims=True) - parts) / (samples - 1)  # scores, each without one part
            largest += _behind(without).max(1).tolist()
        found.append(float(np.quantile(largest, 1 - LEVEL)))
    return max(found)


Structure = Callable[[np.random.Generator, int, int, int], np.ndarray]  # (D, N, g): what each part adds to the scores


def _independent(draw: np.random.Generator, screens: int, candidates: int, samples: int) -> np.ndarray:
    """Draws independent errors for each candidate."""
    return draw.standard_normal((screens, candidates, samples))


def _common(factors: int) -> Structure:
    """Draws errors from a few common ones, as combinations of the same layers may have."""

    def parts(draw: np.random.Generator, screens: int, candidates: int, samples: int) -> np.ndarray:
        loadings = draw.standard_normal((screens, candidates, factors))
        return loadings @ draw.standard_normal((screens, factors, samples))

    return parts


def _unequal(share: float, times: float) -> Structure:
    """Draws errors of which a share of the candidates (at least one) has so many times the spread of the others."""

    def parts(draw: np.random.Generator, screens: int, candidates: int, samples: int) -> np.ndarray:
        spread = np.where(np.arange(candidates) < max(1, share * candidates), times, 1.0)
        return spread[:, None] * draw.standard_normal((screens, candidates, samples))

    return parts


STRUCTURES: tuple[Structure, ...] = (_independent, _common(2), _common(5), _unequal(0.1, 3), _unequal(0.3, 2))


def selection_bias(ranked: Sequence[Scored]) -> tuple[float, float]:
    """Returns by how much the first's dev F1 is too high because it was chosen for it: an estimate and an upper bound.

    Errors with the spread of the samples are drawn with a fixed seed. They are added to the actual scores (which
    already contain errors, so the estimate is rather low), and to equal scores.
    """
    scores = np.array([one.f1 for one in ranked])
    samples = scores.shape[1]
    deviations = math.sqrt((samples - 1) / samples) * (scores - scores.mean(1, keepdims=True))
    errors = np.random.default_rng(0).standard_normal((SIMULATED, samples)) @ deviations.T  # (D, N)
    chosen = (scores.mean(1) + errors).argmax(1)
    return float(errors[np.arange(SIMULATED), chosen].mean()), float(errors.max(1).mean())


def front(points: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Returns the Pareto front of points (name, cost, score): than which no other is both as cheap and better."""
    found: list[tuple[str, float, float]] = []
    for point in sorted(points, key=lambda point: (point[1], -point[2])):
        if not found or point[2] > found[-1][2]:
            found.append(point)
    return found
