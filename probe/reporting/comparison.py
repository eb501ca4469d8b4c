"""Several result sets: side by side, or two of them row by row with differences, intervals and p."""

from __future__ import annotations

import csv
import io
import string
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.reporting.columns import COLUMNS, caption, header, unconverged
from probe.reporting.formats import Grid, as_json, rows_csv
from probe.reporting.order import differences
from probe.reporting.row import Difference, Row, groups_of
from probe.reporting.rows import build_rows
from probe.system.show import p_value, percent

SHOWN = ("n", "dev", "test")  # columns of each result set


def render_side_by_side(folders: Sequence[Path], form: str) -> str:
    """Several result sets in one table: a line for each row name, columns for each setting."""
    blocks = [(folder, group) for folder in folders for group in groups_of(build_rows(folder))]
    rows = [(folder, row) for folder, group in blocks for row in group]
    if form == "json":
        return as_json([row.as_json() | {"dir": str(folder)} for folder, row in rows])
    if form == "csv":
        return rows_csv([row for _, row in rows], [folder for folder, _ in rows])
    by_name = [{row.name: row for row in group if not row.treatment} for _, group in blocks]
    names = list(dict.fromkeys(name for group in by_name for name in group))
    letters = [string.ascii_uppercase[i % 26] + (str(i // 26) if i >= 26 else "") for i in range(len(blocks))]
    headers = [
        f"{letter} {header(column, group)}"
        for letter, (_, group) in zip(letters, blocks, strict=True)
        for column in SHOWN
    ]
    lines = [
        [name, *(COLUMNS[column].show(group[name]) if name in group else "" for group in by_name for column in SHOWN)]
        for name in names
    ]
    over = [f"{letter}: {folder}: {caption(group)}" for letter, (folder, group) in zip(letters, blocks, strict=True)]
    below = [
        f"{letter}: {note}" for letter, (_, group) in zip(letters, blocks, strict=True) for note in unconverged(group)
    ]
    left = [True] + [False] * len(headers)
    return Grid(["row", *headers], lines, left, over, below, label="tab:side-by-side").render(form)


def compare(a: Path, b: Path) -> tuple[list[Difference], list[str], list[str]]:
    """Two result sets, row by row of one name, as differences A - B; their captions; and notes on the rows left out
    because they did not converge.

    Raises UserError for what cannot be compared.
    """
    rows: list[dict[str, Row]] = []
    captions, left_out = [], []
    for letter, folder in zip("AB", (a, b), strict=True):
        built = build_rows(folder)
        if len(groups_of(built)) > 1:
            raise UserError(f"{folder} holds several settings; --compare needs one in each folder.")
        plain = [row for row in built if row.n and not row.treatment]
        rows.append({row.name: row for row in plain if not row.unconverged})
        captions.append(caption(built))
        left_out += [f"{letter}: {note}" for note in unconverged(plain)]
    tasks = [next(iter(side.values())).task for side in rows if side]
    if len(tasks) == 2 and tasks[0] != tasks[1]:
        raise UserError(f"{a} has {tasks[0].title}, {b} {tasks[1].title}: these cannot be subtracted.")
    shared = [name for name in rows[0] if name in rows[1]]
    if not shared:
        converged = " that converged in both" if left_out else ""
        raise UserError(f"{a} and {b} have no row in common{converged}.")
    return differences([(rows[0][name], rows[1][name]) for name in shared]), captions, left_out


def render_comparison(a: Path, b: Path, form: str) -> str:
    """`compare` in one of FORMATS."""
    compared, captions, left_out = compare(a, b)
    if form == "json":
        return as_json([asdict(difference) for difference in compared])
    if form == "csv":
        return _csv(compared)
    headers = ["row", "n"]
    for split in ("dev", "test"):
        headers += [f"{split} A", f"{split} B", "A - B", "95 %", "p seeds"]
    headers.append("p text")
    lines = []
    for difference in compared:
        line = [difference.row, " / ".join(map(str, difference.n))]
        for part in (difference.dev, difference.test):
            interval = "" if part.interval is None else " .. ".join(f"{100 * edge:+.2f}" for edge in part.interval)
            line += [percent(part.a), percent(part.b), f"{100 * part.difference:+.2f}", interval, p_value(part.p_seeds)]
        lines.append([*line, p_value(difference.p_text_holm)])
    over = [f"{letter}: {folder}: {text}" for letter, folder, text in zip("AB", (a, b), captions, strict=True)]
    unit = next((d.unit for d in compared if d.unit), "none: another text, no seed in common or no counts")
    below = (
        "p seeds: exact permutation over seeds, not corrected. p text: paired randomisation over the test split "
        f"({unit}), Holm-corrected over the rows."
    )
    left = [True] + [False] * (len(headers) - 1)
    return Grid(headers, lines, left, over, [below, *left_out], label="tab:comparison").render(form)


def _csv(compared: Sequence[Difference]) -> str:
    parts = ("a", "b", "difference", "low", "high", "p_seeds", "p_seeds_holm")
    last = ("p_text", "p_text_holm", "unit")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "n_a", "n_b", *(f"{split}_{part}" for split in ("dev", "test") for part in parts), *last])
    for difference in compared:
        line: list[Any] = [difference.row, *difference.n]
        for split in (difference.dev, difference.test):
            low, high = split.interval or (None, None)
            content = {**asdict(split), "low": low, "high": high}
            line += [content[part] for part in parts]
        writer.writerow([*line, *(getattr(difference, name) for name in last)])
    return out.getvalue()
