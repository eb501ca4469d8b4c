"""Decides on dev which row of a table is best, how far each lies behind, and which are worse.

The test split is compared too, and shown; it changes no label.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

from probe.conditions import MAIN
from probe.runs.samples import SPLITS, run_counts, samples_of
from probe.scoring.compare import Comparison
from probe.tables.row import Row

BEST, WORSE, WITHIN, UNDECIDED = "best", "worse", "within the margin", "undecided"
UNCONVERGED = "not converged"


def label_rows(rows: Sequence[Row], margin: float) -> list[Row]:
    """Labels one table's rows, and says how far each lies behind the best one.

    margin: points of dev score that the user does not mind. best: the highest dev mean; a row with fewer seeds than
    others must lead by more than luck (`scoring.compare.place_of_best`). within the margin: the whole interval of how
    far the row lies behind the truly best one is above -margin. worse: the whole interval is below 0. undecided:
    neither. Whether both hold for other text says `Row.cover`. A row that is both is within the margin. Rows
    whose runs did not all converge are not compared. Baselines and upper bounds get no label.
    """
    rows = [replace(row, margin=margin, label=UNCONVERGED if row.unconverged else None) for row in rows]
    ranked = [row for row in rows if row.section == MAIN and row.n and row.label is None]
    if len(ranked) < 2 or max(row.n for row in ranked) < 2:
        return rows
    load = functools.cache(run_counts)
    order = ranked[0].setting.order
    sampled = {split: samples_of([row.records for row in ranked], split, load, order=order) for split in SPLITS}
    looks = looks_of(ranked, {at for row in rows if row.section == MAIN for at in row.unfinished})
    samples, cover = sampled["dev"]
    dev = Comparison([replace(sample, looks=seen) for sample, seen in zip(samples, looks, strict=True)])
    on = {"dev": dev, "test": Comparison(sampled["test"][0])}
    losses, visible = dev.losses(), dev.visible
    labelled = {}
    for place, (row, behind) in enumerate(zip(ranked, dev.behind(), strict=True)):
        label = BEST if place == dev.best else label_of_interval(behind, margin / 100)
        needs_seeds = label == UNDECIDED and row.cost < ranked[dev.best].cost
        labelled[row] = replace(
            row,
            label=label,
            behind=behind,
            difference=float(dev.means[place] - dev.means[dev.best]),
            loss=float(losses[:, place].mean()),
            chance=float((losses[:, place] < margin / 100).mean()),
            seeds_needed=dev.seeds_needed(place, margin / 100) if needs_seeds else None,
            intervals={split: compared.mean(place) for split, compared in on.items()},
            cover=cover,
            visible=visible,
            looks=len(dev.looks),
        )
    return [labelled.get(row, row) for row in rows]


def looks_of(rows: Sequence[Row], unfinished: Collection[str]) -> list[list[int]]:
    """Returns the look at which each run of each row was first seen, as `Sample.looks`.

    A finished sweep is one look. In an unfinished one, and of runs that no sweep asked for before they began, each seed
    is one, because somebody may stop for what a table shows. unfinished: when such sweeps were started.
    """
    runs_of_rows = [[(record, row.asked[file]) for file, record in row.records.items()] for row in rows]
    latest_first = sorted(itertools.chain(*runs_of_rows), key=lambda run: run[0].started, reverse=True)
    alone = {record.seed: record.started for record, asked in latest_first if asked is None}  # each seed's earliest run
    looks = [
        [
            (alone[record.seed], record.seed) if asked is None else (asked, record.seed if asked in unfinished else 0)
            for record, asked in runs
        ]
        for runs in runs_of_rows
    ]
    numbers = {look: number for number, look in enumerate(sorted({*itertools.chain(*looks)}))}
    return [[numbers[look] for look in of_row] for of_row in looks]


def label_of_interval(behind: Sequence[float], margin: float) -> str:
    """Returns the label of a row that is not the best; margin: in the unit of `behind`."""
    low, high = behind
    return WITHIN if low > -margin else WORSE if high < 0 else UNDECIDED


def conditional(label: str | None, condition: str) -> str | None:
    """Adds to a label that says more than these scores what it rests on. condition: see `Cover`."""
    return f"{label} {condition}" if condition and label in (WORSE, WITHIN) else label


def cheapest_within(
    behind: Sequence[Sequence[float]], costs: Sequence[tuple[float, ...]], means: Sequence[float], margin: float
) -> int | None:
    """Returns the index of the row to use: the cheapest whose interval lies above -margin (a fraction), or None.

    Of rows of equal cost it is the one with the highest mean.
    """
    within = [row for row, (low, _) in enumerate(behind) if low > -margin]
    return min(within, key=lambda row: (costs[row], -means[row])) if within else None
