"""Span F1 as conlleval counts it (seqeval's default mode), and the other ways people score, beside it."""

from __future__ import annotations

from typing import Any

Tags = list[list[str]]


def span_f1(gold: Tags, predicted: Tags) -> float:
    """Micro F1 over spans: a span is right if its words and its type are."""
    from seqeval.metrics import f1_score

    return float(f1_score(gold, predicted, average="micro", zero_division=0))


def score(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Every score of one split, as fractions in [0, 1].

    precision, recall, f1: micro, over spans. per_type: the same for each type, with its number of gold spans.
    word_f1: micro F1 over words, where a word counts if its type is right, B- or I- alike, and O counts for nothing.
    entity_word_recall: the share of words inside gold spans that got the right type.
    accuracy: the share of words with the right tag.
    """
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    precision, recall, f1, support = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)
    by_type = precision_recall_fscore_support(gold, predicted, average=None, zero_division=0)
    types = sorted({tag[2:] for tags in (*gold, *predicted) for tag in tags if tag != "O"})
    pairs = [(g, p) for gs, ps in zip(gold, predicted, strict=True) for g, p in zip(gs, ps, strict=True)]
    in_gold = sum(g != "O" for g, _ in pairs)
    in_predicted = sum(p != "O" for _, p in pairs)
    right = sum(g != "O" and g[2:] == p[2:] for g, p in pairs)
    return {
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
        "spans": int(support),
        "per_type": {
            kind: {"precision": float(p), "recall": float(r), "f1": float(f), "spans": int(n)}
            for kind, p, r, f, n in zip(types, *by_type, strict=True)
        },
        "word_f1": 2 * right / (in_gold + in_predicted) if in_gold + in_predicted else 0.0,
        "entity_word_recall": right / in_gold if in_gold else 0.0,
        "accuracy": sum(g == p for g, p in pairs) / len(pairs) if pairs else 0.0,
    }
