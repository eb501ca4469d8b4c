"""Describes what a task is: a kind of label. `tasks/` has one file for each, and lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from probe.data.split import Split
from probe.data.tags import Tags
from probe.scoring.metrics import Counts, Item, Scores

if TYPE_CHECKING:
    import torch

Draw = Callable[[Sequence[str]], str]  # a label for some words


class Baseline(Protocol):
    """Tags without an encoder. Its length is the number of what it has counted in train."""

    def __len__(self) -> int: ...

    def predict(self, words: Tags) -> Tags: ...


@dataclass(frozen=True)
class Task:
    """Describes a kind of label by what the rest of the package needs to know of it.

    name: as in data.task. score: the headline score's short name. title: the same for a caption. kinds: the plural of
    what differs by label. unit: what has a label.

    units: returns the text of each labelled unit of a sentence, given its words. items: returns what must be found in a
    sentence, given its labels. tag_of: returns the label with which an item of this kind begins. normalize: turns the
    labels of all splits into those that are trained on, in place, given data.scheme and data.ill_formed; returns what
    it found, for the record and for people. sizes: returns the number of labels of a split, by their names in
    `SplitCounts`. control: returns a sentence's labels of a control task, given its words, its labels and how a label
    is drawn. baseline: makes a tagger of train alone. headline: returns only the score that training reads after each
    epoch, given gold and predicted labels. counts: returns everything that scores need, per sentence. scores: returns
    the scores of these counts. pool: makes one
    vector per unit, (U, H), of the words' vectors, (W, H), given the number of words of each sentence and
    features.sentence; None if each word is a unit.
    """

    name: str
    score: str
    title: str
    kinds: str
    unit: str
    units: Callable[[list[str]], list[str]]
    items: Callable[[Sequence[str]], list[Item]]
    tag_of: Callable[[str], str]
    normalize: Callable[[dict[str, Split], str, str], tuple[dict[str, Any], list[str]]]
    sizes: Callable[[Tags], dict[str, int]]
    control: Callable[[Sequence[str], Sequence[str], Draw], list[str]]
    baseline: Callable[[Split], Baseline]
    headline: Callable[[Tags, Tags], float]
    counts: Callable[[Tags, Tags], Counts]
    scores: Callable[[Counts], Scores]
    pool: Callable[[torch.Tensor, Sequence[int], str], torch.Tensor] | None = None

    @property
    def is_per_word(self) -> bool:
        """Returns whether each word is a unit, so that nothing is pooled and neighbours are units too."""
        return self.pool is None
