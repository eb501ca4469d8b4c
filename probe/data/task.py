"""Defines the tasks: spans, and labels of words or sentences. A task says what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probe.config import DataConfig
from probe.data.tags import spans

Item = tuple[str, int, int]  # kind, first word, last word + 1


@dataclass(frozen=True)
class Task:
    """Describes how tags are read. name: as in data.task.

    score: the headline score's short name. title: the same for a caption. kinds: the plural of what differs by label.
    unit: what has a label.
    """

    name: str
    score: str
    title: str
    kinds: str
    unit: str = "word"

    @property
    def is_per_word(self) -> bool:
        """Returns whether each word has a tag. If not, a sentence has one, for its pooled words."""
        return self.unit == "word"

    @property
    def has_spans(self) -> bool:
        return self is SPANS

    def items(self, tags: Sequence[str]) -> list[Item]:
        """Returns what must be found in a sentence: its spans, or each word or sentence with its label."""
        if self.has_spans:
            return list(spans(tags))
        return [(tag, position, position + 1) for position, tag in enumerate(tags)]

    def tag_of(self, kind: str) -> str:
        """Returns the tag with which an item of this kind begins."""
        return f"B-{kind}" if self.has_spans else kind


SPANS = Task("spans", "F1", "Span F1 (conlleval)", "types")
TAGS = Task("tags", "accuracy", "Accuracy", "tags")
SENTENCE = Task("sentence", "accuracy", "Accuracy over sentences", "labels", unit="sentence")
TASKS = {task.name: task for task in (SPANS, TAGS, SENTENCE)}


def task_of(data: DataConfig) -> Task:
    """Returns the task that data.task names."""
    return TASKS[data.task]
