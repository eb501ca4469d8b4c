"""Statistics against scipy, and against results that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from probe.scoring.significance import (
    Cell,
    interval,
    summary,
    units_of,
)

A = [0.912, 0.921, 0.915, 0.930, 0.918]
B = [0.905, 0.913, 0.909, 0.917, 0.920]


@pytest.mark.parametrize("values", [A, A[:3], A[:2], [0.2, 0.8], [*A, *B]])
def test_the_interval_of_a_mean_is_scipys_of_students_t(values):
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values) == pytest.approx([theirs.low, theirs.high], rel=1e-5)


@pytest.mark.parametrize(("a", "b"), [(A, B), (A[:3], B[:2]), (A[:2], B[:2]), (A, [0.1, 0.9]), (A * 40, B)])
def test_the_interval_of_a_difference_is_scipys_of_welchs_t(a, b):
    theirs = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert interval(a, b) == pytest.approx([theirs.low, theirs.high], rel=1e-5)


def test_the_interval_of_values_that_are_all_one_is_that_value():
    assert interval([0.5, 0.5, 0.5], [0.6, 0.6]) == pytest.approx([-0.1, -0.1])


def test_a_few_documents_are_not_the_units_of_a_test():
    many, few = np.arange(400) // 4, np.zeros(400, dtype=int)
    units = units_of(many, list(many))
    assert units is not None
    assert list(units) == list(many)
    assert units_of(few, few) is None, "one mark at the top of a file, and nothing could be told apart"
    assert units_of(np.arange(400) // 100, np.arange(400) // 100) is None
    assert units_of(many, many[::-1]) is units_of(None, many) is None


def test_a_summary_says_nothing_of_spread_for_one_seed():
    assert summary([0.5]) == Cell(mean=0.5, std=None, min=0.5, max=0.5, interval=None)
    assert summary([]).mean is None
    assert summary(A).std == pytest.approx(np.std(A, ddof=1))
