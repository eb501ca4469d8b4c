"""Decides on dev which row of a table is best, how far each lies behind, and which are worse.

The test split is compared too, and shown; it changes no label.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from probe.conditions import MAIN
from probe.runs.samples import SPLITS, Load, run_counts, samples_of
from probe.scoring.compare import Comparison
from probe.tables.row import Difference, Row, SplitDifference

BEST, WORSE, WITHIN, UNDECIDED = "best", "worse", "within the margin", "undecided"
UNCONVERGED, ELIMINATED = "not converged", "eliminated"


def label_rows(rows: Sequence[Row], margin: float) -> list[Row]:
    """Returns one table's rows with labels, and with their differences to the best row.

    margin: points of dev score that the user does not mind. best: the highest dev mean; a row with fewer seeds than
    others must lead by more than luck (`scoring.compare.place_of_best`). within the margin: the whole interval of how
    far the row lies behind the truly best one is above -margin. worse: the whole interval is below 0. undecided:
    neither.

    Rows that a race eliminated, or whose runs did not all converge, are not compared. Baselines and upper bounds get no
    label. Their difference to the best row is given, but not for controls, which are another task.
    """
    rows = [
        replace(row, label=UNCONVERGED if row.unconverged else ELIMINATED if row.eliminated else None, margin=margin)
        for row in rows
    ]
    load = functools.cache(run_counts)
    ranked = [row for row in rows if row.section == MAIN and row.n and row.label is None]
    if len(ranked) < 2 or max(row.n for row in ranked) < 2:
        return rows
    on, unit = _compared(ranked, load)
    dev = on["dev"]
    labelled: dict[int, Row] = {}
    for place, (row, behind) in enumerate(zip(ranked, dev.behind(), strict=True)):
        cells = dict(row.cells)
        for split in SPLITS:
            cells[f"{split}_f1"] = replace(cells[f"{split}_f1"], interval=on[split].mean(place))
        labelled[id(row)] = replace(
            row,
            cells=cells,
            behind=behind,
            label=BEST if place == dev.best else _label(behind, margin / 100),
            error=None if place == dev.best else dev.error_parts(place, dev.best),
            to_best=None if place == dev.best else _difference(row, ranked[dev.best], on, place, dev.best, unit),
            over_text=dev.over_text,
        )
    best = ranked[dev.best]
    for row in rows:
        if row.section != MAIN and row.n and row.label is None and "control" not in row.conditions:
            (difference,) = differences([(row, best)], load)
            labelled[id(row)] = replace(row, to_best=difference)
    return [labelled.get(id(row), row) for row in rows]


def cheapest_within(
    behind: Sequence[Sequence[float]], costs: Sequence[tuple[int, ...]], means: Sequence[float], margin: float
) -> int | None:
    """Returns the index of the row to use: the cheapest whose interval lies above -margin (a fraction), or None.

    Of rows of equal cost it is the one with the highest mean.
    """
    within = [row for row, (low, _) in enumerate(behind) if low > -margin]
    return min(within, key=lambda row: (costs[row], -means[row])) if within else None


def _label(behind: Sequence[float], margin: float) -> str:
    low, high = behind
    return WITHIN if low > -margin else WORSE if high < 0 else UNDECIDED


def differences(pairs: Sequence[tuple[Row, Row]], load: Load | None = None) -> list[Difference]:
    """Compares the two rows of each pair. load: returns a record's counts; None: `run_counts`."""
    found = []
    for a, b in pairs:
        on, unit = _compared([a, b], load or functools.cache(run_counts))
        found.append(_difference(a, b, on, 0, 1, unit))
    return found


def _compared(rows: Sequence[Row], load: Load) -> tuple[dict[str, Comparison], str | None]:
    """Compares the rows on each split; none where each has a single seed. Also returns the unit of dev's text."""
    samples = {split: samples_of([row.records for row in rows], split, load) for split in SPLITS}
    unit = samples["dev"][1]
    if max(row.n for row in rows) < 2:
        return {}, unit
    return {split: Comparison(given) for split, (given, _) in samples.items()}, unit


def _difference(a: Row, b: Row, on: dict[str, Comparison], place: int, of_other: int, unit: str | None) -> Difference:
    splits = {}
    for split in SPLITS:
        means = [row.cells[f"{split}_f1"].mean for row in (a, b)]
        assert means[0] is not None
        assert means[1] is not None
        compared = on.get(split)
        between = compared.difference(place, of_other)[1] if compared else None
        over = None if compared is None else "seeds and text" if compared.over_text else "seeds"
        splits[split] = SplitDifference(means[0], means[1], means[0] - means[1], between, over)
    return Difference(b.title, (a.n, b.n), splits["dev"], splits["test"], unit)
