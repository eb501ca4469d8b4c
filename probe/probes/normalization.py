"""Gives a probe's input the same scale for any choice of layers (`layers.normalize`), so that rows compare fairly.

Layers differ in scale, and a sum of four layers has about four times the deviation of their mean. A probe trains at one
learning rate and starts from weights of one size. So without normalization a table compares scales as well as layers.

All statistics are train's, over all of its words, even if a probe is trained on a part of train: they need no labels.
They are accumulated in float64, shard by shard, so that memory does not grow with the corpus.

W words, L layers chosen, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from probe.probes.selection import Selection
from probe.vectors.store import FeatureStore

PREFIX = "normalize."  # of its tensors in a file of weights
# See `input_factor`. No key holds it: after a change, raise identity.VERSION or delete all older normalized records.
PRE_ACTIVATION = 1.2
MEASURED_SHARDS = 4  # some 32,000 words


@dataclass(frozen=True)
class Normalization:
    """Describes what is done to each layer before layers are combined: (x - shift) * gain, in float32.

    shift: (L, H). gain: (L, H) or (L, 1).
    """

    shift: Tensor
    gain: Tensor

    def __call__(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Returns the layers normalized, in float32. layers: the selection's in order, each (W, H) in any dtype."""
        of_each = zip(layers, self.shift, self.gain, strict=True)
        return [layer.float().sub(shift).mul_(gain) for layer, shift, gain in of_each]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Returns it as a file of weights holds it."""
        return {f"{PREFIX}shift": self.shift, f"{PREFIX}gain": self.gain}


def normalization_of(store: FeatureStore, selection: Selection) -> Normalization | None:
    """Computes the normalization of a selection from train's features in a complete store; None if it has none.

    With `scale`, the row has unit variance on average over its features; with `train`, each feature has
    unit variance. Raises DamagedShard.
    """
    if selection.normalize is None:
        return None

    def moments(view: Callable[[list[Tensor]], Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
        return _moments(view(layers) for _, layers in store.read("train", selection.indices))

    added = selection.combine in ("sum", "mean")
    if selection.normalize == "train":
        mean, variance = moments(lambda layers: [_sum(layers)] if added else layers)
        deviation = _where_positive(variance.sqrt())
        if not added:
            return _rounded(mean, 1 / deviation)
        share = len(selection.indices)  # subtracting mean / share from each layer subtracts the mean from their sum
        factor = share if selection.combine == "mean" else 1
        return _rounded(mean.expand(share, -1) / share, factor / deviation.expand(share, -1))
    shift, variance = moments(lambda layers: layers)
    gain = 1 / _where_positive(variance.mean(1, keepdim=True).sqrt())
    by_layer = _rounded(shift, gain)
    if selection.combine == "concat":
        return by_layer
    _, variance = moments(lambda layers: [_sum(by_layer(layers))])
    summed = 1 if selection.combine == "sum" else len(selection.indices)  # a mix starts as the mean
    return _rounded(shift, gain * summed / _where_positive(variance.mean().sqrt()))


def deviations_in(store: FeatureStore, layers: Sequence[int]) -> list[float]:
    """Measures how much each layer's features deviate, as the root of their mean variance. Raises DamagedShard.

    Reads the first MEASURED_SHARDS shards of train.
    """
    part = replace(store, shards={"train": store.shards["train"][:MEASURED_SHARDS]})
    _, variance = _moments(shard for _, shard in part.read("train", layers))
    deviations: list[float] = variance.mean(1).sqrt().tolist()
    return deviations


def restored_normalization(selection: Selection, weights: dict[str, Tensor]) -> Normalization | None:
    """Removes the normalization from a file's tensors and returns it; None if the selection has none."""
    if selection.normalize is None:
        return None
    return Normalization(weights.pop(f"{PREFIX}shift"), weights.pop(f"{PREFIX}gain"))


def input_factor(width: int, hidden_size: int) -> float:
    """Returns the factor on a normalized row that an LSTM reads.

    PyTorch draws an LSTM's weights between +-1/sqrt(hidden size), for any input width. So its first pre-activations
    have a variance proportional to width * variance / (3 * hidden size). With this factor it is the same in every row.
    """
    return PRE_ACTIVATION * (hidden_size / width) ** 0.5


def _sum(layers: Sequence[Tensor]) -> Tensor:
    return torch.stack([layer.float() for layer in layers]).sum(0)


def _moments(shards: Iterable[Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
    """Returns mean and variance of each feature, (L, H) in float64, of shards that have L times (W, H)."""
    words, sums, offset = 0, torch.zeros(2, 1, 1, dtype=torch.float64), None
    for layers in shards:
        x = torch.stack(list(layers)).double()  # (L, W, H)
        if offset is None:  # subtracts about the mean, since squares of large values lose digits
            offset = x.mean(1, keepdim=True)
        x -= offset
        words += x.shape[1]
        sums = sums + torch.stack([x.sum(1), x.square().sum(1)])
    assert offset is not None, "train has no words"
    mean, square = sums / words
    return mean + offset[:, 0], (square - mean.square()).clamp(min=0)


def _where_positive(deviation: Tensor) -> Tensor:
    """Replaces 0 by 1, so that a constant feature stays the constant 0."""
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def _rounded(shift: Tensor, gain: Tensor) -> Normalization:
    return Normalization(shift.float().contiguous(), gain.float().contiguous())
