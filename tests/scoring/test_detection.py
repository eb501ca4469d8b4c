"""Detection of one label of two: what scikit-learn computes, and what leaving out a group would change."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from probe.data.tasks import TASKS
from probe.scoring.detection import AUROC, FEWEST_NEGATIVES, auroc, counts, threshold
from probe.scoring.significance import Units

DETECTION = TASKS["detection"]


def drawn(seed: int, texts: int = 800, share: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Labels and log-odds with many equal values."""
    draw = np.random.default_rng(seed)
    positive = (draw.random(texts) < share).astype(int)
    return positive, np.round(draw.normal(positive * 1.2, 1), 1)


def as_tags(positive: np.ndarray, odds: np.ndarray) -> tuple[list[list[str]], list[list[str]]]:
    return [[str(label)] for label in positive], [[f"{value:.9g}"] for value in odds]


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_scikit_learn(seed: int):
    positive, odds = drawn(seed)
    scores = DETECTION.scores(counts(*as_tags(positive, odds)))
    assert scores.headline == pytest.approx(roc_auc_score(positive, odds), abs=1e-12)
    assert scores.average_precision == pytest.approx(average_precision_score(positive, odds), abs=1e-12)
    false, true, _ = roc_curve(positive, odds, drop_intermediate=False)
    assert scores.recall_at_1 == pytest.approx(true[false <= 0.01].max(), abs=1e-12)
    assert scores.accuracy == pytest.approx(((odds > 0) == positive).mean())


def test_a_threshold_is_what_one_percent_of_the_other_texts_exceed():
    positive, odds = drawn(0, 5000)
    above = threshold(*as_tags(positive, odds))
    assert above is not None
    others = odds[positive == 0]
    assert (others > above).mean() <= 0.01 < (others >= above).mean()
    few = positive.copy()
    few[np.flatnonzero(positive == 0)[FEWEST_NEGATIVES - 1 :]] = 1
    assert threshold(*as_tags(few, odds)) is None
    assert DETECTION.scores(counts(*as_tags(few, odds))).recall_at_1 is None


def test_a_group_moves_the_score_as_leaving_it_out_does():
    positive, odds = drawn(1, 2000)
    unit_of = np.random.default_rng(2).integers(40, size=len(positive))
    ranked = AUROC.statistics(counts(*as_tags(positive, odds)))
    without = np.array([auroc(ranked) - auroc(ranked[unit_of != unit]) for unit in range(40)])
    assert AUROC.influence is not None
    assert AUROC.influence(ranked, unit_of) == pytest.approx(without, abs=0.05 * np.abs(without).max())


def test_the_error_is_that_of_other_groups():
    """Groups of unequal size with an effect of their own: the error is that between texts of other groups."""
    draw = np.random.default_rng(3)
    values, errors = [], []
    for _ in range(300):
        unit_of = np.repeat(np.arange(60), draw.integers(4, 30, 60))
        positive = (draw.random(len(unit_of)) < 0.4).astype(int)
        odds = 1.5 * positive + draw.normal(0, 0.7, 60)[unit_of] + draw.normal(0, 1, len(unit_of))
        ranked = AUROC.statistics(counts(*as_tags(positive, odds)))
        assert AUROC.influence is not None
        moves = AUROC.influence(ranked, unit_of)
        values.append(auroc(ranked))
        errors.append(np.sqrt((moves**2).sum() * 59 / 60))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_a_label_that_one_group_has_says_nothing_of_other_groups():
    positive = np.array([1] * 20 + [0] * 80)
    unit_of = np.array([0] * 20 + [1 + k % 10 for k in range(80)])
    ranked = np.stack([positive, np.arange(100)], 1)
    assert Units(AUROC.items(ranked), unit_of, "groups").effective == pytest.approx(1)
    assert Units(AUROC.items(1 - ranked), unit_of, "groups").effective == pytest.approx(1)
    assert Units(AUROC.items(ranked), unit_of, "groups").items == 20
