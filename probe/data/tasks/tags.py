"""Defines the task of a label per word, such as its part of speech."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from probe.data.split import Split
from probe.data.task import Task
from probe.scoring.metrics import Counts, Item, Scores, count_items, scores_of, share
from probe.scoring.score import ACCURACY
from probe.scoring.tags import Tags


class MajorityTag:
    """Gives each word its most frequent tag in train, and an unseen word train's most frequent tag.

    mentions: the type of each known mention. These come first, and the longest match wins; other words get their own
    tag. Of equally frequent tags the first in the alphabet wins.
    """

    def __init__(self, train: Split, mentions: Mapping[tuple[str, ...], str] | None = None) -> None:
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for words, tags in zip(train.words, train.tags, strict=True):
            for word, tag in zip(words, tags, strict=True):
                by_word[word][tag] += 1
        self.tag = {word: most_frequent(counter) for word, counter in by_word.items()}
        self.any_tag = most_frequent(sum(by_word.values(), Counter()))
        self.mentions = mentions or {}
        self.longest = max(map(len, self.mentions), default=0)

    def __len__(self) -> int:
        """Returns the number of words and mentions with a tag."""
        return len(self.tag) + len(self.mentions)

    def predict(self, words: Tags) -> Tags:
        return [self._sentence(tuple(sentence)) for sentence in words]

    def _sentence(self, words: Sequence[str]) -> list[str]:
        tags = [self.tag.get(word, self.any_tag) for word in words]
        start = 0
        while start < len(words):
            ends = range(min(len(words), start + self.longest), start, -1)
            end = next((end for end in ends if words[start:end] in self.mentions), None)
            if end is not None:
                kind = self.mentions[tuple(words[start:end])]
                tags[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
            start = end or start + 1
        return tags


def most_frequent(counter: Counter[str]) -> str:
    return min(counter, key=lambda name: (-counter[name], name))


def items(tags: Sequence[str]) -> list[Item]:
    return [(tag, position, position + 1) for position, tag in enumerate(tags)]


def accuracy(gold: Tags, predicted: Tags) -> float:
    """Returns the share of words with the right tag."""
    pairs = [(g, p) for gs, ps in zip(gold, predicted, strict=True) for g, p in zip(gs, ps, strict=True)]
    return sum(g == p for g, p in pairs) / len(pairs)


def scores(counts: Counts) -> Scores:
    """Adds macro F1 to the scores that all tasks have."""
    found = scores_of(counts)
    macro = share(sum(score.f1 for score in found.per_type.values()), len(found.per_type))
    return replace(found, macro_f1=macro)


TAGS = Task(
    name="tags",
    headline=ACCURACY,
    kinds="tags",
    unit="word",
    units=lambda words: words,
    items=items,
    tag_of=lambda kind: kind,
    normalize=lambda splits, data: ({}, []),  # the labels stay as they are
    sizes=lambda tags: {"tags": len(set(chain.from_iterable(tags)))},
    control=lambda words, tags, draw: [draw([word]) for word in words],
    baselines={"none": MajorityTag},
    counts=lambda gold, predicted: count_items(gold, predicted, items),
    parts=scores,
    reference=accuracy,
)
