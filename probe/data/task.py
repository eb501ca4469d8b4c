"""Describes what a task is: a kind of label. `tasks/` has one file for each, and lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from probe.config import DataConfig
from probe.data.split import Split
from probe.scoring.metrics import Counts, Item, Scores, count_items
from probe.scoring.score import Score
from probe.scoring.tags import Tags

Draw = Callable[[Sequence[str]], str]  # a label for some words


class Baseline(Protocol):
    """Tags without an encoder. Its length is the number of what it has counted in train."""

    def __len__(self) -> int: ...

    def predict(self, words: Tags) -> Tags: ...


@dataclass(frozen=True)
class Task:
    """Describes a kind of label by what the rest of the package needs to know of it."""

    name: str  # as in data.task
    headline: Score  # what tables show, and what training and screening choose by
    kinds: str  # the plural of what differs by label
    unit: str  # what has a label
    units: Callable[[list[str]], list[str]]  # the text of each labelled unit of a sentence, given its words
    items: Callable[[Sequence[str]], list[Item]]  # what must be found in a sentence, given its labels
    tag_of: Callable[[str], str]  # the label with which an item of this kind begins
    # Turns the labels of all splits into those that are trained on, in place, given the settings of data; returns what
    # it found, for the record and for people.
    normalize: Callable[[dict[str, Split], DataConfig], tuple[dict[str, Any], list[str]]]
    sizes: Callable[[Tags], dict[str, int]]  # the number of labels of a split, by their names in `SplitCounts`
    # A sentence's labels of a control task, given its words, its labels and how a label is drawn.
    control: Callable[[Sequence[str], Sequence[str], Draw], list[str]]
    baselines: dict[str, Callable[[Split], Baseline]]  # taggers of train alone, by layers.combine
    counts: Callable[[Tags, Tags], Counts]  # everything that scores need, per sentence: gold, predicted
    parts: Callable[[Counts], Scores]  # all scores but the headline
    # The headline by other code, against which each run's own is checked: gold, predicted.
    reference: Callable[[Tags, Tags], float]
    is_per_word: bool = True  # whether each word is a unit, as its neighbours are; else each text is read whole
    is_ranked: bool = False  # whether a prediction is no label but the log-odds of the second of two, as a number

    def scores(self, counts: Counts) -> Scores:
        return replace(self.parts(counts), headline=self.headline.of(counts))

    def measure(self, gold: Tags, predicted: Tags) -> float:
        """Returns the headline score. Most need items alone; `counts` takes far longer for spans."""
        return self.headline.of(
            self.counts(gold, predicted) if self.is_ranked else count_items(gold, predicted, self.items)
        )
