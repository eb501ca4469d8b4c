"""Pools a store's word vectors to one vector per sentence, or per pair of words or texts, while they are read.

Labels of sentences or pairs read the same store as labels of words. Nothing is stored twice.

W words, S sentences, U units (sentences or pairs), H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Protocol

from probe.config import FeaturesConfig
from probe.data.corpus import Corpus
from probe.data.split import Pair
from probe.data.task import Task
from probe.features.store import FeatureStore, Shard
from probe.features.windows import bounds

if TYPE_CHECKING:
    import torch


class Vectors(Protocol):
    """Describes what is read shard by shard: the words of a store, or units. Shards count what is read."""

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
    """Holds what one shard of units is made of.

    shards: of the store, one, or several if a sentence does not fit into one. lengths: of its texts, in words: of its
    sentences, or of both texts of each row. units: their number. pairs: of words, counted from the first of these; None
    if its units are sentences or pairs of texts.
    """

    shards: list[Shard]
    lengths: list[int]
    units: int
    pairs: list[Pair] | None


@dataclass
class PooledVectors:
    """Holds one vector per unit, made of its words' vectors, in float32. See `Vectors`.

    task: what has the labels. how: a value of features.sentence. parts: what each shard is made of.
    """

    store: FeatureStore
    task: Task
    how: str
    hidden_size: int
    shards: dict[str, list[Shard]]
    parts: dict[str, list[_Part]]
    dtype: str = "float32"

    @classmethod
    def of(cls, store: FeatureStore, corpus: Corpus, how: str) -> PooledVectors:
        parts = {name: list(_parts(shards, corpus, name)) for name, shards in store.shards.items()}
        shards = {}
        for name, of_split in parts.items():
            ends = list(accumulate((part.units for part in of_split), initial=0))
            shards[name] = [Shard(name, i, ends[i], ends[i + 1]) for i in range(len(of_split))]
        return cls(store, corpus.task, how, unit_size(store.hidden_size, corpus.task), shards, parts)

    @property
    def num_layers(self) -> int:
        return self.store.num_layers

    def read(self, split: str, layers: Sequence[int]) -> Iterator[tuple[Shard, list[torch.Tensor]]]:
        """Yields the requested layers shard by shard, each (U, H). Raises DamagedShard."""
        for shard in self.shards[split]:
            yield shard, self.read_shard(shard, layers)

    def read_shard(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Reads and pools one shard's layers, like `read`."""
        import torch

        part = self.parts[shard.split][shard.number]
        read = [self.store.read_shard(one, layers) for one in part.shards]
        whole = [torch.cat(of_layer) for of_layer in zip(*read, strict=True)]
        if part.pairs is not None:
            return [pool_pairs(words, part.pairs) for words in whole]
        pooled = [pool_sentences(words, torch.tensor(part.lengths), self.how) for words in whole]
        return [join_texts(texts) for texts in pooled] if self.task.is_of_two_texts else pooled


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
        lengths = split.lengths[first:last]
        if split.has_two_texts:
            yield _Part(group, split.text_lengths[2 * first : 2 * last], last - first, None)
        elif split.pairs is None:
            yield _Part(group, lengths, len(lengths), None)
        else:
            starts = accumulate(lengths, initial=0)
            of_sentences = zip(starts, split.pairs[first:last], strict=False)
            moved = [(a + at, b + at, c + at, d + at) for at, pairs in of_sentences for a, b, c, d in pairs]
            yield _Part(group, lengths, len(moved), moved)
        group = []


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


def pool_pairs(words: torch.Tensor, pairs: Sequence[Pair]) -> torch.Tensor:
    """Turns (W, H) into (U, 3 * H) in float32: [a; b; a * b] of each pair (Liu et al. 2019).

    a and b are the means of the words of the two spans.
    """
    import torch

    def means(spans: Sequence[tuple[int, int]]) -> torch.Tensor:
        rows = torch.tensor(list(chain.from_iterable(range(first, last) for first, last in spans)), dtype=torch.long)
        lengths = torch.tensor([last - first for first, last in spans], dtype=torch.long)
        return torch.segment_reduce(words[rows].float(), "mean", lengths=lengths, axis=0)

    a, b = means([pair[:2] for pair in pairs]), means([pair[2:] for pair in pairs])
    return torch.cat([a, b, a * b], 1)


def join_texts(texts: torch.Tensor) -> torch.Tensor:
    """Turns (2 * U, H) into (U, 4 * H): [a; b; |a - b|; a * b] of each two texts (InferSent, Conneau et al. 2017).

    The last two do not change if a and b change places. SentEval reads only these for paraphrases and similarity, and
    all four for entailment, where the order matters.
    """
    import torch

    a, b = texts[0::2], texts[1::2]
    return torch.cat([a, b, (a - b).abs(), a * b], 1)


def unit_size(hidden_size: int, task: Task) -> int:
    """Returns the size of what a probe reads of one layer."""
    return task.vectors * hidden_size


def vectors_to_read(store: FeatureStore, corpus: Corpus, features: FeaturesConfig) -> FeatureStore | PooledVectors:
    """Returns what a probe of this corpus reads: what has the labels, words, sentences or pairs."""
    return store if corpus.task.is_per_word else PooledVectors.of(store, corpus, features.sentence)
