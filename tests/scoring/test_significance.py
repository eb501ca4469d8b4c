"""Statistics against scipy, and against results that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from probe.scoring.significance import (
    Cell,
    approximate_randomisation,
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


def test_randomisation_over_few_sentences_has_the_p_of_counting_all_swaps():
    a = np.array([[2, 2, 2], [3, 3, 2], [1, 2, 1], [2, 2, 2]])
    b = np.array([[2, 2, 1], [3, 3, 1], [1, 2, 1], [2, 3, 1]])

    def f1(rows):
        gold, predicted, correct = rows.sum(0)
        return 2 * correct / (gold + predicted)

    observed = abs(f1(a) - f1(b))
    extreme = 0
    for swaps in np.ndindex(2, 2, 2, 2):
        side = np.array(swaps)[:, None] == 1
        extreme += abs(f1(np.where(side, b, a)) - f1(np.where(side, a, b))) >= observed - 1e-12
    found = approximate_randomisation(a, b)
    assert found.difference == pytest.approx(f1(a) - f1(b))
    assert found.p == pytest.approx(extreme / 16, abs=0.02)


def test_randomisation_agrees_with_scipys_paired_permutation_test():
    draw = np.random.default_rng(3)
    gold = draw.integers(1, 4, 60)
    a, b = (np.stack([gold, gold, np.minimum(gold, draw.integers(0, 4, 60))], 1) for _ in range(2))
    ours = approximate_randomisation(a, b)
    # With as many spans predicted as there are, F1 is the share of correct ones: a difference of sums.
    theirs = scipy.stats.permutation_test(
        (a[:, 2], b[:, 2]), lambda x, y, axis: np.sum(x - y, axis=axis), permutation_type="samples", rng=1
    )
    assert ours.p == pytest.approx(theirs.pvalue, abs=0.02)


def test_sentences_of_one_document_change_sides_together():
    rows = np.array([[1, 1, 1], [1, 1, 0]] * 20)
    other = rows[::-1].copy()
    documents = np.repeat(np.arange(20), 2)
    assert approximate_randomisation(rows, other, documents).units == 20
    one_document = approximate_randomisation(rows, rows * [1, 1, 0], np.zeros(40, dtype=int))
    assert one_document.p == 1.0, "with one unit both divisions are as extreme"
    assert approximate_randomisation(rows, rows * [1, 1, 0]).p < 0.001


def test_counts_of_two_texts_cannot_be_paired():
    with pytest.raises(ValueError, match=r"2 .* 3 "):
        approximate_randomisation(np.zeros((2, 3)), np.zeros((3, 3)))


def test_a_true_null_is_rejected_as_often_as_it_should_be():
    draw = np.random.default_rng(5)
    rejected = 0
    for trial in range(200):
        gold = draw.integers(0, 4, 50)
        a, b = (np.stack([gold, gold, draw.binomial(gold, 0.8)], 1) for _ in range(2))
        rejected += approximate_randomisation(a, b, shuffles=400, seed=trial).p < 0.05
    assert 2 <= rejected <= 22  # 10 expected; beyond these bounds once in some thousand
