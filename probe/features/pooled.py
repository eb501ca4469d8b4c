"""Pools a store's word vectors to one vector per sentence, while they are read.

Labels of sentences read the same store as labels of words. Nothing is stored twice.

W words, S sentences, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from probe.config import FeaturesConfig
from probe.data.corpus import Corpus
from probe.features.store import FeatureStore, Shard, bounds

if TYPE_CHECKING:
    import torch


class Vectors(Protocol):
    """Describes what is read shard by shard: the words of a store, or sentences. Shards count what is read."""

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


@dataclass(frozen=True)
class _Part:
    """Holds what one shard of sentences is made of.

    shards: of the store, one, or several if a sentence does not fit into one. lengths: of its sentences, in words.
    """

    shards: list[Shard]
    lengths: list[int]


@dataclass
class PooledVectors:
    """Holds one vector per sentence, made of its words' vectors, in float32. See `Vectors`.

    pool: see `Task`. how: a value of features.sentence. parts: what each shard is made of.
    """

    store: FeatureStore
    pool: Callable[[torch.Tensor, Sequence[int], str], torch.Tensor]
    how: str
    shards: dict[str, list[Shard]]
    parts: dict[str, list[_Part]]
    dtype: str = "float32"

    @classmethod
    def of(
        cls,
        store: FeatureStore,
        corpus: Corpus,
        pool: Callable[[torch.Tensor, Sequence[int], str], torch.Tensor],
        how: str,
    ) -> PooledVectors:
        parts = {name: list(_parts(shards, corpus, name)) for name, shards in store.shards.items()}
        shards = {}
        for name, of_split in parts.items():
            ends = list(accumulate((len(part.lengths) for part in of_split), initial=0))
            shards[name] = [Shard(name, i, ends[i], ends[i + 1]) for i in range(len(of_split))]
        return cls(store, pool, how, shards, parts)

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

        part = self.parts[shard.split][shard.number]
        read = [self.store.read_shard(one, layers) for one in part.shards]
        whole = [torch.cat(of_layer) for of_layer in zip(*read, strict=True)]
        return [self.pool(words, part.lengths, self.how) for words in whole]


def _parts(shards: Sequence[Shard], corpus: Corpus, name: str) -> Iterator[_Part]:
    """Groups the shards of a split so that each group ends with a sentence."""
    split = corpus.splits[name]
    number_of = {end: number for number, end in enumerate(bounds(split.lengths).tolist())}
    group: list[Shard] = []
    for shard in shards:
        group.append(shard)
        if shard.last not in number_of:
            continue
        first, last = number_of[group[0].first], number_of[shard.last]
        yield _Part(group, split.lengths[first:last])
        group = []


def vectors_to_read(store: FeatureStore, corpus: Corpus, features: FeaturesConfig) -> FeatureStore | PooledVectors:
    """Returns what a probe of this corpus reads: what has the labels, words or sentences."""
    pool = corpus.task.pool
    return store if pool is None else PooledVectors.of(store, corpus, pool, features.sentence)
