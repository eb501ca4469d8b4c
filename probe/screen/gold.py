"""Holds gold tags as arrays, to count quickly what a thousand readouts predict correctly, as `metrics` counts.

W words, C labels that occur in train.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.data.tags import Tags
from probe.data.task import Task


class Gold:
    """Holds the gold tags of some sentences. known: the labels that a readout can predict, by number."""

    def __init__(self, tags: Tags, known: Sequence[str], part: np.ndarray, num_parts: int, task: Task) -> None:
        self.labels = [*known, *sorted({tag for sentence in tags for tag in sentence} - set(known))]
        ids = {label: i for i, label in enumerate(self.labels)}
        self.ids = np.array([ids[tag] for sentence in tags for tag in sentence])  # (W,)
        lengths = np.array([len(sentence) for sentence in tags])
        self.part = np.repeat(part, lengths)  # (W,) of each word's sentence
        self.num_parts, self.task = num_parts, task
        self._starts = np.zeros(len(self.ids), bool)
        self._starts[np.cumsum(lengths) - lengths] = True
        kinds = sorted({label[2:] for label in self.labels if label != "O"}) if task.has_spans else []
        self._kind = np.array(
            [0 if label == "O" else 1 + kinds.index(label[2:]) for label in self.labels]
            if kinds
            else [0] * len(self.labels)
        )
        self._begins = np.array([label.startswith("B-") for label in self.labels])
        self._spans = self._find(self.ids)

    def counts(self, predicted: np.ndarray) -> np.ndarray:
        """Returns (parts, 3), the gold, predicted and correct items of each part. predicted: (W,) label ids.

        Items are spans as conlleval counts them, or words if tags are not spans.
        """
        if not self.task.has_spans:
            right = self.ids == predicted
            words = self._by_part(np.ones(len(right), bool))
            return np.stack([words, words, self._by_part(right)], 1)
        gold, guess = self._spans, self._find(predicted)
        right = (gold == guess) & (gold >= 0)
        return np.stack([self._by_part(spans >= 0) for spans in (gold, guess)] + [self._by_part(right)], 1)

    def _by_part(self, there: np.ndarray) -> np.ndarray:
        return np.bincount(self.part[there], minlength=self.num_parts)

    def _find(self, ids: np.ndarray) -> np.ndarray:
        """Returns (W,): last word and type, as one number, of the span that begins at each word; -1 if none does."""
        if not len(ids):
            return ids
        kind = self._kind[ids]
        before = np.concatenate([[0], kind[:-1]])
        before[self._starts] = 0
        begins = (kind > 0) & (self._begins[ids] | (kind != before))
        after = np.concatenate([kind[1:], [0]])
        ends_after = np.concatenate([self._starts[1:] | self._begins[ids[1:]], [True]])
        ends = (kind > 0) & (ends_after | (after != kind))
        spans = np.full(len(ids), -1)
        spans[begins] = np.flatnonzero(ends) * (self._kind.max() + 1) + kind[begins]
        return spans


def f1(counts: np.ndarray) -> np.ndarray:
    """Returns micro F1 from gold, predicted and correct along the last axis; 0 if there is nothing."""
    return 2 * counts[..., 2] / np.maximum(counts[..., 0] + counts[..., 1], 1)
