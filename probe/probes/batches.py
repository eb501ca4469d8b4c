"""Prepares a split for training, and makes its batches.

Training batches hold sentences of near-equal length (sorted within a random pool of POOL batches). So little time is
spent on padding, and batches are still mixed.

T words of the longest sentence, B sentences, W words in a split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from probe.probes.combine import Streamed
from probe.probes.schedule import updates
from probe.scoring.tags import Tags
from probe.system.machine import to_device

POOL = 50  # batches whose sentences are sorted together
EVALUATION_SENTENCES = 128  # per batch; only the speed depends on it
EVALUATION_WORDS = 2**15  # most per batch of several sentences, padding included: bounds the memory
UNCOUNTED = -100  # a label that PyTorch's losses ignore


class Batch(NamedTuple):
    """Holds a batch. Copies to a GPU may not have finished.

    features: (T, B, ...), where padding repeats a sentence's last word. rows: (T, B), positions of the words in the
    split. mirror: (T, B), indices that reverse each sentence within its length. words: (T, B), True for words, False
    for padding. labels: (T, B), UNCOUNTED at padding.
    """

    features: Tensor
    rows: Tensor
    mirror: Tensor
    words: Tensor
    labels: Tensor


class TaggedWords:
    """Holds a split: features (W, ...) on any device, labels (W,), the lengths of sentences, the device of batches."""

    def __init__(self, features: Tensor | Streamed, tags: Tags, label_ids: dict[str, int], device: str = "cpu") -> None:
        self.features, self.tags, self.device = features, tags, device
        self.lengths = torch.tensor([len(sentence) for sentence in tags])
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths
        # A tag that does not occur in train has no id and cannot be predicted.
        self.labels = torch.tensor([label_ids.get(tag, UNCOUNTED) for sentence in tags for tag in sentence])
        if len(self.labels) != len(features):
            raise ValueError(f"{len(features)} feature vectors for {len(self.labels)} words")

    def batch(self, sentences: Tensor) -> Batch:
        lengths, starts = self.lengths[sentences], self.starts[sentences]
        step = torch.arange(int(lengths.max()))[:, None]  # (T, 1)
        words = step < lengths
        rows = starts + torch.minimum(step, lengths - 1)
        mirror = torch.where(words, lengths - 1 - step, step)
        labels = self.labels[rows].masked_fill(~words, UNCOUNTED)
        on_device = [to_device(tensor, self.device) for tensor in (rows, mirror, words, labels)]
        if self.features.device.type == self.device:
            return Batch(self.features[on_device[0]], *on_device)
        return Batch(to_device(self.features[rows], self.device), *on_device)


def pooled_batches(lengths: Tensor, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yields every index into `lengths` once, in random batches of near-equal length. lengths: in any unit."""
    order = torch.randperm(len(lengths), generator=generator)
    chunks: list[Tensor] = []
    for pool in order.split(batch_size * POOL):
        chunks += pool[lengths[pool].argsort(stable=True)].split(batch_size)
    for position in torch.randperm(len(chunks), generator=generator):
        yield chunks[position]


class TrainingBatches:
    """Yields an epoch's batches: every sentence `passes` times, with new batches in each pass.

    Each iteration draws new batches, which depend on the seed and on the number of iterations before.
    """

    def __init__(self, data: TaggedWords, batch_size: int, seed: int, passes: int = 1) -> None:
        self.data, self.batch_size, self.passes = data, batch_size, passes
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.passes * updates(len(self.data.lengths), self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.passes):
            yield from map(self.data.batch, pooled_batches(self.data.lengths, self.batch_size, self.generator))


def evaluation_batches(data: TaggedWords) -> Iterator[Batch]:
    """Yields every sentence once, sorted by length."""
    chunks: list[list[int]] = [[]]
    lengths = data.lengths.tolist()
    for number in data.lengths.argsort(stable=True).tolist():
        most = min(EVALUATION_SENTENCES, max(1, EVALUATION_WORDS // lengths[number]))
        if len(chunks[-1]) >= most:
            chunks.append([])
        chunks[-1].append(number)
    return (data.batch(torch.tensor(sentences)) for sentences in chunks)
