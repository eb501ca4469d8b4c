"""Measures how well a screen predicted trained rows: rank and linear correlation, and the regret of its first picks.

Two rows are separated if they differ significantly on dev, over seeds and text, corrected for the number of pairs.

A plain sum is a scaled mean. A linear readout does not depend on the scale, but training does. If there are sums among
the rows, the figures are also given without them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probe.config import UserError
from probe.screen.candidates import readout_of
from probe.screen.ranking import Scored
from probe.screen.record import ScreenRecord
from probe.system.format import percent
from probe.tables.decisions import separated_pairs
from probe.tables.formats import TextTable
from probe.tables.row import Row, groups_of
from probe.tables.rows import build_rows

PICKS = (1, 3)


@dataclass(frozen=True)
class ScreenAgreement:
    """Compares a screen's scores with the dev F1 of trained rows.

    rows: name, dev F1, screened F1; best dev F1 first. tau: Kendall's tau-b over all pairs. tau_separated: tau-a over
    those separated. They and pearson are None if undefined. regret: points of dev F1 by which the best of the screen's
    first PICKS rows is below the best row. without_sums: the same without plain sums; None if there are none, or too
    few other rows.
    """

    rows: list[tuple[str, float, float]]
    tau: float | None
    tau_separated: float | None
    pairs: int
    pairs_separated: int
    pearson: float | None
    regret: dict[str, float]
    without_sums: ScreenAgreement | None = None


def validate_screens(screens: Sequence[ScreenRecord], folder: Path) -> ScreenAgreement:
    """Compares screens with the rows of a folder that were trained of their encoders.

    Raises UserError if it has no rows of the text and features of each.
    """
    rows = [row for row in build_rows(folder) if row.n and not row.condition]
    features = {one.identity.features for row in rows for one in row.records.values()}
    texts = {one.identity.corpus for row in rows for one in row.records.values()}
    for screen in screens:
        if screen.identity.features not in features or screen.identity.corpus not in texts:
            raise UserError(
                f"--against {folder}: its runs are of another text or other features than the screen "
                f"({screen.setting.data}, {screen.setting.encoder}, {screen.setting.features['context']} context)."
            )
    of_screens = [[row for row in rows if _is_of(row, screen) and not row.unconverged] for screen in screens]
    rows = [row for own in of_screens for row in own]
    if len(groups_of(rows)) > 1:
        raise UserError(f"--against {folder}: its rows are of several probes; keep each in a folder of its own.")
    ranked = []
    for screen, own in zip(screens, of_screens, strict=True):
        by_readout = {readout_of(one.layers.combine, one.layers.indices): one for one in screen.ranked}
        pairs = [(row, by_readout.get(readout_of(row.combine, row.indices))) for row in own]
        ranked += [(row, one) for row, one in pairs if one is not None]
    others = [(row, one) for row, one in ranked if row.combine != "sum"]
    without = compare(others) if 2 <= len(others) < len(ranked) else None
    return replace(compare(ranked), without_sums=without)


def _is_of(row: Row, record: ScreenRecord) -> bool:
    identity = next(iter(row.records.values())).identity
    asked = record.identity
    return (identity.features, identity.corpus, identity.task) == (asked.features, asked.corpus, asked.task)


def compare(pairs: Sequence[tuple[Row, Scored]]) -> ScreenAgreement:
    """Compares rows with a screen's scores. Raises UserError for fewer than two."""
    if len(pairs) < 2:
        raise UserError("--against needs two rows or more of what was screened, trained until they converged.")
    dev = [float(np.mean(row.dev)) for row, _ in pairs]
    forecast = [one.dev_f1 for _, one in pairs]
    separated = separated_pairs([row for row, _ in pairs])
    ranked = sorted(range(len(pairs)), key=lambda i: (-forecast[i], pairs[i][1].dev_error))
    order = sorted(range(len(pairs)), key=lambda i: -dev[i])
    return ScreenAgreement(
        [(pairs[i][0].title, dev[i], forecast[i]) for i in order],
        tau_b(dev, forecast),
        tau_a(separated, dev, forecast),
        math.comb(len(pairs), 2),
        len(separated),
        pearson(dev, forecast),
        {str(picks): 100 * (max(dev) - max(dev[i] for i in ranked[:picks])) for picks in PICKS},
    )


def tau_b(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Returns Kendall's tau-b over all pairs; None if a or b is constant."""
    from scipy.stats import kendalltau

    return _defined(kendalltau(a, b).statistic)


def tau_a(pairs: Sequence[tuple[int, int]], a: Sequence[float], b: Sequence[float]) -> float | None:
    """Returns the share of some pairs that a and b order alike minus the share they order differently.

    None without pairs.
    """
    return float(np.mean([np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in pairs])) if pairs else None


def pearson(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Returns Pearson's correlation; None if a or b is constant."""
    from scipy.stats import pearsonr

    return _defined(pearsonr(a, b).statistic) if np.std(a) and np.std(b) else None  # of a constant it would warn


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def validation_table(forecast: ScreenAgreement, folder: Path) -> TextTable:
    """Makes the table of trained rows with their screen scores."""
    place = {name: i for i, (name, _, _) in enumerate(sorted(forecast.rows, key=lambda row: -row[2]), 1)}
    lines = [[name, percent(dev), percent(screened), str(place[name])] for name, dev, screened in forecast.rows]
    below = [_figures(forecast)]
    if forecast.without_sums:
        below.append(f"Without plain sums, whose scale no linear readout sees: {_figures(forecast.without_sums)}")
    return TextTable(
        ["row", "dev F1 trained", "dev F1 screened", "place"],
        lines,
        [True, False, False, False],
        [f"The screen against the trained rows of {folder}."],
        below,
        [0],
    )


def _figures(forecast: ScreenAgreement) -> str:
    return (
        f"Kendall's tau-b {_number(forecast.tau)} over {forecast.pairs} pairs, {_number(forecast.tau_separated)} over "
        f"the {forecast.pairs_separated} that the records separate; Pearson {_number(forecast.pearson)}. "
        f"Training only the screen's first of these rows loses {forecast.regret['1']:.2f} points of dev F1 to the "
        f"best, its first three {forecast.regret['3']:.2f}."
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
