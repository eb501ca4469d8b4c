"""Rows to tables: text, Markdown, CSV, LaTeX and JSON; columns by choice; several settings side by side, or compared.

A pure function of rows (see `rows`). Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.reporting.columns import COLUMNS, caption, header, p_value, percent
from probe.reporting.formats import grid, latex, render
from probe.reporting.order import counts_of, text_tests
from probe.reporting.rows import SCORES, build_rows, records_of, results_folder
from probe.runs.records import load_records
from probe.scoring.significance import bootstrap, holm, permutation_test


def render_side_by_side(folders: Sequence[Path], form: str) -> str:
    """Several result sets in one table: a line a row of any of them, a pair of columns for each setting."""
    blocks = []
    for folder in folders:
        rows = build_rows(folder)
        for group in dict.fromkeys(row["group"] for row in rows):
            blocks.append((folder, [row for row in rows if row["group"] == group]))
    if form in ("json", "csv"):
        return render([row | {"dir": str(folder)} for folder, rows in blocks for row in rows], form)
    by_name = [{row["layers"]: row for row in rows} for _, rows in blocks]
    names = list(dict.fromkeys(name for rows in by_name for name in rows))
    letters = [chr(ord("A") + i) for i in range(len(blocks))]
    headers = ["row"] + [
        f"{letter} {header(c, rows)}"
        for letter, (_, rows) in zip(letters, blocks, strict=True)
        for c in ("n", "dev", "test")
    ]
    cells = [
        [name] + [COLUMNS[c].show(rows[name]) if name in rows else "" for rows in by_name for c in ("n", "dev", "test")]
        for name in names
    ]
    above = [f"{letter}: {folder}: {caption(rows)}" for letter, (folder, rows) in zip(letters, blocks, strict=True)]
    lefts = [True] + [False] * (len(headers) - 1)
    if form == "tex":
        return latex(headers, cells, lefts, [], above, "tab:side-by-side")
    return "\n".join(above) + "\n\n" + grid(headers, cells, lefts, form) + "\n"


def compare(a: Path, b: Path) -> list[dict[str, Any]]:
    """Two result sets, row by row of one name: differences A - B, their bootstrap intervals over seeds, and p values.

    p_seeds: exact permutation of the split's scores over seeds. p_text: paired randomisation over the test split, where
    both are of one text. Each also with Holm's correction over the rows. Raises UserError for what cannot be compared.
    """
    return _compare(a, b)[0]


def _compare(a: Path, b: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What `compare` gives, and the two captions."""
    rows, records, captions = [], [], []
    for folder in (a, b):
        built = build_rows(folder)
        if len({row["group"] for row in built}) > 1:
            raise UserError(f"{folder} holds several settings; --compare needs one in each folder.")
        rows.append({row["layers"]: row for row in built if row["n"]})
        records.append(load_records(results_folder(folder)))
        captions.append(caption(built))
    shared = [name for name in rows[0] if name in rows[1]]
    if not shared:
        raise UserError(f"{a} and {b} have no row in common.")
    pairs = [(records_of(rows[0][name], records[0]), records_of(rows[1][name], records[1])) for name in shared]
    results = []
    for name, pair, text in zip(shared, pairs, text_tests(pairs, functools.cache(counts_of)), strict=True):
        result: dict[str, Any] = {"row": name, "n": [len(side) for side in pair]}
        for split in ("dev", "test"):
            ours, theirs = ([SCORES["f1"](record["scores"][split]) for record in side.values()] for side in pair)
            many = min(len(ours), len(theirs)) > 1
            result[split] = {
                "a": sum(ours) / len(ours),
                "b": sum(theirs) / len(theirs),
                "difference": sum(ours) / len(ours) - sum(theirs) / len(theirs),
                "interval": bootstrap(ours, theirs) if many else None,
                "p_seeds": permutation_test(ours, theirs),
            }
        results.append(result | text)
    for split in ("dev", "test"):
        for result, p in zip(results, holm([result[split]["p_seeds"] for result in results]), strict=True):
            result[split]["p_seeds_holm"] = p
    for result, p in zip(results, holm([result["p_text"] for result in results]), strict=True):
        result["p_text_holm"] = p
    return results, captions


def render_comparison(a: Path, b: Path, form: str) -> str:
    """`compare` in one of FORMATS."""
    results, captions = _compare(a, b)
    if form == "json":
        return json.dumps(results, indent=1) + "\n"
    if form == "csv":
        return _comparison_csv(results)
    headers = ["row", "n"]
    for split in ("dev", "test"):
        headers += [f"{split} A", f"{split} B", "A - B", "95 %", "p seeds"]
    headers.append("p text")
    cells = []
    for result in results:
        line = [result["row"], " / ".join(map(str, result["n"]))]
        for split in ("dev", "test"):
            part = result[split]
            interval = part["interval"]
            line += [percent(part["a"]), percent(part["b"]), f"{100 * part['difference']:+.2f}"]
            line += ["" if interval is None else f"{100 * interval[0]:+.2f} .. {100 * interval[1]:+.2f}"]
            line += [p_value(part["p_seeds"])]
        cells.append([*line, p_value(result["p_text_holm"])])
    above = [f"{letter}: {folder}: {text}" for letter, folder, text in zip("AB", (a, b), captions, strict=True)]
    below = (
        "p seeds: exact permutation over seeds, not corrected. p text: paired randomisation over the test split "
        f"({next((r['unit'] for r in results if r['unit']), 'not of one text')}), Holm-corrected over the rows."
    )
    lefts = [True] + [False] * (len(headers) - 1)
    if form == "tex":
        return latex(headers, cells, lefts, [], [*above, below], "tab:comparison")
    return "\n".join(above) + "\n\n" + grid(headers, cells, lefts, form) + "\n\n" + below + "\n"


def _comparison_csv(results: list[dict[str, Any]]) -> str:
    parts = ("a", "b", "difference", "low", "high", "p_seeds", "p_seeds_holm")
    last = ("p_text", "p_text_holm", "unit")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "n_a", "n_b", *(f"{split}_{part}" for split in ("dev", "test") for part in parts), *last])
    for result in results:
        line = [result["row"], *result["n"]]
        for split in ("dev", "test"):
            low, high = result[split]["interval"] or (None, None)
            found = {**result[split], "low": low, "high": high}
            line += [found[part] for part in parts]
        writer.writerow(line + [result[name] for name in last])
    return out.getvalue()
