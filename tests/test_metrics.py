"""Scores against seqeval and against counts made by hand."""

from __future__ import annotations

import random

import pytest
from seqeval.metrics import classification_report, f1_score

from probe.corpus import spans, to_iob2
from probe.metrics import score, span_f1

TAGS = ["O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG", "B-ORG"]


def random_tags(seed: int) -> list[list[str]]:
    choose = random.Random(seed)
    lengths = random.Random(0)
    return [[choose.choice(TAGS) for _ in range(lengths.randint(1, 12))] for _ in range(30)]


@pytest.mark.parametrize("seed", range(30))
def test_scores_equal_seqevals_default_mode_on_ill_formed_tags_too(seed: int):
    gold, predicted = random_tags(2 * seed + 1), random_tags(2 * seed + 2)
    ours = score(gold, predicted)
    theirs = classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert ours["f1"] == span_f1(gold, predicted) == pytest.approx(f1_score(gold, predicted))
    assert ours["precision"] == pytest.approx(theirs["micro avg"]["precision"])
    for kind, scores in ours["per_type"].items():
        assert scores["f1"] == pytest.approx(theirs[kind]["f1-score"])
        assert scores["spans"] == theirs[kind]["support"]


@pytest.mark.parametrize("seed", range(30))
def test_our_reading_of_spans_is_seqevals(seed: int):
    from seqeval.metrics.sequence_labeling import get_entities

    for tags in random_tags(seed):
        ours = [(kind, start, end - 1) for kind, start, end in spans(tags)]
        assert ours == get_entities(tags)
        assert get_entities(to_iob2(tags)) == ours


def test_word_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O"]]
    predicted = [["B-PER", "B-PER", "O", "B-ORG", "B-LOC"]]
    scores = score(gold, predicted)
    assert scores["f1"] == 0.0  # no span is whole
    assert scores["word_f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert scores["entity_word_recall"] == pytest.approx(2 / 3)
    assert scores["accuracy"] == pytest.approx(2 / 5)


def test_nothing_to_find_and_nothing_found_is_no_crash():
    assert score([["O", "O"]], [["O", "O"]])["f1"] == 0.0
    assert score([["B-PER"]], [["O"]])["f1"] == 0.0
