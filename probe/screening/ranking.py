"""What a screen gives: candidates with their scores, ranked, and which of them are tied with the first (no torch).

The scores of a candidate are computed several times, each time without another part of the sentences, so their spread
is a jackknife's (Tukey 1958): of g scores, each without one part, the standard error is the square root of (g - 1) / g
times the sum of squared deviations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from probe.config import LayersConfig

TIES = 1  # rises when `is_tied` decides otherwise than before on the same scores; screen.json has it


@dataclass(frozen=True)
class Scored:
    """A candidate and its scores on dev, one for each sample. f1: the task's headline, fractions. error: squared error
    a word. alike: presets that no linear readout tells from it. blocks: of the encoder, that must be run for it.
    tied: whether the spread does not tell it from the first."""

    layers: LayersConfig
    width: int
    blocks: int
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
        """The standard error of dev_f1."""
        return jackknife(self.f1)

    @property
    def dev_error(self) -> float:
        return statistics.fmean(self.error)

    @property
    def error_spread(self) -> float:
        return jackknife(self.error)


def jackknife(values: Sequence[float]) -> float:
    """The standard error of a score, from its values each without another part of the sentences."""
    mean, parts = statistics.fmean(values), len(values)
    return math.sqrt((parts - 1) / parts * sum((value - mean) ** 2 for value in values))


def rank(candidates: Sequence[Scored]) -> list[Scored]:
    """Best first, by dev F1, then by squared error; with `tied` filled in."""
    ranked = sorted(candidates, key=lambda one: (-one.dev_f1, one.dev_error, one.width, one.layers.name))
    return [replace(one, tied=is_tied(one, ranked[0])) for one in ranked]


def is_tied(one: Scored, first: Scored) -> bool:
    """Whether a paired jackknife t-test at 95 % finds no difference to the first (not corrected for multiple tests)."""
    from scipy.special import stdtrit

    differences = [best - own for best, own in zip(first.f1, one.f1, strict=True)]
    quantile = float(stdtrit(len(differences) - 1, 0.975))
    return abs(statistics.fmean(differences)) <= quantile * jackknife(differences)


def front(ranked: Sequence[Scored]) -> list[Scored]:
    """The Pareto front of width and dev F1, the narrowest first."""
    found: list[Scored] = []
    for one in sorted(ranked, key=lambda one: (one.width, -one.dev_f1)):
        if not found or one.dev_f1 > found[-1].dev_f1:
            found.append(one)
    return found
