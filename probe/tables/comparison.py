"""Compares result sets: several side by side, or two of them row by row with differences and intervals."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from probe.config import UserError
from probe.system.format import percent
from probe.tables.columns import COLUMNS, choose_columns, header
from probe.tables.decisions import differences
from probe.tables.formats import TextTable, as_csv, as_json, row_fields, rows_csv
from probe.tables.notes import caption, unconverged_notes
from probe.tables.row import Difference, Row, by_encoder
from probe.tables.rows import build_rows

SHOWN = ("n", "dev", "test")  # columns of each result set


def render_side_by_side(folders: Sequence[Path], form: str) -> str:
    """Renders several result sets in one table: a line per row name, columns per setting and encoder."""
    blocks = [(folder, group) for folder in folders for group in by_encoder(build_rows(folder))]
    rows = [row for _, group in blocks for row in group]
    folder_of_row = [folder for folder, group in blocks for _ in group]
    names = choose_columns(None, rows, form)
    if form == "json":
        fields = [row_fields(row, names) for row in rows]
        return as_json([one | {"dir": str(folder)} for one, folder in zip(fields, folder_of_row, strict=True)])
    if form == "csv":
        return rows_csv(rows, names, folder_of_row)
    by_name = [{row.name: row for row in group if not row.condition} for _, group in blocks]
    row_names = list(dict.fromkeys(name for group in by_name for name in group))
    letters = [string.ascii_uppercase[i % 26] + (str(i // 26) if i >= 26 else "") for i in range(len(blocks))]
    headers = [
        f"{letter} {header(column, group)}"
        for letter, (_, group) in zip(letters, blocks, strict=True)
        for column in SHOWN
    ]
    lines = [
        [name, *(COLUMNS[column].text(group[name]) if name in group else "" for group in by_name for column in SHOWN)]
        for name in row_names
    ]
    captions = [
        f"{letter}: {folder}: {caption(group)}" for letter, (folder, group) in zip(letters, blocks, strict=True)
    ]
    below = [
        f"{letter}: {note}"
        for letter, (_, group) in zip(letters, blocks, strict=True)
        for note in unconverged_notes([row for row in group if not row.condition], "not ranked")
    ]
    align_left = [True] + [False] * len(headers)
    return TextTable(["row", *headers], lines, align_left, captions, below, label="tab:side-by-side").render(form)


class Comparison(NamedTuple):
    """Holds the differences A - B between the rows of one name in two result sets. captions: of each set. left_out:
    notes on the rows of both that are not compared, because they did not converge.
    """

    differences: list[Difference]
    captions: list[str]
    left_out: list[str]


def compare(a: Path, b: Path) -> Comparison:
    """Compares the rows of one name in two result sets. Raises UserError for what cannot be compared."""
    rows: list[dict[str, Row]] = []
    captions = []
    for letter, folder in zip("AB", (a, b), strict=True):
        built = build_rows(folder)
        if len(by_encoder(built)) > 1:
            raise UserError(f"{folder} holds several settings or encoders; --compare needs one in each folder.")
        rows.append({row.name: row for row in built if row.n and not row.condition})
        captions.append(f"{letter}: {folder}: {caption(built)}")
    tasks = [next(iter(side.values())).task for side in rows if side]
    if len(tasks) == 2 and tasks[0] != tasks[1]:
        raise UserError(f"{a} has {tasks[0].title}, {b} {tasks[1].title}: these cannot be subtracted.")
    pairs = [(rows[0][name], rows[1][name]) for name in rows[0] if name in rows[1]]
    left_out = [
        f"{letter}: {note}"
        for letter, side in zip("AB", zip(*pairs, strict=True), strict=False)
        for note in unconverged_notes(side, "left out")
    ]
    converged = [(one, other) for one, other in pairs if not one.unconverged and not other.unconverged]
    if not converged:
        raise UserError(f"{a} and {b} have no row in common{' that converged in both' if pairs else ''}.")
    return Comparison(differences(converged), captions, left_out)


def render_comparison(comparison: Comparison, form: str) -> str:
    """Renders a comparison in one of FORMATS. CSV and JSON have the differences alone."""
    compared = comparison.differences
    if form == "json":
        return as_json([asdict(difference) for difference in compared])
    if form == "csv":
        return _csv(compared)
    headers = ["row", "n"]
    for split in ("dev", "test"):
        headers += [f"{split} A", f"{split} B", "A - B", "95 %"]
    lines = []
    for difference in compared:
        line = [difference.row, " / ".join(map(str, difference.n))]
        for part in (difference.dev, difference.test):
            interval = "" if part.interval is None else " .. ".join(f"{100 * edge:+.2f}" for edge in part.interval)
            line += [percent(part.a), percent(part.b), f"{100 * part.difference:+.2f}", interval]
        lines.append(line)
    over = next((d.dev.over for d in compared if d.dev.over), None)
    unit = next((d.unit for d in compared if d.unit), None)
    drawn = f" (paired by {unit} where both sides have one text)" if unit else ""
    below = f"95 %: intervals over {over}{drawn}, each for its row alone." if over else "One seed allows no interval."
    align_left = [True] + [False] * (len(headers) - 1)
    return TextTable(
        headers, lines, align_left, comparison.captions, [below, *comparison.left_out], label="tab:comparison"
    ).render(form)


def _csv(compared: Sequence[Difference]) -> str:
    parts = ("a", "b", "difference", "low", "high", "over")
    lines = []
    for difference in compared:
        line = [difference.row, *difference.n]
        for split in (difference.dev, difference.test):
            low, high = split.interval or (None, None)
            content = {**asdict(split), "low": low, "high": high}
            line += [content[part] for part in parts]
        lines.append([*line, difference.unit])
    headers = ["row", "n_a", "n_b", *(f"{split}_{part}" for split in ("dev", "test") for part in parts), "unit"]
    return as_csv(headers, lines)
