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
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probe.probes.candidates import Candidate

LEVEL = 0.05  # of screens without any difference, how many may call a candidate not tied
SIMULATED = 2000  # screens, of each structure
AT_ONCE = 2_000_000  # simulated scores that are held at once
# What candidates' errors may have in common: errors that are combined from so many common ones (0: each has its own);
# a share of the candidates (at least one) has so many times the spread of the others.
STRUCTURES = ((0, 0.0, 1.0), (2, 0.0, 1.0), (5, 0.0, 1.0), (0, 0.1, 3.0), (0, 0.3, 2.0))


def jackknife(values: Sequence[float]) -> float:
    """Returns the standard error of a score, from its values without each part of the sentences."""
    mean, parts = statistics.fmean(values), len(values)
    return math.sqrt((parts - 1) / parts * sum((value - mean) ** 2 for value in values))


def rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sorts candidates by dev F1, the cheapest of equal ones first, and fills in `tied`.

    Those of several encoders are ranked as those of one. All scores must be of the same sentences, in the same parts.
    """
    every = sorted(candidates, key=lambda one: (-one.dev_f1, one.cost, statistics.fmean(one.error), one.name))
    scores = np.array([one.f1 for one in every])
    tied = _behind(scores[None])[0] <= critical(*scores.shape)
    return [replace(one, tied=bool(is_tied)) for one, is_tied in zip(every, tied, strict=True)]


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
            screens = min(at_once, SIMULATED - len(largest))
            parts = _parts(draw, (screens, candidates, samples), *structure)
            without = (parts.sum(2, keepdims=True) - parts) / (samples - 1)  # scores, each without one part
            largest += _behind(without).max(1).tolist()
        found.append(float(np.quantile(largest, 1 - LEVEL)))
    return max(found)


def _parts(
    draw: np.random.Generator, shape: tuple[int, int, int], factors: int, share: float, times: float
) -> np.ndarray:
    """Draws what each part of the sentences adds to the scores, by one of STRUCTURES: (D, N, g)."""
    screens, candidates, samples = shape
    if factors:
        loadings = draw.standard_normal((screens, candidates, factors))
        return loadings @ draw.standard_normal((screens, factors, samples))
    spread = np.where(np.arange(candidates) < max(1, share * candidates), times, 1.0)
    return spread[:, None] * draw.standard_normal(shape)


def selection_bias(ranked: Sequence[Candidate]) -> float:
    """Returns by how much the first's dev F1 is at most too high because it was chosen for it.

    So much it is on average if all choices are equally good. Errors with the spread of the samples are drawn with a
    fixed seed.
    """
    scores = np.array([one.f1 for one in ranked])
    samples = scores.shape[1]
    deviations = math.sqrt((samples - 1) / samples) * (scores - scores.mean(1, keepdims=True))
    errors = np.random.default_rng(0).standard_normal((SIMULATED, samples)) @ deviations.T  # (D, N)
    return float(errors.max(1).mean())
