"""Statistics against scipy, and against results that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from probe.scoring.significance import (
    Cell,
    Units,
    interval,
    summary,
    with_neighbours,
)

A = [0.912, 0.921, 0.915, 0.930, 0.918]
B = [0.905, 0.913, 0.909, 0.917, 0.920]


@pytest.mark.parametrize("values", [A, A[:3], A[:2], [0.2, 0.8], [*A, *B]])
def test_the_interval_of_a_mean_is_scipys_of_students_t(values):
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values) == pytest.approx([theirs.low, theirs.high], rel=1e-5)


def test_the_interval_of_values_that_are_all_one_is_that_value():
    assert interval([0.5, 0.5, 0.5]) == [0.5, 0.5]


def test_units_are_documents_or_blocks_of_neighbours_or_sentences():
    documents, counts = np.array([7, 7, 3, 3, 3, 9]), np.ones((6, 3))
    marked = Units.of(counts[:, 0], documents, None)
    assert (list(marked.unit_of), marked.condition, marked.items) == ([1, 1, 0, 0, 0, 2], "", 6)
    assert marked.effective == pytest.approx(36 / (4 + 9 + 1))
    for sentences, size in ((100, 30), (3250, 181)):
        blocks = Units.of(np.ones(sentences), None, "document")
        assert str(size) in blocks.name
        assert max(np.bincount(blocks.unit_of)) == size
        assert list(blocks.unit_of) == sorted(blocks.unit_of)
        assert (blocks.are_blocks, blocks.condition) == (True, "")
    stated, unknown = (Units.of(counts[:, 0], None, order) for order in ("independent", None))
    assert list(stated.unit_of) == list(unknown.unit_of) == [*range(6)]
    assert (stated.factor, stated.condition) == (1, "")
    assert unknown.factor > 1
    assert unknown.condition, "what the label rests on"


def test_what_neighbouring_blocks_have_in_common_adds_to_the_variance():
    draw = np.random.default_rng(3)
    independent = draw.normal(size=(40, 1, 18))
    alone, effective = with_neighbours(list(independent), 18)
    assert effective == 18
    assert 1.0 <= float(np.mean(np.square(alone)) / np.mean(np.square(independent))) < 1.2
    smooth = independent + 0.15 * np.roll(independent, 1, axis=2)
    some, effective = with_neighbours(list(smooth), 18)
    assert effective == 18
    assert 1.25 < float(np.mean(np.square(some)) / np.mean(np.square(smooth))) < 1.7


def test_blocks_within_longer_documents_are_joined_until_they_are_not():
    draw = np.random.default_rng(4)
    joined, effective = with_neighbours(list(np.repeat(draw.normal(size=(40, 1, 18)), 2, axis=2)), 36)
    assert (joined[0].shape, effective) == ((1, 18), 18), "documents of two blocks"
    assert with_neighbours(list(np.repeat(draw.normal(size=(40, 1, 3)), 6, axis=2)), 18)[1] == 0, "of six, three in all"
    assert with_neighbours(list(draw.normal(size=(40, 1, 3))), 3)[1] == 0, "three blocks say nothing of documents"


def test_a_summary_says_nothing_of_spread_for_one_seed():
    assert summary([0.5]) == Cell(mean=0.5, std=None, interval=None)
    assert summary([]).mean is None
    assert summary(A).std == pytest.approx(np.std(A, ddof=1))
