"""Lists what a screen ranks: every single layer, the presets, concatenations, means of neighbouring layers (no torch).

To a linear readout a sum, a mean and a mix with equal weights are equivalent, and so are concatenations in any order:
equivalent choices are one candidate, which also carries the names of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from probe.config import LayersConfig
from probe.probes.selection import Selection, presets_of, select
from probe.system.grouping import group_by

EVERY = 100  # most concatenations of one number of layers to try all; beyond, the best of one layer less are extended
BEAM_WIDTH = 8  # how many of those are extended


@dataclass(frozen=True)
class Candidate:
    """Describes a choice of layers.

    layers: with absolute indices and a name. width: values per word. num_blocks: how many encoder blocks it needs.
    alike: names of presets that are equivalent to it for a linear readout.
    """

    layers: LayersConfig
    width: int
    num_blocks: int
    alike: list[str] = field(default_factory=list)

    @property
    def readout(self) -> tuple[str, tuple[int, ...]]:
        """Returns what a linear readout sees of it."""
        return readout_of(self.layers.combine, self.layers.indices)

    @property
    def label(self) -> str:
        """Returns its name and those of its equivalent presets."""
        return " = ".join([self.layers.name, *self.alike])


def readout_of(combine: str, indices: Iterable[int]) -> tuple[str, tuple[int, ...]]:
    """Returns what a linear readout sees of a choice of layers; equivalent choices give the same."""
    chosen = tuple(sorted(indices))
    return "concat" if combine == "concat" or len(chosen) == 1 else "mean", chosen


def _candidate(chosen: Selection, alike: Iterable[str] = ()) -> Candidate:
    layers = LayersConfig(list(chosen.indices), chosen.combine, chosen.name)
    return Candidate(layers, chosen.width, max(chosen.indices), list(alike))


def _by_hand(indices: Sequence[int], combine: str, num_layers: int, hidden_size: int) -> Candidate:
    return _candidate(select(LayersConfig(list(indices), combine), num_layers, hidden_size))


def fixed(num_layers: int, hidden_size: int) -> list[Candidate]:
    """Returns the candidates that do not depend on scores: single layers, presets, means of neighbouring layers."""
    presets = presets_of(num_layers, hidden_size)
    alike = group_by(presets, lambda preset: readout_of(preset.combine, preset.indices))
    candidates = {}
    for readout, same in alike.items():
        # Mean before sum: a mean trains at the learning rates of single layers, a sum of many needs a lower one.
        same.sort(key=lambda preset: ("concat", "mean", "mix", "sum").index(preset.combine))
        candidates[readout] = _candidate(same[0], [preset.name for preset in same[1:]])
    neighbours = [range(a, b) for a in range(num_layers + 1) for b in range(a + 1, num_layers + 2)]
    for indices in sorted(neighbours, key=len):
        combine = "concat" if len(indices) == 1 else "mean"
        candidates.setdefault(readout_of(combine, indices), _by_hand(indices, combine, num_layers, hidden_size))
    return list(candidates.values())


def concatenations(
    num_layers: int, hidden_size: int, max_layers: int, best: Callable[[list[Candidate]], list[Candidate]]
) -> Iterator[tuple[int, list[Candidate], bool]]:
    """Yields the concatenations of 2, 3, ... layers: number of layers, candidates, and whether they are complete.

    best: sorts candidates, the best first; called only if the next number of layers has too many.
    """
    found = [_by_hand([k], "concat", num_layers, hidden_size) for k in range(num_layers + 1)]
    for size in range(2, min(max_layers, num_layers + 1) + 1):
        is_all = math.comb(num_layers + 1, size) <= EVERY
        if is_all:
            chosen = set(itertools.combinations(range(num_layers + 1), size))
        else:
            tops = [set(candidate.layers.indices) for candidate in best(found)[:BEAM_WIDTH]]
            chosen = {tuple(sorted(top | {k})) for top in tops for k in range(num_layers + 1) if k not in top}
        found = [_by_hand(indices, "concat", num_layers, hidden_size) for indices in sorted(chosen)]
        yield size, found, is_all
