"""Defines the task of a label per sentence: its text is read whole, and the vectors of its pieces are pooled to one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from probe.data.split import Split
from probe.data.tasks.tags import TAGS
from probe.scoring.score import ACCURACY
from probe.scoring.tags import Tags


class NaiveBayes:
    """Gives each sentence the label under which its words are likeliest: multinomial, with add-one smoothing.

    Words that train does not have are ignored.
    """

    def __init__(self, train: Split) -> None:
        labels: Counter[str] = Counter()
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for words, (label,) in zip(train.words, train.tags, strict=True):
            labels[label] += 1
            counts[label].update(words)
        counts = defaultdict(Counter, sorted(counts.items()))
        known = set().union(*counts.values())
        self.prior = {label: math.log(labels[label]) for label in counts}
        self.weights = {  # of each word, by label
            word: [math.log((of[word] + 1) / (of.total() + len(known))) for of in counts.values()] for word in known
        }

    def __len__(self) -> int:
        """Returns the number of probabilities."""
        return len(self.weights) * len(self.prior) + len(self.prior)

    def predict(self, words: Tags) -> Tags:
        return [[self._label(sentence)] for sentence in words]

    def _label(self, words: Sequence[str]) -> str:
        known = [self.weights[word] for word in words if word in self.weights]
        totals = map(sum, zip(self.prior.values(), *known, strict=True))
        return max(zip(totals, self.prior, strict=True), key=lambda pair: pair[0])[1]


SENTENCE = replace(
    TAGS,
    name="sentence",
    headline=replace(ACCURACY, title="Accuracy over sentences"),
    kinds="labels",
    unit="sentence",
    units=lambda words: [" ".join(words)],
    control=lambda words, tags, draw: [draw(words)],
    baseline=NaiveBayes,
    is_per_word=False,
)
