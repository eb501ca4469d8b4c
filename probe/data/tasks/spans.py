"""Defines the task of spans: entities or chunks, in any tag scheme. They are scored as conlleval does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.split import Split
from probe.data.task import Draw, Task
from probe.data.tasks.tags import MajorityTag, most_frequent
from probe.scoring.metrics import (
    Counts,
    Item,
    Scores,
    count_items,
    scores_of,
    span_score,
)
from probe.scoring.score import F1
from probe.scoring.tags import (
    NO_TYPE,
    Tags,
    TagSchemeError,
    find_scheme,
    ill_formed,
    spans,
    to_iob2,
    with_prefixes,
    with_types,
)

PLACES_SHOWN = 3


def items(tags: Sequence[str]) -> list[Item]:
    return list(spans(tags))


def normalize(splits: dict[str, Split], data: DataConfig) -> tuple[dict[str, Any], list[str]]:
    """Finds the scheme over all splits, reports ill-formed tags, and turns the tags into IOB2, in place."""
    wanted = data.scheme
    together = [tags for split in splits.values() for tags in split.tags]
    notes = []
    if (typed := with_types(together, wanted)) is not together:
        notes.append(f"tags are prefixes without types, which are read as one type, {NO_TYPE}")
        for split in splits.values():
            split.tags = with_types(split.tags, wanted)
    try:
        scheme = find_scheme(typed, wanted)
    except TagSchemeError as error:
        place = next(place for split in splits.values() for place in split.places_of(error.tag))
        raise UserError(f"{place}: tag {error.tag!r} {error}.") from None
    for split in splits.values():
        split.tags = with_prefixes(split.tags, scheme)
    counts: dict[str, int] = {}
    shown: list[str] = []
    for name, split in splits.items():
        found = [(i, position) for i, tags in enumerate(split.tags) for position in ill_formed(tags, scheme)]
        counts[name] = len(found)
        shown += [f"{split.place_in(i, position)} {split.tags[i][position]}" for i, position in found[:PLACES_SHOWN]]
    if sum(counts.values()):
        by_split = ", ".join(f"{count} in {name}" for name, count in counts.items())
        message = f"{sum(counts.values())} tags are ill-formed {scheme} ({by_split}): {'; '.join(shown[:PLACES_SHOWN])}"
        if data.ill_formed == "error":
            raise UserError(f"{message}. To read them as conlleval does: data.ill_formed=report.")
        notes.append(f"{message}. They are read as conlleval reads them")
    for split in splits.values():
        split.tags = list(map(to_iob2, split.tags))
    return {"scheme": scheme, "asked_scheme": wanted, "ill_formed": counts}, notes


def sizes(tags: Tags) -> dict[str, int]:
    lengths = [end - start for sentence in tags for _, start, end in spans(sentence)]
    return {"spans": len(lengths), "span_words": sum(lengths)}


def control(words: Sequence[str], tags: Sequence[str], draw: Draw) -> list[str]:
    """Gives each distinct mention a type; it keeps its bounds."""
    new = ["O"] * len(words)
    for _, start, end in spans(tags):
        kind = draw(words[start:end])
        new[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return new


def baseline(train: Split) -> MajorityTag:
    """Returns the majority tag, with the known mentions.

    A sequence of words is a known mention if it occurs as a mention of its most frequent type at least as often as it
    occurs outside of a mention or as a part of one.
    """
    types_of: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for words, tags in zip(train.words, train.tags, strict=True):
        for kind, start, end in spans(tags):
            types_of[tuple(words[start:end])][kind] += 1
    lengths = sorted(set(map(len, types_of)))
    occurrences: Counter[tuple[str, ...]] = Counter()  # as a mention or not
    for words in train.words:
        for length in lengths:
            for start in range(len(words) - length + 1):
                if (sequence := tuple(words[start : start + length])) in types_of:
                    occurrences[sequence] += 1
    known = {}
    for sequence, kinds in types_of.items():
        kind = most_frequent(kinds)
        if kinds[kind] >= occurrences[sequence] - kinds.total():
            known[sequence] = kind
    return MajorityTag(train, known)


def span_f1(gold: Tags, predicted: Tags) -> float:
    """Returns micro F1 over spans: a span is correct if its words and its type are."""
    from seqeval.metrics import f1_score

    return float(f1_score(gold, predicted, average="micro", zero_division=0))


def counts(gold: Tags, predicted: Tags) -> Counts:
    """Adds to the counts of all tasks, per sentence: strict_gold, strict_predicted, strict_correct (strict IOB2: every
    span begins with B-); ill_formed (a predicted I- that continues nothing); gold_words, predicted_words, right_words
    (words in spans, with B- or I-).
    """
    strict = list(zip(_strict_spans(gold), _strict_spans(predicted), strict=True))
    pairs = list(zip(gold, predicted, strict=True))
    return count_items(gold, predicted, items) | {
        "strict_gold": [len(g) for g, _ in strict],
        "strict_predicted": [len(p) for _, p in strict],
        "strict_correct": [len(g & p) for g, p in strict],
        "ill_formed": [len(ill_formed(ps, "IOB2")) for ps in predicted],
        "gold_words": [sum(g != "O" for g in gs) for gs in gold],
        "predicted_words": [sum(p != "O" for p in ps) for ps in predicted],
        "right_words": [
            sum(g != "O" and p != "O" and g[2:] == p[2:] for g, p in zip(gs, ps, strict=True)) for gs, ps in pairs
        ],
    }


def _strict_spans(tags: Tags) -> list[set[Item]]:
    from seqeval.scheme import IOB2, Entities

    entities = Entities([list(sentence) for sentence in tags], IOB2).entities
    return [{(span.tag, span.start, span.end) for span in sentence} for sentence in entities]


def scores(counts: Counts) -> Scores:
    """Adds span F1 to the scores that all tasks have, and the scores of strict spans and of words."""
    total = {name: sum(column) for name, column in counts.items()}
    found = scores_of(counts)
    return replace(
        found,
        span=span_score(found.counts.gold, found.counts.predicted, found.counts.correct),
        strict=span_score(total["strict_gold"], total["strict_predicted"], total["strict_correct"]),
        word=span_score(total["gold_words"], total["predicted_words"], total["right_words"]),
        ill_formed=total["ill_formed"],
    )


SPANS = Task(
    name="spans",
    headline=F1,
    kinds="types",
    unit="word",
    units=lambda words: words,
    items=items,
    tag_of=lambda kind: f"B-{kind}",
    normalize=normalize,
    sizes=sizes,
    control=control,
    baselines={"none": baseline},
    counts=counts,
    parts=scores,
    reference=span_f1,
)
