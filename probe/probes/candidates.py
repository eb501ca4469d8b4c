"""Lists what a screen ranks: every single layer, the presets, concatenations, means of neighbouring layers (no torch).

To a linear readout a sum, a mean and a mix with equal weights are equivalent, and so are concatenations in any order:
equivalent choices are one candidate, which also carries the names of the others.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from probe.config import LayersConfig
from probe.probes.selection import Selection, encoder_flops, presets_of, select
from probe.system.grouping import group_by


@dataclass(frozen=True)
class Candidate:
    """Describes a choice of layers, and once it is screened its scores on dev, one per sample.

    layers: with absolute indices and a name. width: values per word. num_blocks: how many encoder blocks it needs. f1:
    the task's headline score, fractions. error: squared error per word. alike: presets that are equivalent for a linear
    readout. tied: whether it is not significantly behind the first. encoder: its name where there are several.
    """

    layers: LayersConfig
    width: int
    num_blocks: int
    f1: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)
    alike: list[str] = field(default_factory=list)
    tied: bool = False
    encoder: str | None = None

    @property
    def name(self) -> str:
        return self.layers.name

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the operations of the encoder per piece, and the width of the vectors."""
        layers = len(self.layers.indices) if self.layers.combine == "concat" else 1
        return encoder_flops(self.width // layers, self.num_blocks), self.width

    @property
    def readout(self) -> tuple[str, tuple[int, ...]]:
        """Returns what a linear readout sees of it."""
        return readout_of(self.layers.combine, self.layers.indices)

    @property
    def dev_f1(self) -> float:
        return statistics.fmean(self.f1)


def readout_of(combine: str, indices: Iterable[int]) -> tuple[str, tuple[int, ...]]:
    """Returns what a linear readout sees of a choice of layers; equivalent choices give the same."""
    chosen = tuple(sorted(indices))
    return "concat" if combine == "concat" or len(chosen) == 1 else "mean", chosen


def _candidate(chosen: Selection, alike: Iterable[str] = ()) -> Candidate:
    layers = LayersConfig(list(chosen.indices), chosen.combine, chosen.name)
    return Candidate(layers, chosen.width, max(chosen.indices), alike=list(alike))


def fixed(num_layers: int, hidden_size: int) -> list[Candidate]:
    """Returns the candidates that do not depend on scores: single layers, presets, means of neighbouring layers."""
    presets = group_by(presets_of(num_layers, hidden_size), lambda preset: readout_of(preset.combine, preset.indices))
    candidates = {}
    for readout, same in presets.items():
        # Mean before sum: a mean trains at the learning rates of single layers, a sum of many needs a lower one.
        same.sort(key=lambda preset: ("concat", "mean", "mix", "sum").index(preset.combine))
        candidates[readout] = _candidate(same[0], [preset.name for preset in same[1:]])
    neighbours = [list(range(a, b)) for a in range(num_layers + 1) for b in range(a + 1, num_layers + 2)]
    for indices in sorted(neighbours, key=len):
        chosen = select(LayersConfig(indices, "mean"), num_layers, hidden_size)
        candidates.setdefault(readout_of(chosen.combine, indices), _candidate(chosen))
    return list(candidates.values())


def concatenations(
    size: int, num_layers: int, hidden_size: int, extended: Iterable[Sequence[int]] = ()
) -> list[Candidate]:
    """Returns the concatenations of so many layers. extended: choices of one layer less; only these are extended."""
    chosen = {tuple(sorted({*indices, k})) for indices in extended for k in range(num_layers + 1) if k not in indices}
    every = sorted(chosen) or itertools.combinations(range(num_layers + 1), size)
    return [_candidate(select(LayersConfig(list(indices), "concat"), num_layers, hidden_size)) for indices in every]
