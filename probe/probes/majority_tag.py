"""Implements the majority-tag baseline: a tagger that only counts how often train has each word with which tag.

Its score shows what a corpus gives away without an encoder and without a word's context. For labels of
sentences, the baseline counts which words occur under which label.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from probe.data.tags import Tags
from probe.data.task import Task
from probe.probes.fitting import Fit, FitInputs
from probe.system.provenance import hardware


class NaiveBayes:
    """Gives each unit the label under which its words are likeliest: multinomial, with add-one smoothing.

    It is the baseline of sentences, as `MajorityTag` is that of words. Words that train does not have are
    ignored.
    """

    def __init__(self, words: Iterable[Sequence[str]], units: Iterable[str]) -> None:
        """words: of each unit. units: their labels."""
        labels: Counter[str] = Counter()
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for of_unit, label in zip(words, units, strict=True):
            labels[label] += 1
            counts[label].update(of_unit)
        counts = defaultdict(Counter, sorted(counts.items()))
        known = set().union(*counts.values())
        self.prior = {label: math.log(labels[label]) for label in counts}
        self.weights = {  # of each word, by label
            word: [math.log((of[word] + 1) / (of.total() + len(known))) for of in counts.values()] for word in known
        }

    def __len__(self) -> int:
        """Returns the number of probabilities."""
        return len(self.weights) * len(self.prior) + len(self.prior)

    def label(self, words: Sequence[str]) -> str:
        known = [self.weights[word] for word in words if word in self.weights]
        totals = map(sum, zip(self.prior.values(), *known, strict=True))
        return max(zip(totals, self.prior, strict=True), key=lambda pair: pair[0])[1]


class MajorityTag:
    """Gives each word its most frequent tag in train, and an unseen word train's most frequent tag.

    If tags mark spans, known mentions come first, the longest match wins, and other words get their own tag. A sequence
    of words is a known mention if it occurs as a mention of its most frequent type at least as often as it occurs
    outside of a mention or as a part of one. Of equally frequent tags the first in the alphabet wins.
    """

    def __init__(self, words: Tags, tags: Tags, task: Task) -> None:
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for sentence, its_tags in zip(words, tags, strict=True):
            for word, tag in zip(sentence, its_tags, strict=True):
                by_word[word][tag] += 1
        self.tag = {word: _most_frequent(counter) for word, counter in by_word.items()}
        self.any_tag = _most_frequent(sum(by_word.values(), Counter()))
        self.mention: dict[tuple[str, ...], str] = {}
        if task.has_spans:
            self.mention = _mentions(words, tags, task)
        self.longest = max(map(len, self.mention), default=0)

    def __len__(self) -> int:
        """Returns the number of words and mentions with a tag."""
        return len(self.tag) + len(self.mention)

    def predict(self, words: Tags) -> Tags:
        return [self._sentence(tuple(sentence)) for sentence in words]

    def _sentence(self, words: Sequence[str]) -> list[str]:
        tags = [self.tag.get(word, self.any_tag) for word in words]
        start = 0
        while start < len(words):
            ends = range(min(len(words), start + self.longest), start, -1)
            end = next((end for end in ends if words[start:end] in self.mention), None)
            if end is not None:
                kind = self.mention[tuple(words[start:end])]
                tags[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
            start = end or start + 1
        return tags


def _mentions(words: Tags, tags: Tags, task: Task) -> dict[tuple[str, ...], str]:
    """Returns the known mentions and their types, see `MajorityTag`."""
    types_of: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for sentence, its_tags in zip(words, tags, strict=True):
        for kind, start, end in task.items(its_tags):
            types_of[tuple(sentence[start:end])][kind] += 1
    lengths = sorted(set(map(len, types_of)))
    occurrences: Counter[tuple[str, ...]] = Counter()  # as a mention or not
    for sentence in words:
        for length in lengths:
            for start in range(len(sentence) - length + 1):
                if (sequence := tuple(sentence[start : start + length])) in types_of:
                    occurrences[sequence] += 1
    known = {}
    for sequence, kinds in types_of.items():
        kind = _most_frequent(kinds)
        if kinds[kind] >= occurrences[sequence] - kinds.total():
            known[sequence] = kind
    return known


def _most_frequent(counter: Counter[str]) -> str:
    return min(counter, key=lambda name: (-counter[name], name))


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Counts the tags of train and tags dev and test with the counts: no features, no training."""
    clock = time.perf_counter()
    splits, task = inputs.corpus.splits, inputs.corpus.task
    train, others = splits["train"], {name: splits[name] for name in ("dev", "test")}
    baseline: MajorityTag | NaiveBayes
    if task.is_per_word:
        baseline = MajorityTag(train.words, train.tags, task)
        predictions = {name: baseline.predict(split.words) for name, split in others.items()}
    else:
        baseline = NaiveBayes(train.words, chain.from_iterable(train.tags))
        predictions = {name: [[baseline.label(words)] for words in split.words] for name, split in others.items()}
    return Fit(
        predictions=predictions,
        curve=[],
        passes=0,
        outcome="converged",
        best_epoch=0,
        mix=None,
        parameters=len(baseline),
        placement="none",
        hardware=hardware("cpu", 1),
        read_s=0.0,
        train_s=time.perf_counter() - clock,
    )
