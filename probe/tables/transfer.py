"""Says whether a choice of layers travels: what a row chosen on one task, corpus or encoder loses on another.

A choice is the best row of one table. What it loses on another table is how far the row of the same layers lies behind
the truly best one there, by that table's own comparison, so the choice of the best is allowed for. The middle and the
last layer stand beside it, which nobody had to choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probe.conditions import MAIN
from probe.config import UserError
from probe.format import percent, short_name
from probe.probes.kinds import describe_probe
from probe.tables.formats import TextTable
from probe.tables.labels import BEST
from probe.tables.row import Row, split_by_encoder
from probe.tables.rows import build_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIDDLE, LAST = "the middle layer", "the last layer"


@dataclass(frozen=True)
class Loss:
    """Holds what a choice of layers loses on a table against its truly best row.

    row: the row that the choice is there. lost: the difference of dev means. least, most: its 95 % interval, for all
    rows of the table at once. Fractions.
    """

    chosen_on: str
    used_on: str
    row: str
    lost: float
    least: float
    most: float


def transfer(folders: Sequence[Path], margin: float | None = None) -> list[Loss]:
    """Returns what the best row of each table of these folders loses on each table; and the middle and last layer.

    Raises UserError if there are no two tables with a best row.
    """
    pairs = losses([table for folder in folders for table in split_by_encoder(build_rows(folder, margin))])
    if not pairs:
        raise UserError(f"{', '.join(map(str, folders))}: --transfer needs two tables, each with a best row.")
    return pairs


def losses(tables: Sequence[Sequence[Row]]) -> list[Loss]:
    """Returns the losses between labelled tables, each of one encoder; none where fewer than two have a best row."""
    tables = [[row for row in table if row.section == MAIN and row.n] for table in tables]
    best = [(table, row) for table in tables for row in table if row.label == BEST]
    if len(best) < 2:
        return []
    names = table_names([row for _, row in best])
    used_on = [(name, table) for name, (table, _) in zip(names, best, strict=True)]
    used = [
        (name, other, _same(chosen, table))
        for name, (_, chosen) in zip(names, best, strict=True)
        for other, table in used_on
    ]
    for name, part in ((MIDDLE, 2), (LAST, 1)):
        used += [(name, other, _single(table, table[0].num_layers // part)) for other, table in used_on]
    return [
        Loss(name, other, row.name, abs(row.difference), abs(row.behind[1]), row.most_behind)
        for name, other, row in used
        if row is not None and row.difference is not None and row.behind
    ]


def _single(table: Sequence[Row], layer: int) -> Row | None:
    return next((row for row in table if row.is_single and row.indices == [layer]), None)


def _same(chosen: Row, table: Sequence[Row]) -> Row | None:
    """Returns the row of the same layers; of an encoder of another depth the layer as deep, or the preset."""
    depth = table[0].num_layers
    if depth == chosen.num_layers:
        wanted = (chosen.indices, chosen.identity.layers.combine)
        return next((row for row in table if (row.indices, row.identity.layers.combine) == wanted), None)
    if chosen.is_single:
        return _single(table, round(chosen.indices[0] / chosen.num_layers * depth))
    return next((row for row in table if row.name == chosen.name), None)


def table_names(rows: Sequence[Row]) -> list[str]:
    """Names tables by what they differ in. rows: one of each."""
    parts = [
        (
            row.setting.data,
            short_name(row.setting.encoder),
            str(row.setting.features.get("context", "")),
            describe_probe(row.setting.probe),
            ", ".join(setting.removeprefix("probe.") for setting in row.differs_in),
        )
        for row in rows
    ]
    differ = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    named = [", ".join(itertools.compress(of_table, differ)) for of_table in parts]
    folders = [next(iter(row.records)).parent.parent.name for row in rows]
    for places in [folders] * (len(set(folders)) > 1) + [[row.table for row in rows]]:
        of_each = zip(named, places, strict=True)
        named = [name if named.count(name) == 1 else f"{name} {place}".strip() for name, place in of_each]
    return named


def matrix(pairs: Sequence[Loss]) -> tuple[list[str], list[str], dict[tuple[str, str], Loss]]:
    """Returns the choices, the tables, and the loss of each pair."""
    choices = list(dict.fromkeys(loss.chosen_on for loss in pairs))
    used = list(dict.fromkeys(loss.used_on for loss in pairs))
    return choices, used, {(loss.chosen_on, loss.used_on): loss for loss in pairs}


def render_transfer(pairs: Sequence[Loss], form: str) -> str:
    """Renders losses in one of FORMATS. CSV and JSON have a line per pair."""
    choices, used, cells = matrix(pairs)
    lines = [[choice, _row_of(choice, cells), *(_cell(cells.get((choice, on))) for on in used)] for choice in choices]
    others = [loss for loss in pairs if loss.chosen_on in used and loss.chosen_on != loss.used_on]
    parts = []
    for name, of_choice in (
        ("A choice made on another table", others),
        *((choice.capitalize(), [loss for loss in pairs if loss.chosen_on == choice]) for choice in (MIDDLE, LAST)),
    ):
        if of_choice:
            least, highest = (end(of_choice, key=lambda loss: loss.lost) for end in (min, max))
            most = f" (most on {highest.used_on})" * (highest.lost > least.lost)
            span = " to ".join(dict.fromkeys([percent(least.lost), percent(highest.lost)]))
            parts.append(f"{name} loses {span} points{most}.")
    caption = "Points of dev score that the row that is best on one table loses on another, against the best row there."
    below = "In brackets the 95 % interval, for all rows of the table at once; it allows for the choice of the best."
    headers = ["chosen on", "row", *used]
    table = TextTable(
        headers,
        lines,
        [True, True, *[False] * len(used)],
        [caption],
        [below],
        first=[" ".join(parts)],
        label="tab:transfer",
        values=[vars(loss) for loss in pairs],
    )
    return table.render(form)


def _row_of(choice: str, cells: Mapping[tuple[str, str], Loss]) -> str:
    return cells[choice, choice].row if (choice, choice) in cells else ""


def _cell(loss: Loss | None) -> str:
    return "" if loss is None else f"{percent(loss.lost)} ({percent(loss.least)} .. {percent(loss.most)})"


def draw_transfer(figure: Figure, pairs: Sequence[Loss]) -> None:
    """Draws the losses as a heat map: light is little."""
    choices, used, cells = matrix(pairs)
    values = np.array([[100 * cells[a, b].lost if (a, b) in cells else np.nan for b in used] for a in choices])
    figure.set_size_inches(2.6 + 1.1 * len(used), 1.4 + 0.35 * len(choices))
    axes = figure.add_subplot()
    axes.imshow(values, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(len(used)), used, rotation=15, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(choices)), [": ".join(filter(None, [name, _row_of(name, cells)])) for name in choices])
    axes.set_xlabel("used on")
    axes.set_ylabel("chosen on")
    axes.grid(False)
    for (y, x), value in np.ndenumerate(values):
        colour = "white" if value > np.nanmax(values) / 2 else "black"
        axes.text(x, y, "" if np.isnan(value) else f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
