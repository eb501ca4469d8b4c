"""Holds gold tags as arrays, to count quickly what a thousand readouts predict correctly, as `metrics` counts.

W words, C labels that occur in train.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.data.task import Task
from probe.scoring.metrics import SIDES, Counts
from probe.screening.moments import TextSample


class Gold:
    """Holds the gold tags of a text. known: the labels that a readout can predict, by number.

    Items are what the task counts: words, or words that follow each other and have one kind.
    """

    def __init__(self, text: TextSample, known: Sequence[str], num_parts: int, task: Task) -> None:
        tags = [tag for sentence in text.tags for tag in sentence]
        labels = [*known, *sorted(set(tags) - set(known))]
        ids = {label: i for i, label in enumerate(labels)}
        self._part, self._num_parts = text.part, num_parts
        self._starts = text.position == 0
        items = [task.items([label]) for label in labels]  # none of O
        kinds = ["", *(found[0][0] if found else "" for found in items)]
        self._kinds, kind_of = np.unique(kinds, return_inverse=True)
        self._kind = kind_of[1:]
        self._begins = np.array([len(task.items([label, label])) == 2 for label in labels])  # an item, wherever it is
        self._ids = np.array([ids[tag] for tag in tags])
        self._items = self._find(self._ids)

    def counts(self, predicted: np.ndarray) -> Counts:
        """Returns the counts of each part, as if it were one sentence. predicted: (W,) label ids."""
        gold, guess, num_kinds = self._items, self._find(predicted), len(self._kinds)
        of_words = {"words": self._part, "right_tags": self._part[self._ids == predicted]}
        columns = {name: np.bincount(part, minlength=self._num_parts).tolist() for name, part in of_words.items()}
        for side, items in zip(SIDES, (gold, guess, np.where(gold == guess, gold, -1)), strict=True):
            begins = items >= 0
            cells = self._part[begins] * num_kinds + items[begins] % num_kinds
            by_kind = np.bincount(cells, minlength=self._num_parts * num_kinds).reshape(-1, num_kinds)
            columns |= {
                f"{side}:{kind}": column for kind, column in zip(self._kinds[1:], by_kind.T[1:].tolist(), strict=True)
            }
        return columns

    def _find(self, ids: np.ndarray) -> np.ndarray:
        """Returns (W,): last word and kind, as one number, of the item that begins at each word; -1 if none does."""
        kind = self._kind[ids]
        before = np.concatenate([[0], kind[:-1]])
        before[self._starts] = 0
        begins = (kind > 0) & (self._begins[ids] | (kind != before))
        after = np.concatenate([kind[1:], [0]])
        ends_after = np.concatenate([self._starts[1:] | self._begins[ids[1:]], [True]])
        ends = (kind > 0) & (ends_after | (after != kind))
        items = np.full(len(ids), -1)
        items[begins] = np.flatnonzero(ends) * len(self._kinds) + kind[begins]
        return items
