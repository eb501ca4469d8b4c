"""What tags are: spans of words, or one label a word. Settles what is counted and what the numbers are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probe.data.tags import spans

Item = tuple[str, int, int]  # kind, first word, last word + 1


@dataclass(frozen=True)
class Task:
    """A way of reading tags, named as data.task names it.

    score: the headline's short name. title: the same for a caption. kinds: what the different ones are called.
    """

    name: str
    score: str
    title: str
    kinds: str

    @property
    def has_spans(self) -> bool:
        return self is SPANS

    def items(self, tags: Sequence[str]) -> list[Item]:
        """What there is to find in a sentence: its spans, or each word with its tag."""
        if self.has_spans:
            return list(spans(tags))
        return [(tag, position, position + 1) for position, tag in enumerate(tags)]

    def tag_of(self, kind: str) -> str:
        """The tag with which an item of this kind begins."""
        return f"B-{kind}" if self.has_spans else kind


SPANS = Task("spans", "F1", "Span F1 (conlleval)", "types")
TAGS = Task("tags", "accuracy", "Accuracy", "tags")
TASKS = {task.name: task for task in (SPANS, TAGS)}
