"""Compares rows by pairs of runs with the same seed: for rows that were trained on a part of train.

A seed draws one sample for all rows, and what a row scores depends on the sample more than on anything else: at 1 % of
CoNLL-2003 the deviation over seeds is 9 points, that of two rows' difference 1.5. So the difference is taken within
each seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from probe.scoring.significance import Cell, interval
from probe.tables.row import Row


def by_seed(row: Row) -> dict[int, float]:
    """Gives a row's dev score for each seed."""
    return {record.seed: record.scores.dev.headline for record in row.records.values()}


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Cell | None:
    """Gives the mean of a - b over the seeds that both have, its deviation, and the 95 % interval of a paired t test.

    None where they share no seed; no deviation or interval where they share one.
    """
    differences = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    if not differences:
        return None
    mean = fmean(differences)
    if len(differences) < 2:
        return Cell(mean, None, min(differences), max(differences), None)
    return Cell(mean, stdev(differences), min(differences), max(differences), interval(differences))


def to_best_of_sample(row: Row, rows: Sequence[Row]) -> Cell | None:
    """Subtracts the dev score of the best row on the same samples from a row's, paired by seed.

    rows: those of its table. The best has the highest mean of the rows with the same condition and as many seeds as any
    of them. None for the best itself, and where there is no other.
    """
    same = [other for other in rows if other.n and other.recorded_condition == row.recorded_condition and other.indices]
    most = max((other.n for other in same), default=0)
    best = max((other for other in same if other.n == most), key=lambda other: other.dev_mean, default=row)
    shared = by_seed(row).keys() & by_seed(best).keys()
    if best is row or (best.indices, best.combine) == (row.indices, row.combine) or not shared:
        return None
    return paired_difference(by_seed(row), by_seed(best))
