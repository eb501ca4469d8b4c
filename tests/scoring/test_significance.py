"""Statistics against scipy, and against results that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from probe.scoring.significance import (
    Cell,
    effective_number,
    interval,
    summary,
    units_of,
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


def test_units_are_documents_or_blocks_of_neighbours():
    documents = np.array([7, 7, 3, 3, 3, 9])
    units, name = units_of(6, documents)
    assert (list(units), name) == ([1, 1, 0, 0, 0, 2], "documents")
    assert effective_number(np.ones((6, 3)), units) == pytest.approx(36 / (4 + 9 + 1))
    for sentences, size in ((100, 30), (3250, 181)):
        units, name = units_of(sentences, None)
        assert str(size) in name
        assert max(np.bincount(units)) == size
        assert list(units) == sorted(units)


def test_what_neighbouring_blocks_have_in_common_adds_to_the_variance():
    draw = np.random.default_rng(3)
    independent = draw.normal(size=(40, 1, 18))
    alone = with_neighbours(list(independent))
    assert alone is not None
    assert 1.0 <= float(np.mean(np.square(alone)) / np.mean(np.square(independent))) < 1.2
    smooth = independent + 0.15 * np.roll(independent, 1, axis=2)
    some = with_neighbours(list(smooth))
    assert some is not None
    assert 1.25 < float(np.mean(np.square(some)) / np.mean(np.square(smooth))) < 1.7
    assert with_neighbours(list(independent + np.roll(independent, 1, axis=2))) is None, "a document of two blocks"


def test_a_summary_says_nothing_of_spread_for_one_seed():
    assert summary([0.5]) == Cell(mean=0.5, std=None, interval=None)
    assert summary([]).mean is None
    assert summary(A).std == pytest.approx(np.std(A, ddof=1))
