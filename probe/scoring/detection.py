"""Scores the detection of one label of two, by the order in which a probe puts the texts.

A prediction is the log-odds of the label to be detected, written as a decimal number. The counts of a split hold
ranks, so that scores can be computed again without text. A text whose gold label is to be detected is positive.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probe.scoring.metrics import Counts, Scores, count_items, scores_of
from probe.scoring.score import Score
from probe.scoring.tags import Tags

NEGATIVE, POSITIVE = "0", "1"  # the labels inside the package
FALSE_POSITIVES = 0.01  # the share of negative texts that may be called positive
FEWEST_NEGATIVES = 300  # with fewer, three or less of them decide where a share of 0.01 is


def counts(gold: Tags, predicted: Tags) -> Counts:
    """Counts as of labels that are given where the log-odds are above 0; adds the rank of each text, from 0."""
    log_odds = np.array([float(value) for (value,) in predicted])
    decided = [[POSITIVE if value > 0 else NEGATIVE] for value in log_odds]
    ranks = np.unique(log_odds, return_inverse=True)[1]
    return count_items(gold, decided, lambda labels: [(labels[0], 0, 1)]) | {"rank": ranks.tolist()}


def _ranked(counts: Counts) -> np.ndarray:
    """Returns (texts, 2): whether a text is positive, and its rank."""
    return np.stack([counts[f"gold:{POSITIVE}"], counts["rank"]], 1)


def _of_both_labels(ranked: np.ndarray) -> np.ndarray:
    return np.stack([1 - ranked[:, 0], ranked[:, 0]], 1)


def placements(ranked: np.ndarray) -> np.ndarray:
    """Returns of each positive text the share of negative ones below it, and of each negative that of positive above.

    Equal ranks count half (DeLong, DeLong & Clarke-Pearson 1988).
    """
    from scipy.stats import rankdata

    is_positive, rank = ranked[:, 0] == 1, ranked[:, 1]
    placed = rankdata(rank)
    for own in (is_positive, ~is_positive):
        placed[own] = (placed[own] - rankdata(rank[own])) / max(1, (~own).sum())  # the others below, and half of equals
    return np.where(is_positive, placed, 1 - placed)


def auroc(ranked: np.ndarray) -> float:
    """Returns the probability that a positive text stands above a negative one."""
    return float(placements(ranked)[ranked[:, 0] == 1].mean())


def auroc_influence(ranked: np.ndarray, unit_of: np.ndarray) -> np.ndarray:
    """Returns how much each unit moves the AUROC: its placements, summed over the unit (Obuchowski 1997).

    They are scaled for what is left of each label without the unit, as where it is left out.
    """
    is_positive, above = ranked[:, 0] == 1, placements(ranked) - auroc(ranked)
    influence = np.zeros(int(unit_of.max()) + 1)
    for own in (is_positive, ~is_positive):
        of_unit = np.bincount(unit_of, own)
        influence += np.bincount(unit_of, above * own) / np.maximum(1, of_unit.sum() - of_unit)
    return influence


def threshold(gold: Tags, predicted: Tags) -> float | None:
    """Returns the log-odds above which a share of FALSE_POSITIVES of negative texts lies; None if these are too few."""
    pairs = zip(gold, predicted, strict=True)
    return _quantile(np.array([float(value) for (label,), (value,) in pairs if label == NEGATIVE]))


def _quantile(negative: np.ndarray) -> float | None:
    """Returns the value above which at most FALSE_POSITIVES of these lie; None if they are too few."""
    if len(negative) < FEWEST_NEGATIVES:
        return None
    return float(np.sort(negative)[::-1][int(FALSE_POSITIVES * len(negative))])


def scores(counts: Counts) -> Scores:
    """Adds recall at a share of FALSE_POSITIVES and average precision to the scores that all tasks have."""
    from sklearn.metrics import average_precision_score

    is_positive, rank = _ranked(counts).T
    above = _quantile(rank[is_positive == 0])
    return replace(
        scores_of(counts),
        recall_at_1=None if above is None else float((rank[is_positive == 1] > above).mean()),
        average_precision=float(average_precision_score(is_positive, rank)),
    )


def by_scikit_learn(gold: Tags, predicted: Tags) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score([label == POSITIVE for (label,) in gold], [float(value) for (value,) in predicted]))


AUROC = Score("AUROC", "AUROC", _ranked, auroc, auroc_influence, _of_both_labels)
