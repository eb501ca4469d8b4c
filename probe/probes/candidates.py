"""Lists what a screen tries first: every single layer and the presets (no torch).

Without learned weights, the sum, the mean and the mix of the same scaled layers are equivalent, and so are
concatenations in any order: equivalent choices are one candidate, which also carries the names of the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from probe.config import COMBINES, LayersConfig
from probe.probes.selection import Selection, encoder_flops, presets_of, select
from probe.system.grouping import group_by


@dataclass(frozen=True)
class Candidate:
    """Describes a choice of layers, and once it is screened what its quick probes came to.

    layers: with absolute indices and a name. width: values per word. num_blocks: how many encoder blocks it needs.
    alike: presets that are equivalent for a quick probe. searched: whether it was chosen for the scores of its layers.
    encoder: its name. scores: the headline score on dev of each seed. behind: how far it lies
    behind the truly best choice, an interval [low, high], high at most 0. Fractions.
    """

    layers: LayersConfig
    width: int
    num_blocks: int
    alike: list[str] = field(default_factory=list)
    searched: bool = False
    encoder: str | None = None
    scores: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.layers.name

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the operations of the encoder per piece, and the width of the vectors."""
        layers = len(self.layers.indices) if self.layers.combine == "concat" else 1
        return encoder_flops(self.width // layers, self.num_blocks), self.width

    @property
    def input(self) -> tuple[str, tuple[int, ...]]:
        """Returns what a quick probe reads of it."""
        return input_of(self.layers.combine, self.layers.indices)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float:
        return float(np.std(self.scores, ddof=1))


def input_of(combine: str, indices: Iterable[int]) -> tuple[str, tuple[int, ...]]:
    """Returns what a quick probe reads of a choice of layers; equivalent choices give the same."""
    chosen = tuple(sorted(indices))
    return "concat" if combine == "concat" or len(chosen) == 1 else "mean", chosen


def candidate(chosen: Selection, alike: Iterable[str] = ()) -> Candidate:
    layers = LayersConfig(list(chosen.indices), chosen.combine, chosen.name)
    return Candidate(layers, chosen.width, max(chosen.indices), list(alike))


def fixed(num_layers: int, hidden_size: int) -> list[Candidate]:
    """Returns the candidates that do not depend on scores: the presets and every single layer."""
    single = [select(LayersConfig([k], "concat"), num_layers, hidden_size) for k in range(num_layers + 1)]
    chosen = [*presets_of(num_layers, hidden_size), *single]
    candidates = []
    for same in group_by(chosen, lambda one: input_of(one.combine, one.indices)).values():
        # Mean before sum: a mean trains at the learning rates of single layers, a sum of many needs a lower one.
        same.sort(key=lambda one: COMBINES.index(one.combine))
        presets = [one for one in same if one not in single]
        first, *others = presets or same
        candidates.append(candidate(first, [one.name for one in others]))
    return candidates
