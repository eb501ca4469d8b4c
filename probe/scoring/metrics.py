"""Scores predictions by all common definitions: counts per sentence first, then scores from their sums.

The headline score is span F1 as conlleval counts it (seqeval's default mode). The counts are saved with each record.
With them, scores can be checked and two systems compared sentence by sentence, without the text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from probe.data.tags import Tags, ill_formed
from probe.data.task import Item, Task

Counts = dict[str, list[int]]  # columns of counts, one value per sentence


@dataclass(frozen=True)
class SpanScore:
    """Holds precision, recall and F1 as fractions in [0, 1]."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class KindScore:
    """Holds the scores of one type, tag or slice. gold: how many items it has."""

    precision: float
    recall: float
    f1: float
    gold: int


@dataclass(frozen=True)
class Totals:
    """Holds the counts of a split. gold, predicted, correct: spans, or words if tags are not spans."""

    sentences: int
    words: int
    gold: int
    predicted: int
    correct: int


@dataclass(frozen=True)
class Scores:
    """Holds the scores of one split, as fractions in [0, 1]. Scores that its task does not have are None.

    span: micro, as conlleval counts. strict: the same, but only well-formed IOB2 is a span. word: over words in spans,
    without the difference of B- and I-. entity_word_recall: the share of words in gold spans with the right type.
    macro_f1: over the tags, if they are not spans. matthews: Matthews' correlation of gold and predicted tags, if they
    are not spans; older records have none. slices: see `slices`. boundary: over span boundaries of any type;
    older records have none.
    """

    accuracy: float | None
    per_type: dict[str, KindScore]
    counts: Totals
    span: SpanScore | None = None
    strict: SpanScore | None = None
    word: SpanScore | None = None
    entity_word_recall: float | None = None
    ill_formed: int | None = None
    macro_f1: float | None = None
    slices: dict[str, KindScore] | None = None
    boundary: SpanScore | None = None
    matthews: float | None = None

    @property
    def headline(self) -> float:
        """Returns the score that tables show: span F1, or accuracy if tags are not spans."""
        if self.span is not None:
            return self.span.f1
        assert self.accuracy is not None
        return self.accuracy


def span_f1(gold: Tags, predicted: Tags) -> float:
    """Returns micro F1 over spans: a span is correct if its words and its type are."""
    from seqeval.metrics import f1_score

    return float(f1_score(gold, predicted, average="micro", zero_division=0))


def accuracy(gold: Tags, predicted: Tags) -> float:
    """Returns the share of words with the right tag."""
    pairs = [(g, p) for gs, ps in zip(gold, predicted, strict=True) for g, p in zip(gs, ps, strict=True)]
    return sum(g == p for g, p in pairs) / len(pairs)


def headline(task: Task, gold: Tags, predicted: Tags) -> float:
    """Returns only the task's headline score, which training reads after each epoch."""
    return (span_f1 if task.has_spans else accuracy)(gold, predicted)


def count(gold: Tags, predicted: Tags, task: Task) -> Counts:
    """Counts everything that scores need, per sentence.

    words, right_tags. For each type (of span, or tag): gold:T, predicted:T, correct:T. For spans also strict_gold,
    strict_predicted, strict_correct (strict IOB2: every span begins with B-); gold_words, predicted_words, right_words
    (words in spans, with B- or I-); ill_formed (a predicted I- that continues nothing).
    """
    counts: Counts = {"words": [len(sentence) for sentence in gold]}
    pairs = list(zip(gold, predicted, strict=True))
    counts["right_tags"] = [sum(g == p for g, p in zip(gs, ps, strict=True)) for gs, ps in pairs]
    items = [(set(task.items(gs)), set(task.items(ps))) for gs, ps in pairs]
    tags = {tag for sentence in (*gold, *predicted) for tag in sentence}
    for kind in sorted({tag[2:] for tag in tags if tag != "O"} if task.has_spans else tags):
        counts[f"gold:{kind}"] = [sum(item[0] == kind for item in g) for g, _ in items]
        counts[f"predicted:{kind}"] = [sum(item[0] == kind for item in p) for _, p in items]
        counts[f"correct:{kind}"] = [sum(item[0] == kind for item in g & p) for g, p in items]
    if task.has_spans:
        counts |= strict_counts(gold, predicted)
        counts["gold_words"] = [sum(g != "O" for g in gs) for gs in gold]
        counts["predicted_words"] = [sum(p != "O" for p in ps) for ps in predicted]
        counts["right_words"] = [
            sum(g != "O" and p != "O" and g[2:] == p[2:] for g, p in zip(gs, ps, strict=True)) for gs, ps in pairs
        ]
    return counts


SIDES = ("gold", "predicted", "correct")
OF_SPANS = (*(f"strict_{side}" for side in SIDES), "ill_formed", "gold_words", "predicted_words", "right_words")


def problem_of(counts: Counts) -> str | None:
    """Returns why these are not counts of a split, as `count` returns them; None if they are."""
    kinds = sorted({name.partition(":")[2] for name in counts if ":" in name})
    needed = ["words", "right_tags", *(f"{side}:{kind}" for kind in kinds for side in SIDES)]
    needed += OF_SPANS if any(name in counts for name in OF_SPANS) else ()
    if missing := next((name for name in needed if name not in counts), None):
        return f"has no {missing}"
    if not counts["words"]:
        return "has no sentence"
    mismatched = next((name for name, column in counts.items() if len(column) != len(counts["words"])), None)
    return (
        f"has {len(counts['words'])} sentences in words, {len(counts[mismatched])} in {mismatched}"
        if mismatched
        else None
    )


def strict_counts(gold: Tags, predicted: Tags) -> Counts:
    """Counts spans of well-formed IOB2 only: strict_*, and ill_formed of the predicted tags."""
    strict = list(zip(_strict_spans(gold), _strict_spans(predicted), strict=True))
    return {
        "strict_gold": [len(g) for g, _ in strict],
        "strict_predicted": [len(p) for _, p in strict],
        "strict_correct": [len(g & p) for g, p in strict],
        "ill_formed": [len(ill_formed(ps, "IOB2")) for ps in predicted],
    }


def _strict_spans(tags: Tags) -> list[set[Item]]:
    from seqeval.scheme import IOB2, Entities

    entities = Entities([list(sentence) for sentence in tags], IOB2).entities
    return [{(span.tag, span.start, span.end) for span in sentence} for sentence in entities]


def scores_of(counts: Counts) -> Scores:
    """Computes scores from counts, without slices, which need the words."""
    total = {name: sum(column) for name, column in counts.items()}
    kinds = [name.removeprefix("gold:") for name in counts if name.startswith("gold:")]
    parts = {kind: (total[f"gold:{kind}"], total[f"predicted:{kind}"], total[f"correct:{kind}"]) for kind in kinds}
    gold, predicted, correct = (sum(part[i] for part in parts.values()) for i in range(3))
    per_type = {kind: _kind_score(*part) for kind, part in parts.items()}
    right = _share(total["right_tags"], total["words"])
    totals = Totals(len(counts["words"]), total["words"], gold, predicted, correct)
    if "strict_gold" not in total:
        macro = _share(sum(score.f1 for score in per_type.values()), len(per_type))
        return Scores(right, per_type, totals, macro_f1=macro, matthews=_matthews(parts.values()))
    return Scores(
        right,
        per_type,
        totals,
        span=_span_score(gold, predicted, correct),
        strict=_span_score(total["strict_gold"], total["strict_predicted"], total["strict_correct"]),
        word=_span_score(total["gold_words"], total["predicted_words"], total["right_words"]),
        entity_word_recall=_share(total["right_words"], total["gold_words"]),
        ill_formed=total["ill_formed"],
    )


def by_sentence(counts: Counts) -> np.ndarray:
    """Returns (sentences, 3): the number of gold, predicted and correct items of all types."""
    sides = [
        sum(
            (np.asarray(column) for name, column in counts.items() if name.startswith(f"{side}:")),
            start=np.zeros(len(counts["words"]), dtype=int),
        )
        for side in SIDES
    ]
    return np.stack(sides, 1)


def f1_of(counts: np.ndarray) -> np.ndarray:
    """Computes micro F1 from the numbers of gold, predicted and correct along the last axis; 0 where there are none."""
    return 2 * counts[..., 2] / np.maximum(counts[..., 0] + counts[..., 1], 1)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _span_score(gold: int, predicted: int, correct: int) -> SpanScore:
    f1 = float(f1_of(np.array([gold, predicted, correct])))
    return SpanScore(_share(correct, predicted), _share(correct, gold), f1)


def _matthews(parts: Iterable[tuple[int, int, int]]) -> float:
    """Returns Matthews' correlation for any number of classes (Gorodkin 2004); 0 if only one is gold or predicted.

    parts: gold, predicted and correct of each class.
    """
    gold, predicted, correct = np.array(list(parts), dtype=float).reshape(-1, 3).T
    total = gold.sum()
    spread = (total**2 - (predicted**2).sum()) * (total**2 - (gold**2).sum())
    return float((correct.sum() * total - gold @ predicted) / math.sqrt(spread)) if spread > 0 else 0.0


def _kind_score(gold: int, predicted: int, correct: int) -> KindScore:
    score = _span_score(gold, predicted, correct)
    return KindScore(score.precision, score.recall, score.f1, gold)


def slices(words: Tags, gold: Tags, predicted: Tags, known: Collection[str] | None, task: Task) -> dict[str, KindScore]:
    """Scores spans within parts of a split, to show what is hard and for which layers.

    known: the words of the training split; None: unknown. A span belongs to a slice by its own words or by its
    sentence.
    """
    totals: dict[str, list[int]] = {}
    for sentence, gold_tags, predicted_tags in zip(words, gold, predicted, strict=True):
        truth, guess = set(task.items(gold_tags)), set(task.items(predicted_tags))
        for span in truth | guess:
            for name in slice_names(sentence, span, known):
                total = totals.setdefault(name, [0, 0, 0])
                for i, holds in enumerate((span in truth, span in guess, span in truth & guess)):
                    total[i] += holds
    return {name: _kind_score(*total) for name, total in sorted(totals.items())}


def boundary_score(gold: Tags, predicted: Tags, task: Task) -> SpanScore:
    """Returns micro scores over span boundaries: a span of any type is correct if its words are."""
    pairs = [
        [{(start, end) for _, start, end in task.items(tags)} for tags in both]
        for both in zip(gold, predicted, strict=True)
    ]
    correct = sum(len(truth & guess) for truth, guess in pairs)
    return _span_score(sum(len(truth) for truth, _ in pairs), sum(len(guess) for _, guess in pairs), correct)


def guess_floor(scores: Scores) -> float | None:
    """Returns the F1 of finding these boundaries and guessing each type by its frequency in the split.

    It is boundary F1 times the sum of squared type shares. None if tags are not spans, or boundaries were not scored.
    """
    gold = [kind.gold for kind in scores.per_type.values()]
    if scores.boundary is None or not sum(gold):
        return None
    return scores.boundary.f1 * sum((of_kind / sum(gold)) ** 2 for of_kind in gold)


def slice_names(sentence: Sequence[str], item: Item, known: Collection[str] | None) -> list[str]:
    """Returns the slices that a span belongs to. known: the words of the training split; None: unknown."""
    _, start, end = item
    letters = "".join(sentence)
    names = [_bucket("span of", end - start, (1, 2), ""), length_name(len(sentence))]
    if known is not None:
        unseen = any(word not in known for word in sentence[start:end])
        names.append("with unseen words" if unseen else "seen words only")
    return names + (["sentence in capitals"] if letters.upper() == letters != letters.lower() else [])


def length_name(num_words: int) -> str:
    """Returns the slice that a sentence belongs to by its length."""
    return _bucket("sentence of", num_words, (10, 25), "words")


def _bucket(what: str, size: int, limits: tuple[int, int], unit: str) -> str:
    """Names the range of a size: up to the first limit, up to the second, or above."""
    low, high = limits
    spread = f"1-{low}" if low > 1 else "1"
    middle = f"{low + 1}-{high}" if high > low + 1 else str(high)
    return f"{what} {spread if size <= low else middle if size <= high else f'{high + 1}+'} {unit}".rstrip()
