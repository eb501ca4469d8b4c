"""Whether sentences stand in the order of documents."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from probe.data.corpus import load_corpus
from probe.data.order import IN_ORDER, neighbours_in_common, order_of
from probe.scoring.significance import DOCUMENT, INDEPENDENT
from probe.settings import config_of


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    return list(load_corpus(config_of(["data=demo"]).data).splits["dev"].words)


def by_hand(sentences: list[list[str]]) -> int:
    """How many words of two to N/50 sentences a sentence has in common with the next one, in all."""
    every = [word for words in sentences for word in {*words}]
    rare = {word for word in every if 2 <= every.count(word) <= max(2, len(sentences) // 50)}
    return sum(len(rare & {*one} & {*other}) for one, other in itertools.pairwise(sentences))


def test_a_text_in_order_has_more_in_common_than_shuffled_ones(sentences: list[list[str]]):
    few, draw = sentences[:120], np.random.default_rng(5)
    shuffled = [by_hand([few[i] for i in draw.permutation(len(few))]) for _ in range(100)]
    expected = (by_hand(few) - np.mean(shuffled)) / np.std(shuffled)
    assert neighbours_in_common(few) == pytest.approx(expected, rel=0.2), "100 other shuffles"
    assert neighbours_in_common(sentences) > IN_ORDER


def test_shuffled_sentences_hardly_ever_look_as_if_in_order(sentences: list[list[str]]):
    found = []
    for seed in range(40):
        shuffled = sentences[:]
        random.Random(seed).shuffle(shuffled)
        found.append(neighbours_in_common(shuffled))
    assert max(found) < IN_ORDER
    assert abs(float(np.mean(found))) < 0.5


def test_what_is_stated_comes_before_what_was_found():
    assert order_of(None, {"dev": IN_ORDER}, "dev") == DOCUMENT
    assert order_of(None, {"dev": 0.1}, "dev") is None
    assert order_of(None, None, "dev") is None
    assert order_of(INDEPENDENT, {"dev": 99.0}, "dev") == INDEPENDENT


def test_sentences_without_a_word_in_common_are_in_no_order():
    assert neighbours_in_common([[f"word{number}"] for number in range(50)]) == 0.0
