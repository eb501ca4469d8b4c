"""Scores of predicted numbers against scipy, and the interval of Spearman's correlation against the truth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from support.spearman import coverage

from probe.data.task import NUMBERS
from probe.scoring.compare import Comparison, Sample
from probe.scoring.metrics import count, mid_ranks, problem_of, scores_of, spearman
from probe.scoring.significance import rank_influence


def some(seed: int, rows: int = 80, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    gold = draw.standard_normal(rows)
    predicted = gold + draw.standard_normal(rows)
    return (gold, predicted) if levels is None else (np.round(gold * levels), np.round(predicted * levels))


@pytest.mark.parametrize("levels", [None, 1, 3])
def test_scores_are_those_of_scipy(levels: int | None):
    gold, predicted = some(0, levels=levels)
    counts = count([[repr(float(x))] for x in gold], [[repr(float(x))] for x in predicted], NUMBERS)
    scores = scores_of(counts)
    assert scores.numbers is not None
    assert scores.headline == pytest.approx(scipy.stats.spearmanr(gold, predicted).statistic)
    assert scores.numbers.pearson == pytest.approx(scipy.stats.pearsonr(gold, predicted).statistic)
    assert scores.numbers.squared_error == pytest.approx(np.mean((gold - predicted) ** 2))
    assert scores.numbers.variance == pytest.approx(np.var(gold))
    assert problem_of(counts) is None
    assert problem_of({**counts, "predicted": counts["predicted"][1:]})


def test_a_constant_prediction_has_no_correlation_and_scores_zero():
    scores = scores_of(count([["1.0"], ["2.0"], ["4.0"]], [["2.0"]] * 3, NUMBERS))
    assert scores.numbers is not None
    assert (scores.headline, scores.numbers.pearson) == (0, 0)
    assert not rank_influence(np.array([1.0, 2.0, 4.0]), np.full(3, 2.0)).any()


@pytest.mark.parametrize("levels", [None, 1])
def test_influence_is_the_derivative_by_a_rows_weight(levels: int | None):
    gold, predicted = some(1, 30, levels)
    moves = rank_influence(gold, predicted)
    assert moves.sum() == pytest.approx(0, abs=1e-12)
    copies = 2000
    for row in (0, 7, 29):  # one more copy of a row among very many of each changes its weight by very little
        more = [np.append(np.repeat(side, copies), side[row]) for side in (gold, predicted)]
        change = (spearman(*more) - spearman(gold, predicted)) * copies
        assert change == pytest.approx(moves[row], abs=2e-4)


def test_mid_ranks_are_scipys_ranks():
    gold, _ = some(2, levels=1)
    np.testing.assert_allclose(mid_ranks(gold) * len(gold), scipy.stats.rankdata(gold) - 0.5)


def test_units_add_up_their_rows():
    gold, predicted = some(3)
    documents = np.arange(80) // 4
    by_row = rank_influence(gold, predicted)
    np.testing.assert_allclose(rank_influence(gold, predicted, documents), by_row.reshape(20, 4).sum(1))


def test_rows_that_truly_agree_are_seldom_called_different_and_intervals_cover():
    for found in coverage(tables=100, rows=250, truths=("middle",)):
        assert found["difference"] > 0.88, found
        assert found["mean"] > 0.88, found
        assert found["wrongly_worse"] < 0.12, found


def test_a_comparison_takes_the_influence_of_ranks():
    gold, one = some(4, 200)
    draw = np.random.default_rng(5)
    rows = []
    for noise in (0.0, 4.0):
        predictions = [one + noise * draw.standard_normal(200) for _ in range(3)]
        influences = np.stack([rank_influence(gold, found) for found in predictions])
        rows.append(Sample([spearman(gold, found) for found in predictions], influences))
    assert Comparison(rows).separated() == [(0, 1)]
