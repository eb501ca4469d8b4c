"""Scores predictions by all common definitions: counts per sentence first, then scores from their sums.

The counts are saved with each record. With them, scores can be checked and two systems compared sentence by sentence,
without the text. Which of the scores tables show is said by the task's `Score`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from probe.scoring.tags import Tags

Counts = dict[str, list[int]]  # columns of counts, one value per sentence
Item = tuple[str, int, int]  # kind, first word, last word + 1
SIDES = ("gold", "predicted", "correct")
# What a record may hold in these places.
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


@dataclass(frozen=True)
class SpanScore:
    """Holds precision, recall and F1 as fractions in [0, 1]."""

    precision: Share
    recall: Share
    f1: Share


@dataclass(frozen=True)
class KindScore(SpanScore):
    """Holds the scores of one type or tag. gold: how many items it has."""

    gold: Count


@dataclass(frozen=True)
class Totals:
    """Holds the counts of a split. gold, predicted, correct: spans, or words if tags are not spans."""

    sentences: Count
    words: Count
    gold: Count
    predicted: Count
    correct: Count


@dataclass(frozen=True)
class Scores:
    """Holds the scores of one split, as fractions in [0, 1]. Scores that its task does not have are None.

    span: micro, as conlleval counts. strict: the same, but only well-formed IOB2 is a span. word: over words in spans,
    without the difference of B- and I-.
    macro_f1: over the tags, if they are not spans. recall_at_1: the share of positive texts that rank higher than all
    but 1 % of the negative ones. headline: the task's `Score`, which tables show.
    """

    accuracy: Share | None
    per_type: dict[str, KindScore]
    counts: Totals
    span: SpanScore | None = None
    strict: SpanScore | None = None
    word: SpanScore | None = None
    ill_formed: Count | None = None
    macro_f1: Share | None = None
    recall_at_1: Share | None = None
    average_precision: Share | None = None
    headline: Share = math.nan

    def __post_init__(self) -> None:
        if math.isnan(self.headline):  # of a record that did not have it, when it was one of these two
            object.__setattr__(self, "headline", self.span.f1 if self.span else self.accuracy)


def count_items(gold: Tags, predicted: Tags, items: Callable[[Sequence[str]], list[Item]]) -> Counts:
    """Counts what all scores need, per sentence: words, right_tags; for each kind: gold:K, predicted:K, correct:K.

    items: returns what must be found in a sentence, given its labels.
    """
    pairs = list(zip(gold, predicted, strict=True))
    found = [(set(items(gs)), set(items(ps))) for gs, ps in pairs]
    counts: Counts = {
        "words": [len(sentence) for sentence in gold],
        "right_tags": [sum(g == p for g, p in zip(gs, ps, strict=True)) for gs, ps in pairs],
    }
    for kind in sorted({kind for g, p in found for kind, _, _ in g | p}):
        counts[f"gold:{kind}"] = [sum(item[0] == kind for item in g) for g, _ in found]
        counts[f"predicted:{kind}"] = [sum(item[0] == kind for item in p) for _, p in found]
        counts[f"correct:{kind}"] = [sum(item[0] == kind for item in g & p) for g, p in found]
    return counts


def problem_of(counts: Counts) -> str | None:
    """Returns why these are not counts of a split; None if they are."""
    kinds = sorted({name.partition(":")[2] for name in counts if ":" in name})
    needed = ["words", "right_tags", *(f"{side}:{kind}" for kind in kinds for side in SIDES)]
    if missing := next((name for name in needed if name not in counts), None):
        return f"has no {missing}"
    if not counts["words"]:
        return "has no sentence"
    for name, column in counts.items():
        if len(column) != len(counts["words"]):
            return f"has {len(counts['words'])} sentences in words, {len(column)} in {name}"
    return None


def scores_of(counts: Counts) -> Scores:
    """Computes the scores that all tasks have. A task adds its own."""
    kinds = [name.removeprefix("gold:") for name in counts if name.startswith("gold:")]
    parts = {kind: [sum(counts[f"{side}:{kind}"]) for side in SIDES] for kind in kinds}
    gold, predicted, correct = (sum(part[i] for part in parts.values()) for i in range(3))
    words = sum(counts["words"])
    return Scores(
        share(sum(counts["right_tags"]), words),
        {kind: KindScore(**vars(span_score(*part)), gold=part[0]) for kind, part in parts.items()},
        Totals(len(counts["words"]), words, gold, predicted, correct),
    )


def of_kind(counts: Counts, kind: str) -> Counts:
    """Returns the counts of one type or tag alone."""
    return {name: column for name, column in counts.items() if name.partition(":")[2] in ("", kind)}


def by_sentence(counts: Counts) -> np.ndarray:
    """Returns (sentences, 3): the number of gold, predicted and correct items of all kinds."""
    none = [np.zeros(len(counts["words"]), dtype=int)]
    columns = [[np.asarray(counts[name]) for name in counts if name.startswith(f"{side}:")] for side in SIDES]
    return np.stack([np.sum(none + side, axis=0) for side in columns], 1)


def f1_of(counts: np.ndarray) -> np.ndarray:
    """Computes micro F1 from the numbers of gold, predicted and correct along the last axis; 0 where there are none."""
    return 2 * counts[..., 2] / np.maximum(counts[..., 0] + counts[..., 1], 1)


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def span_score(gold: int, predicted: int, correct: int) -> SpanScore:
    f1 = float(f1_of(np.array([gold, predicted, correct])))
    return SpanScore(share(correct, predicted), share(correct, gold), f1)
