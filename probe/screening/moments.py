"""Computes second moments of all layers over a window of neighbours, from which every readout is solved.

Each layer is reduced to its first principal components, with mean zero and variance one. For two places of the window,
the matrix needs the products of all pairs of words at that distance, which are summed once per distance. So nothing but
the moments themselves are as wide in memory as the windows of all layers.

W words, L + 1 layers, H hidden size, R principal components per layer, D = (L + 1) * R, K = 2 * window + 1 places,
C labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from probe.data.corpus import Corpus
from probe.probes.training import classifier_labels
from probe.vectors.store import FeatureStore

WORDS_AT_ONCE = 8192
CONSTANT = 1e-6  # a layer whose standard deviation is at most this share of its largest mean counts as constant
WIDEST = 8192  # of the matrix on a CPU, K * D: 150 MB in float32


@dataclass(frozen=True)
class Reduction:
    """Holds how layers are reduced.

    mean: (L + 1, H). pca_components: (L + 1, H, R), orthonormal. scale: (L + 1,), the divisor of a reduced layer.
    kept: the share of each layer's variance along its components.
    """

    mean: Tensor
    pca_components: Tensor
    scale: Tensor
    kept: list[float]


class TextSample:
    """Holds a random sample of a split's sentences, in their order, each assigned to a part.

    rows: (W,), their words' positions in the split. position, length: (W,), of a word in its sentence, and of the
    sentence. labels: (W,), -1 for one that does not occur in train. part: (W,).
    """

    def __init__(self, corpus: Corpus, split: str, sentences: int, parts: int, seed: int) -> None:
        tags = corpus.splits[split].tags
        _, label_ids = classifier_labels(corpus.splits["train"].tags)
        shuffled = np.random.default_rng([seed, len(split)]).permutation(len(tags))[:sentences]
        order = np.argsort(shuffled)
        chosen = shuffled[order]
        self.split, self.tags = split, [tags[i] for i in chosen]
        lengths = np.array([len(sentence) for sentence in self.tags])
        self.length = np.repeat(lengths, lengths)
        self.part = np.repeat(order % parts, lengths)
        self.position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        starts = np.cumsum([0, *map(len, tags)])[chosen]
        self.rows = np.repeat(starts, lengths) + self.position
        self.labels = np.array([label_ids.get(tag, -1) for sentence in self.tags for tag in sentence])

    def beyond(self, window: int) -> Tensor:
        """Returns (K, W), whether a place of a word's window is beyond its sentence."""
        places = [self.position + place for place in range(-window, window + 1)]
        return torch.from_numpy(np.stack([(place < 0) | (place >= self.length) for place in places]))


def num_pca_components(wanted: int, store: FeatureStore, window: int, device: str) -> int:
    """Returns how many components per layer a matrix of bounded size allows; on a GPU all."""
    if device == "cuda":
        return store.hidden_size
    most = WIDEST // ((2 * window + 1) * (store.num_layers + 1))
    return max(1, min(wanted, store.hidden_size, most))


def _read(store: FeatureStore, text: TextSample, device: str | torch.device) -> Iterator[tuple[int, slice, Tensor]]:
    """Yields layer, a slice of the text's words, their float32 vectors (n, H), shard by shard. Raises DamagedShard."""
    for shard, layers in store.read(text.split, range(store.num_layers + 1)):
        first, last = np.searchsorted(text.rows, [shard.first, shard.last]).tolist()
        if first < last:
            inside = torch.from_numpy(text.rows[first:last] - shard.first)
            for number, layer in enumerate(layers):
                yield number, slice(first, last), layer[inside].float().to(device)


def reduction(store: FeatureStore, text: TextSample, num_components: int, device: str = "cpu") -> Reduction:
    """Computes each layer's principal components over the words of a text."""
    size, layers = store.hidden_size, store.num_layers + 1
    total = torch.zeros(layers, size, dtype=torch.float64, device=device)
    products = torch.zeros(layers, size, size, dtype=torch.float64, device=device)
    offset = torch.zeros(layers, size, device=device)  # near the mean: products of large values would lose digits
    for number, words, vectors in _read(store, text, device):
        if words.start == 0:
            offset[number] = vectors.mean(0)
        vectors = vectors - offset[number]
        total[number] += vectors.sum(0, dtype=torch.float64)
        products[number] += (vectors.T @ vectors).double()
    shift = total / len(text.rows)
    covariance = products / len(text.rows) - shift[:, :, None] * shift[:, None, :]
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp(min=0).flip(1)
    vectors = vectors.flip(2)
    variance = values.sum(1)
    scale = (variance / size).sqrt().float()
    # What varies by rounding alone stays near zero.
    scale[scale <= CONSTANT * (offset + shift).abs().amax(1).float()] = 1
    kept = values[:, :num_components].sum(1) / variance.clamp(min=1e-30)
    kept[variance == 0] = 1
    return Reduction((offset + shift).float(), vectors[:, :, :num_components].float(), scale, kept.tolist())


def reduced(store: FeatureStore, text: TextSample, to: Reduction, dtype: torch.dtype = torch.float32) -> Tensor:
    """Projects a text's layers on their components: (W, L + 1, R)."""
    shape = len(text.rows), store.num_layers + 1, to.pca_components.shape[2]
    layers = torch.empty(shape, dtype=dtype, device=to.mean.device)
    for number, words, vectors in _read(store, text, to.mean.device):
        centred = vectors - to.mean[number]
        layers[words, number] = (centred @ to.pca_components[number] / to.scale[number]).to(dtype)
    return layers


@dataclass
class Moments:
    """Holds sums over words t. x is the window of t: the concatenated vectors around t, zero beyond the sentence.

    xx: (pairs of layers, K * R, K * R), see `of_pair`; within a layer place by place. xy: (K * D, C), layer by layer,
    with one-hot labels. x: (K * D,). y: (C,). words: how many.
    """

    xx: Tensor
    xy: Tensor
    x: Tensor
    y: Tensor
    words: int

    @property
    def num_layers(self) -> int:
        return len(self.x) // self.xx.shape[1]

    def of_pair(self, first: int, second: int) -> Tensor:
        """Returns (K * R, K * R), the products of two layers, of which the second is not below the first."""
        return self.xx[first * self.num_layers - first * (first - 1) // 2 + second - first]

    def add(self, part: Moments, sign: int = 1) -> None:
        """Adds the words of a part to the sums, or with sign -1 removes them."""
        for name in ("xx", "xy", "x", "y"):
            getattr(self, name).add_(getattr(part, name), alpha=sign)
        self.words += sign * part.words


def moments(layers: Tensor, labels: Tensor, position: np.ndarray, lengths: np.ndarray, window: int) -> Moments:
    """Computes the moments of a text. layers: (W, L + 1, R). labels: (W, C), one-hot. position: (W,) in the sentence.

    lengths: (W,) of the sentence that each word is in.
    """
    _, num_layers, kept = layers.shape
    width = num_layers * kept
    places = 2 * window + 1
    device = layers.device
    by_layer = (num_layers, places, kept)
    upper = torch.triu_indices(num_layers, num_layers, device=device).unbind()
    xx = torch.zeros(len(upper[0]), places, kept, places, kept, device=device)
    xy = torch.zeros(*by_layer, labels.shape[1], device=device)
    x = torch.zeros(by_layer, device=device)

    def at(words: np.ndarray) -> Tensor:
        return layers[torch.from_numpy(words).to(device)].float().view(len(words), width)

    def products(first: np.ndarray, distance: int) -> Tensor:
        """Sums the products of some words with the word at `distance`: (D, D)."""
        total = torch.zeros(width, width, device=device)
        for start in range(0, len(first), WORDS_AT_ONCE):
            some = first[start : start + WORDS_AT_ONCE]
            left = at(some)
            total += left.T @ (at(some + distance) if distance else left)
        return total

    for distance in range(places):
        first = np.flatnonzero(position + distance < lengths)
        whole = products(first, distance)
        for left in range(-window, window - distance + 1):
            right = left + distance
            # Both words may be in the sentence while the centre of the window is outside.
            centre = position[first] - left
            beyond = (centre < 0) | (centre >= lengths[first])
            block = whole - products(first[beyond], distance) if beyond.any() else whole
            row, column = left + window, right + window
            of_pairs = block.view(num_layers, kept, num_layers, kept)
            xx[:, row, :, column] = of_pairs[upper[0], :, upper[1]]
            if distance:
                xx[:, column, :, row] = of_pairs[upper[1], :, upper[0]].transpose(1, 2)
    for place in range(-window, window + 1):
        there = np.flatnonzero((position + place >= 0) & (position + place < lengths))
        for start in range(0, len(there), WORDS_AT_ONCE):
            some = there[start : start + WORDS_AT_ONCE]
            vectors = at(some + place)
            with_labels = vectors.T @ labels[torch.from_numpy(some).to(device)]
            xy[:, place + window] += with_labels.view(num_layers, kept, -1)
            x[:, place + window] += vectors.sum(0).view(num_layers, kept)
    xx = xx.view(-1, places * kept, places * kept)
    return Moments(xx, xy.view(places * width, -1), x.flatten(), labels.sum(0), len(position))
