"""Pools a store's word vectors to one vector per sentence and layer, while they are read.

A task with one label per sentence reads the same store as a task with one label per word. Nothing is stored twice.

W words, S sentences, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from probe.config import FeaturesConfig
from probe.data.corpus import Corpus
from probe.features.store import FeatureStore, Shard
from probe.features.windows import bounds

if TYPE_CHECKING:
    import torch


class Vectors(Protocol):
    """Describes what is read shard by shard: words of a store, or sentences. Shards count words, or sentences."""

    @property
    def num_layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shards(self) -> dict[str, list[Shard]]: ...

    def read(self, split: str, layers: Sequence[int]) -> Iterator[tuple[Shard, list[torch.Tensor]]]: ...

    def read_shard(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]: ...


@dataclass
class SentenceVectors:
    """Holds one vector per sentence, each pooled from its words' vectors, in float32. See `Vectors`.

    how: a value of features.sentence. ends: (S + 1,) of each split, where its sentences begin, in words. parts: the
    shards of the store behind each of its own: one, or several if a sentence does not fit into one.
    """

    store: FeatureStore
    how: str
    ends: dict[str, list[int]]
    shards: dict[str, list[Shard]]
    parts: dict[str, list[list[Shard]]]
    dtype: str = "float32"

    @classmethod
    def of(cls, store: FeatureStore, corpus: Corpus, how: str) -> SentenceVectors:
        ends = {name: bounds(split.lengths).tolist() for name, split in corpus.splits.items()}
        parts: dict[str, list[list[Shard]]] = {}
        shards: dict[str, list[Shard]] = {}
        for name, of_split in store.shards.items():
            number_of = {end: number for number, end in enumerate(ends[name])}
            parts[name], open_parts = [], []
            for shard in of_split:
                open_parts.append(shard)
                if shard.last in number_of:  # it ends with a sentence
                    parts[name].append(open_parts)
                    open_parts = []
            sentences = [(number_of[some[0].first], number_of[some[-1].last]) for some in parts[name]]
            shards[name] = [Shard(name, number, *between) for number, between in enumerate(sentences)]
        return cls(store, how, ends, shards, parts)

    @property
    def num_layers(self) -> int:
        return self.store.num_layers

    @property
    def hidden_size(self) -> int:
        return self.store.hidden_size

    def read(self, split: str, layers: Sequence[int]) -> Iterator[tuple[Shard, list[torch.Tensor]]]:
        """Yields the requested layers shard by shard, each (S, H). Raises DamagedShard."""
        for shard in self.shards[split]:
            yield shard, self.read_shard(shard, layers)

    def read_shard(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Reads and pools one shard's layers, like `read`."""
        import torch

        read = [self.store.read_shard(part, layers) for part in self.parts[shard.split][shard.number]]
        ends = self.ends[shard.split][shard.first : shard.last + 1]
        lengths = torch.tensor([last - first for first, last in pairwise(ends)])
        return [pool_sentences(torch.cat(of_layer), lengths, self.how) for of_layer in zip(*read, strict=True)]


def pool_sentences(words: torch.Tensor, lengths: torch.Tensor, how: str) -> torch.Tensor:
    """Pools (W, H) to (S, H) in float32: sentence i has the next lengths[i] words, one or more.

    mean, max: over the words. last: the last word. first, cls: the first word; with cls, the store has the first
    special piece in place of every word.
    """
    import torch

    if how in ("mean", "max"):
        return torch.segment_reduce(words.float(), how, lengths=lengths, axis=0)
    ends = lengths.cumsum(0)
    return words[ends - 1 if how == "last" else ends - lengths].float()


def vectors_to_read(store: FeatureStore, corpus: Corpus, features: FeaturesConfig) -> FeatureStore | SentenceVectors:
    """Returns what a probe of this corpus reads: the store's words, or its sentences if each has one label."""
    return store if corpus.task.is_per_word else SentenceVectors.of(store, corpus, features.sentence)
