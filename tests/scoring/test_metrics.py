"""Scores against seqeval and against counts made by hand."""

from __future__ import annotations

import random

import pytest
import sklearn.metrics
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from probe.data.tags import spans, to_iob2
from probe.data.task import SPANS, TAGS, Task
from probe.scoring.metrics import accuracy, count, scores_of, slices, span_f1
from probe.system.files import to_jsonable

CHOICES = ["O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG", "B-ORG"]


def random_tags(seed: int) -> list[list[str]]:
    choose = random.Random(seed)
    lengths = random.Random(0)
    return [[choose.choice(CHOICES) for _ in range(lengths.randint(1, 12))] for _ in range(30)]


def score(gold: list[list[str]], predicted: list[list[str]], task: Task = SPANS) -> dict:
    return to_jsonable(scores_of(count(gold, predicted, task)))


@pytest.mark.parametrize("seed", range(30))
def test_scores_equal_seqevals_default_mode_on_ill_formed_tags_too(seed: int):
    gold, predicted = random_tags(2 * seed + 1), random_tags(2 * seed + 2)
    ours = score(gold, predicted)
    theirs = classification_report(gold, predicted, output_dict=True, zero_division=0)
    assert ours["span"]["f1"] == pytest.approx(span_f1(gold, predicted))
    assert span_f1(gold, predicted) == pytest.approx(f1_score(gold, predicted))
    assert ours["span"]["precision"] == pytest.approx(theirs["micro avg"]["precision"])
    assert ours["counts"]["gold"] == theirs["micro avg"]["support"]
    for kind, scores in ours["per_type"].items():
        assert scores["f1"] == pytest.approx(theirs[kind]["f1-score"])
        assert scores["gold"] == theirs[kind]["support"]


@pytest.mark.parametrize("seed", range(30))
def test_strict_scores_equal_seqevals_strict_mode(seed: int):
    gold, predicted = random_tags(2 * seed + 1), random_tags(2 * seed + 2)
    ours = score(gold, predicted)["strict"]
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        theirs = function(gold, predicted, mode="strict", scheme=IOB2, average="micro", zero_division=0)
        assert ours[name] == pytest.approx(theirs)


@pytest.mark.parametrize("seed", range(10))
def test_tags_that_are_no_spans_are_scored_as_scikit_learn_does(seed: int):
    gold, predicted = random_tags(2 * seed + 1), random_tags(2 * seed + 2)
    ours = score(gold, predicted, TAGS)
    flat = [[tag for sentence in tags for tag in sentence] for tags in (gold, predicted)]
    assert ours["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(*flat)) == accuracy(gold, predicted)
    assert ours["macro_f1"] == pytest.approx(sklearn.metrics.f1_score(*flat, average="macro", zero_division=0))
    assert "span" not in ours


def test_counts_are_kept_for_each_sentence():
    gold = [["B-PER", "I-PER", "O"], ["O"], ["B-LOC", "B-PER"]]
    predicted = [["B-PER", "I-PER", "I-LOC"], ["O"], ["B-LOC", "O"]]
    counts = count(gold, predicted, SPANS)
    assert counts["words"] == [3, 1, 2]
    assert counts["gold:PER"] == [1, 0, 1]
    assert counts["predicted:LOC"] == [1, 0, 1]
    assert counts["correct:LOC"] == [0, 0, 1]
    assert counts["strict_predicted"] == [1, 0, 1]
    assert counts["ill_formed"] == [1, 0, 0]


def test_slices_by_hand():
    words = [["Ada", "Moss", "sings"], ["OSLO", "WINS", "3"]]
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "O"]]
    predicted = [["B-PER", "I-PER", "O"], ["B-ORG", "O", "O"]]
    found = to_jsonable(slices(words, gold, predicted, {"OSLO", "Ada"}, SPANS))
    assert found["with unseen words"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "gold": 1}
    assert found["seen words only"]["f1"] == found["sentence in capitals"]["f1"] == 0.0
    assert found["span of 2"]["recall"] == 1.0
    assert found["span of 1"]["gold"] == 1
    assert found["sentence of 1-10 words"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "gold": 2}


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
    assert scores["span"]["f1"] == 0.0  # no span is whole
    assert scores["word"]["f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert scores["entity_word_recall"] == pytest.approx(2 / 3)
    assert scores["accuracy"] == pytest.approx(2 / 5)


def test_nothing_to_find_and_nothing_found_is_no_crash():
    assert score([["O", "O"]], [["O", "O"]])["span"]["f1"] == 0.0
    assert score([["B-PER"]], [["O"]])["span"]["f1"] == 0.0
