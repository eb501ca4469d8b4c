"""Scores and baselines of the tasks, against seqeval, scikit-learn, and what is made by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import sklearn.metrics
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2
from support.inputs import COMMON

from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.data.task import Task
from probe.data.tasks import SENTENCE, SPANS, TAGS
from probe.data.tasks.spans import span_f1
from probe.data.tasks.tags import accuracy
from probe.scoring.tags import spans, to_iob2
from probe.system.files import to_jsonable

CHOICES = ["O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-ORG", "B-ORG"]


def random_tags(seed: int) -> list[list[str]]:
    choose = random.Random(seed)
    lengths = random.Random(0)
    return [[choose.choice(CHOICES) for _ in range(lengths.randint(1, 12))] for _ in range(30)]


def split_of(words: Sequence, tags: Sequence) -> Split:
    return Split(list(words), list(tags), None, [0] * len(words), "made")


def score(gold: list[list[str]], predicted: list[list[str]], task: Task = SPANS) -> dict:
    return to_jsonable(task.scores(task.counts(gold, predicted)))


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
    counts = SPANS.counts(gold, predicted)
    assert counts["words"] == [3, 1, 2]
    assert counts["gold:PER"] == [1, 0, 1]
    assert counts["predicted:LOC"] == [1, 0, 1]
    assert counts["correct:LOC"] == [0, 0, 1]
    assert counts["strict_predicted"] == [1, 0, 1]
    assert counts["ill_formed"] == [1, 0, 0]


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
    assert scores["accuracy"] == pytest.approx(2 / 5)


def test_nothing_to_find_and_nothing_found_is_no_crash():
    assert score([["O", "O"]], [["O", "O"]])["span"]["f1"] == 0.0
    assert score([["B-PER"]], [["O"]])["span"]["f1"] == 0.0


def test_scores_are_scikit_learns():
    draw = np.random.default_rng(0)
    for classes in (2, 5):
        gold, predicted = (draw.choice([f"class {i}" for i in range(classes)], 200, p=None) for _ in range(2))
        predicted[:120] = gold[:120]
        scores = SENTENCE.scores(SENTENCE.counts([[tag] for tag in gold], [[tag] for tag in predicted]))
        assert scores.headline == pytest.approx(sklearn.metrics.accuracy_score(gold, predicted))
        assert scores.macro_f1 == pytest.approx(sklearn.metrics.f1_score(gold, predicted, average="macro"))


def test_each_word_gets_its_most_frequent_tag(tiny_corpus: Corpus):
    train, dev = tiny_corpus.splits["train"], tiny_corpus.splits["dev"]
    pairs = [
        pair for words, tags in zip(train.words, train.tags, strict=True) for pair in zip(words, tags, strict=True)
    ]
    by_word: dict[str, Counter[str]] = {}
    for word, tag in sorted(pairs):
        by_word.setdefault(word, Counter())[tag] += 1
    default = Counter(tag for _, tag in pairs).most_common(1)[0][0]
    unknown = [[*words, "zzz"] for words in dev.words]
    expected = [[by_word[w].most_common(1)[0][0] if w in by_word else default for w in words] for words in unknown]
    assert TAGS.baselines["none"](train).predict(unknown) == expected


def test_the_longest_known_mention_is_taken():
    def split(text: str) -> tuple[list[str], list[str]]:
        words, tags = zip(*(pair.split("/") for pair in text.split()), strict=True)
        return list(words), list(tags)

    train = [
        split("New/B-LOC York/I-LOC met/O Bob/B-PER Smith/I-PER"),
        split("New/B-ORG York/I-ORG Times/I-ORG won/O"),
        split("New/B-LOC York/I-LOC"),
        split("may/O be/O May/B-PER may/O"),
        split("May/O May/O 5/O"),
    ]
    memory = SPANS.baselines["none"](split_of(*zip(*train, strict=True)))
    asked = [
        ("New York Times in New York", "B-ORG I-ORG I-ORG O B-LOC I-LOC"),
        ("May Bob Smith may", "O B-PER I-PER O"),
        ("Ann Smith", "O I-PER"),  # the word by itself: it was never a mention alone
        ("New", "B-LOC"),
        ("", ""),
    ]
    assert memory.predict([text.split() for text, _ in asked]) == [tags.split() for _, tags in asked]


def test_nothing_remembered_is_everything_the_most_frequent_tag():
    memory = SPANS.baselines["none"](split_of([["a", "b"]], [["O", "O"]]))
    assert memory.predict([["c", "a"]]) == [["O", "O"]]
    assert len(memory) == 2


def test_the_baseline_is_scikit_learns_naive_bayes():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    bayes = pytest.importorskip("sklearn.naive_bayes")
    choose = random.Random(1)
    words = [choose.choices(COMMON, k=choose.randint(1, 8)) for _ in range(80)]
    labels = [choose.choice("abc") for _ in words]
    counts = text.CountVectorizer(analyzer=lambda sentence: sentence)
    theirs = bayes.MultinomialNB().fit(counts.fit_transform(words[:60]), labels[:60])
    ours = SENTENCE.baselines["none"](split_of(words[:60], [[label] for label in labels[:60]]))
    expected = [[label] for label in theirs.predict(counts.transform(words[60:])).tolist()]
    assert ours.predict(words[60:]) == expected
    assert ours.predict([["unseen"]])[0][0] in labels
