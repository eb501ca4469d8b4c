"""Combines layers to one vector per word: (words, L + 1, H) to (words, H').

W words, L layers chosen, H hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from probe.probes.normalization import Normalization
from probe.probes.selection import Selection
from probe.vectors.store import FeatureStore, Shard


def bytes_needed(store: FeatureStore, selection: Selection) -> int:
    """Returns the bytes of a selection's features of all splits, as `read_selection` returns them."""
    words = sum(shards[-1].last for shards in store.shards.values())
    shape, dtype = _shape(store, selection)
    return words * math.prod(shape) * dtype.itemsize


def read_selection(
    store: FeatureStore,
    split: str,
    selection: Selection,
    device: str | torch.device = "cpu",
    normalization: Normalization | None = None,
) -> torch.Tensor:
    """Returns the features of a split for one selection, on the device. Reads only its layers, one shard at a time.

    concat: (W, L * H) and mix: (W, L, H), both in the stored dtype; sum and mean: (W, H) in float32.
    """
    shape, dtype = _shape(store, selection)
    features = torch.empty((store.shards[split][-1].last, *shape), dtype=dtype, device=device)
    for shard, layers in store.read(split, selection.indices):
        features[shard.first : shard.last] = combine_stored(layers, selection, normalization)
    return features


def combine(states: torch.Tensor, selection: Selection) -> torch.Tensor:
    """Combines vectors in memory as `read_selection` does: states (L + 1, N, H) of N words or pieces to (N, H').

    A mix has its initial, equal weights here; other weights are learned only in training.
    """
    features = combine_stored([states[k].cpu() for k in selection.indices], selection)
    if selection.combine == "mix":
        return mix(features, torch.zeros(len(selection.indices)), torch.ones(()))
    return features


def combine_stored(
    layers: Sequence[torch.Tensor], selection: Selection, normalization: Normalization | None = None
) -> torch.Tensor:
    """Combines a selection's layers in memory as `read_selection` does. layers: each (W, H) in the dtype of a store."""
    dtype = layers[0].dtype
    if normalization is not None:
        layers = normalization(layers)
    if selection.combine == "concat":
        return torch.cat(list(layers), 1).to(dtype)
    if selection.combine == "mix":
        return torch.stack(list(layers), 1).to(dtype)
    total = torch.zeros(layers[0].shape, dtype=torch.float32)
    for layer in layers:
        total += layer
    return total / len(layers) if selection.combine == "mean" else total


class Streamed:
    """Represents the result of `read_selection` without loading it: indexing combines rows of memory-mapped shards.

    Each shard's checksums are compared once: in the constructor or, if lazy, when one of its rows is first read. Raises
    DamagedShard.
    """

    def __init__(
        self,
        store: FeatureStore,
        split: str,
        selection: Selection,
        lazy: bool = False,
        normalization: Normalization | None = None,
    ) -> None:
        self.device = torch.device("cpu")
        self._selection, self.normalization = selection, normalization
        self._store, self._shards = store, store.shards[split]
        self._shape, self.dtype = _shape(store, selection)
        self._bounds = torch.tensor([0] + [shard.last for shard in self._shards])
        self._mapped: dict[int, list[torch.Tensor]] = {}
        if not lazy:
            for shard in self._shards:
                self._layers(shard)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self._shape

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the rows at these positions, which may have any shape: (..., row)."""
        wanted, where = rows.unique(return_inverse=True)  # sorted, so each shard has consecutive ones
        ends = torch.searchsorted(wanted, self._bounds).tolist()
        combined = torch.empty((len(wanted), *self._shape), dtype=self.dtype)
        for shard, begin, end in zip(self._shards, ends, ends[1:], strict=False):
            if begin < end:
                combined[begin:end] = self._combined(shard, wanted[begin:end] - shard.first)
        return combined[where]

    def between(self, first: int, last: int) -> torch.Tensor:
        """Returns rows first..last, without last: (last - first, row)."""
        combined = torch.empty((last - first, *self._shape), dtype=self.dtype)
        for shard in self._shards:
            begin, end = max(first, shard.first), min(last, shard.last)
            if begin < end:
                inside = slice(begin - shard.first, end - shard.first)
                combined[begin - first : end - first] = self._combined(shard, inside)
        return combined

    def close(self) -> None:
        """Unmaps the shards. They are mapped and checked again at the next access."""
        self._mapped.clear()

    def _combined(self, shard: Shard, rows: torch.Tensor | slice) -> torch.Tensor:
        layers = [layer[rows] for layer in self._layers(shard)]  # rows: counted from the shard's first
        return combine_stored(layers, self._selection, self.normalization)

    def _layers(self, shard: Shard) -> list[torch.Tensor]:
        if shard.number not in self._mapped:
            self._mapped[shard.number] = self._store.read_shard(shard, self._selection.indices)
        return self._mapped[shard.number]


def _shape(store: FeatureStore, selection: Selection) -> tuple[tuple[int, ...], torch.dtype]:
    """Returns shape and dtype of one word's combined features: layers that are not added keep the stored dtype."""
    shape = (len(selection.indices), store.hidden_size) if selection.combine == "mix" else (selection.width,)
    return shape, torch.float32 if selection.combine in ("sum", "mean") else getattr(torch, store.dtype)


def mix(layers: torch.Tensor, weights: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns the learned weighted sum of layers (ELMo's scalar mix; the paper's "Weighted Sum" rows).

    layers: (..., L, H), in the order asked for. weights: (L,), before the softmax. scale: (). Returns (..., H). Raises
    ValueError if there is not one weight per layer.
    """
    if weights.shape != layers.shape[-2:-1]:
        raise ValueError(f"{tuple(weights.shape)} weights for {layers.shape[-2]} layers")
    return scale * (weights.softmax(0)[:, None] * layers).sum(-2)
