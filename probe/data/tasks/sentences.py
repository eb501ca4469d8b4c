"""Defines the task of a label per sentence: its text is read whole, and the vectors of its pieces are pooled to one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from probe.data.split import Split
from probe.data.tasks.tags import TAGS
from probe.scoring.score import ACCURACY
from probe.scoring.tags import Tags


class NaiveBayes:
    """Reads each sentence by how likely its words are under each label: multinomial, with add-one smoothing.

    Words that train does not have are ignored. answer: what is said of a sentence, given the log-likelihood of each
    label.
    """

    def __init__(self, train: Split, answer: Callable[[dict[str, float]], str]) -> None:
        self.answer = answer
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
        return [[self.answer(self._likelihoods(sentence))] for sentence in words]

    def _likelihoods(self, words: Sequence[str]) -> dict[str, float]:
        known = [self.weights[word] for word in words if word in self.weights]
        return dict(zip(self.prior, map(sum, zip(self.prior.values(), *known, strict=True)), strict=True))


def likeliest(of_labels: dict[str, float]) -> str:
    return max(of_labels, key=of_labels.__getitem__)


SENTENCE = replace(
    TAGS,
    name="sentence",
    headline=replace(ACCURACY, title="Accuracy over sentences"),
    kinds="labels",
    unit="sentence",
    units=lambda words: [" ".join(words)],
    control=lambda words, tags, draw: [draw(words)],
    baselines={"none": lambda train: NaiveBayes(train, likeliest)},
    is_per_word=False,
)
