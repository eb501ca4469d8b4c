"""Pools a store's word vectors to one vector per sentence, while they are read.

Labels of sentences read the same store as labels of words. Nothing is stored twice.

W words, S sentences, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from probe.config import FeaturesConfig
from probe.data.corpus import Corpus
from probe.vectors.store import FeatureStore, Shard, bounds

if TYPE_CHECKING:
    import torch


class PooledVectors:
    """Holds one vector per sentence, made of its words' vectors, in float32. Is read as a FeatureStore is.

    pool: see `Task`. how: a value of features.sentence. shards: of sentences; each ends where a shard of words does.
    """

    def __init__(self, store: FeatureStore, corpus: Corpus, pool: Callable[..., torch.Tensor], how: str) -> None:
        self.store, self.pool, self.how = store, pool, how
        self.num_layers, self.hidden_size, self.dtype = store.num_layers, store.hidden_size, "float32"
        self.shards: dict[str, list[Shard]] = {name: [] for name in store.shards}
        self._parts: dict[Shard, tuple[list[Shard], list[int]]] = {}  # shards of words, and lengths of sentences
        for name, shards in store.shards.items():
            lengths = corpus.splits[name].lengths
            number_of = {end: number for number, end in enumerate(bounds(lengths).tolist())}
            words: list[Shard] = []
            for shard in shards:
                words.append(shard)
                if shard.last in number_of:  # else a sentence goes on in the next shard
                    first, last = number_of[words[0].first], number_of[shard.last]
                    self.shards[name].append(Shard(name, len(self.shards[name]), first, last))
                    self._parts[self.shards[name][-1]] = words, lengths[first:last]
                    words = []

    def read(self, split: str, layers: Sequence[int]) -> Iterator[tuple[Shard, list[torch.Tensor]]]:
        """Yields the requested layers shard by shard, each (S, H). Raises DamagedShard."""
        for shard in self.shards[split]:
            yield shard, self.read_shard(shard, layers)

    def read_shard(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Reads and pools one shard's layers, like `read`."""
        import torch

        words, lengths = self._parts[shard]
        read = [self.store.read_shard(one, layers) for one in words]
        whole = [torch.cat(of_layer) for of_layer in zip(*read, strict=True)]
        return [self.pool(of_words, lengths, self.how) for of_words in whole]


Vectors: TypeAlias = FeatureStore | PooledVectors  # what a probe reads shard by shard: of words, or of sentences


def vectors_to_read(store: FeatureStore, corpus: Corpus, features: FeaturesConfig) -> Vectors:
    """Returns what a probe of this corpus reads: what has the labels, words or sentences."""
    pool = corpus.task.pool
    return store if pool is None else PooledVectors(store, corpus, pool, features.sentence)
