"""Rows to tables: text, Markdown, CSV, LaTeX and JSON; columns by choice; several settings side by side, or compared.

A pure function of rows (see `rows`). Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

from tabulate import tabulate

from probe.config import UserError
from probe.reporting.columns import COLUMNS, above, choose_columns, header, notes
from probe.reporting.row import Row
from probe.reporting.rows import SCORES
from probe.system.files import write_atomically

FORMATS = ("text", "md", "csv", "tex", "json")
FILES = {"md": "table.md", "csv": "table.csv", "tex": "table.tex", "json": "table.json"}


def render(rows: list[Row], form: str, columns: str | None = None) -> str:
    """Rows in one of FORMATS; CSV and JSON have columns of their own. Unlike settings stay apart."""
    if columns is not None and form in ("csv", "json"):
        raise UserError(f"--columns: {form} has columns of its own; text, md and tex can choose.")
    if form == "json":
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    if form == "csv":
        return _csv(rows)
    blocks = []
    for group in dict.fromkeys(row["group"] for row in rows):
        block = [row for row in rows if row["group"] == group]
        names = choose_columns(columns, block)
        cells = [[COLUMNS[name].show(row) for name in names] for row in block]
        headers = [header(name, block) for name in names]
        lefts = [COLUMNS[name].left for name in names]
        over, under = above(block, names), notes(block, names)
        if form == "tex":
            bold = [i for i, row in enumerate(block) if row["order"] == "best"]
            blocks.append(latex(headers, cells, lefts, bold, [*over, *under], f"tab:{group}"))
        else:
            if form == "md":
                cells = [
                    [f"**{c}**" if c and name in ("row", "dev") and row["order"] == "best" else c for name, c in line]
                    for row, line in zip(block, (zip(names, line, strict=True) for line in cells), strict=True)
                ]
            blocks.append("\n\n".join(["\n".join(over), grid(headers, cells, lefts, form), *under]) + "\n")
    return "\n".join(blocks)


def grid(headers: list[str], cells: list[list[str]], lefts: list[bool], form: str) -> str:
    return tabulate(
        cells,
        headers=headers,
        tablefmt="github" if form == "md" else "simple",
        disable_numparse=True,
        colalign=["left" if left else "right" for left in lefts],
    )


def latex(
    headers: list[str], cells: list[list[str]], lefts: list[bool], bold: list[int], above: list[str], label: str
) -> str:
    """A table for \\usepackage{booktabs}, ready to paste."""
    lines = [[_tex(cell) for cell in line] for line in cells]
    for i in bold:
        lines[i] = [f"\\textbf{{{cell}}}" if cell else cell for cell in lines[i]]
    body = "\n".join("  " + " & ".join(line) + r" \\" for line in lines)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\begin{{tabular}}{{@{{}}{''.join('l' if left else 'r' for left in lefts)}@{{}}}}\n\\toprule\n"
        f"  {' & '.join(map(_tex, headers))} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        f"\\caption{{{_tex(' '.join(above))}}}\n\\label{{{label}}}\n\\end{{table}}\n"
    )


def _tex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    escaped = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped)
    for plain, command in (("^", r"\^{}"), ("~", r"\~{}"), ("±", r"$\pm$"), (" .. ", "--"), ("<", "$<$"), (">", "$>$")):
        escaped = escaped.replace(plain, command)
    return re.sub(r"(?<=\d)\.\.(?=\d)", "--", escaped)


def _csv(rows: list[Row]) -> str:
    scores = [f"{split}_{name}" for split in ("dev", "test") for name in SCORES]
    parts = ("mean", "std", "min", "max")
    tests = ("dev_difference", "test_difference", "p_seeds", "p_seeds_holm", "p_text", "p_text_holm", "unit")
    costs = ("parameters", "seconds_per_epoch", "mb_read", "f1_per_width")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    folders = any("dir" in row for row in rows)
    writer.writerow(
        ["dir"] * folders
        + "group data encoder context layers indices combine width n missing failed order".split()
        + [f"{score}_{part}" for score in scores for part in parts]
        + [f"best_{name}" for name in tests]
        + list(costs)
    )
    for row in rows:
        setting, best, cost = row["setting"], row["against"].get("best", {}), row.get("cost", {})
        values = [row.get(score, {}).get(part) for score in scores for part in parts]
        values += [best.get(name) for name in tests] + [cost.get(name) for name in costs]
        writer.writerow(
            ([row["dir"]] if folders else [])
            + [row["group"], setting["data"], setting["encoder"], setting["features"]["context"], row["layers"]]
            + [
                " ".join(map(str, row["indices"])),
                row["combine"],
                row["width"],
                row["n"],
                row["missing"],
                row["failed"],
            ]
            + [row["order"], *values]
        )
    return out.getvalue()


def table_files(rows: list[Row]) -> dict[str, str]:
    """What the files of a table hold: what the records give, whatever logs lie beside them."""
    kept = [row | {"failed": 0} for row in rows]
    return {name: render(kept, form) for form, name in FILES.items()}


def write_tables(results_dir: Path, rows: list[Row]) -> None:
    """The table beside the records, in the forms that files are read in."""
    for name, text in table_files(rows).items():
        write_atomically(results_dir / name, text)
