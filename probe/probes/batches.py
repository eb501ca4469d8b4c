"""A split ready to train on, and its batches.

Training batches hold sentences of near-equal length (sorted within a random pool of POOL batches), so little is
computed for padding and batches stay mixed.

T words of the longest sentence, B sentences, N words in a batch, W words in a split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from probe.data.tags import Tags
from probe.probes.combine import Streamed
from probe.probes.schedule import updates
from probe.system.machine import to_device

POOL = 50  # batches whose sentences are sorted together
EVALUATION_SENTENCES = 128  # in a batch; nothing depends on it but speed
EVALUATION_WORDS = 2**15  # in a batch at most, padding included, or one sentence: bounds the memory
UNCOUNTED = -100  # a label that PyTorch's losses leave out


class Batch(NamedTuple):
    """features: (T, B, ...), where padding repeats a sentence's last word. rows: (T, B), places of the words in the
    split. mirror: (T, B), indices that reverse each sentence within its length. words: (T, B), True where there is a
    word. labels: (T, B), UNCOUNTED at padding. Copies to a GPU may still be under way."""

    features: Tensor
    rows: Tensor
    mirror: Tensor
    words: Tensor
    labels: Tensor


class TaggedWords:
    """A split, ready to train on: features (W, ...) on any device, labels (W,), sentences by their lengths.

    device: of the batches. sentences: the numbers of those that batches are made of; None: all.
    """

    def __init__(
        self,
        features: Tensor | Streamed,
        tags: Tags,
        label_ids: dict[str, int],
        device: str = "cpu",
        sentences: Sequence[int] | None = None,
    ) -> None:
        self.features, self.device = features, device
        self.tags = tags if sentences is None else [tags[i] for i in sentences]
        lengths = torch.tensor([len(sentence) for sentence in tags])
        chosen = torch.arange(len(tags)) if sentences is None else torch.tensor(sentences, dtype=torch.long)
        self.lengths, self.starts = lengths[chosen], (torch.cumsum(lengths, 0) - lengths)[chosen]
        # A tag that training never showed gets no id; no prediction can be right there.
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
        there = [to_device(tensor, self.device) for tensor in (rows, mirror, words, labels)]
        if self.features.device.type == self.device:
            return Batch(self.features[there[0]], *there)
        return Batch(to_device(self.features[rows], self.device), *there)


def pooled_batches(lengths: Tensor, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Every index into `lengths` once, in random batches of near-equal length. lengths: in any unit."""
    order = torch.randperm(len(lengths), generator=generator)
    chunks: list[Tensor] = []
    for pool in order.split(batch_size * POOL):
        chunks += pool[lengths[pool].argsort(stable=True)].split(batch_size)
    for position in torch.randperm(len(chunks), generator=generator):
        yield chunks[position]


class TrainingBatches:
    """An epoch's batches: every sentence `passes` times, each pass in batches of its own.

    Each iteration draws new ones, which depend on the seed and on the number of iterations before.
    """

    def __init__(self, data: TaggedWords, batch_size: int, seed: int, passes: int = 1) -> None:
        self.data, self.batch_size, self.passes = data, batch_size, passes
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.passes * updates(len(self.data.lengths), self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(self.passes):
            yield from map(self.data.batch, pooled_batches(self.data.lengths, self.batch_size, self.generator))


class EvaluationBatches:
    """Every sentence once, by length."""

    def __init__(self, data: TaggedWords) -> None:
        self.data = data
        self.chunks: list[list[int]] = [[]]
        lengths = data.lengths.tolist()
        for number in data.lengths.argsort(stable=True).tolist():
            most = min(EVALUATION_SENTENCES, max(1, EVALUATION_WORDS // lengths[number]))
            if len(self.chunks[-1]) >= most:
                self.chunks.append([])
            self.chunks[-1].append(number)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[Batch]:
        return (self.data.batch(torch.tensor(sentences)) for sentences in self.chunks)
