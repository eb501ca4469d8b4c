"""Rows to text, Markdown, CSV, LaTeX and JSON. Reads no files; imports nothing that takes long."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tabulate import SEPARATING_LINE, tabulate

from probe.config import UserError
from probe.system.files import write_atomically
from probe.tables.columns import COLUMNS, above, choose_columns, header, notes, recommendation
from probe.tables.decisions import BEST
from probe.tables.rates import rate_of
from probe.tables.recommendation import recommend
from probe.tables.row import Row, SplitDifference, groups_of
from probe.tables.rows import SCORES
from probe.tables.tasks import grid_of_tasks, tasks_on_one_text

FORMATS = ("text", "md", "csv", "tex", "json")
FILES = {"md": "table.md", "csv": "table.csv", "tex": "table.tex", "json": "table.json"}


@dataclass(frozen=True)
class TextTable:
    """A table: lines of cells, and the text above and below. first: what a reader should read first. left: which
    columns are flush left. bold: the best lines. emphasised: their bold columns in formats that do not set the whole
    line in bold. ruled: lines with a rule above."""

    headers: list[str]
    lines: list[list[str]]
    left: list[bool]
    above: list[str]
    below: list[str] = field(default_factory=list)
    bold: list[int] = field(default_factory=list)
    emphasised: list[int] = field(default_factory=list)
    label: str = "tab:layers"
    ruled: list[int] = field(default_factory=list)
    first: list[str] = field(default_factory=list)

    def render(self, form: str) -> str:
        """As text, md or tex."""
        if form == "tex":
            return _latex(self)
        lines = [list(line) for line in self.lines]
        if form == "md":
            for i in self.bold:
                for k in self.emphasised:
                    lines[i][k] = f"**{lines[i][k]}**" if lines[i][k] else ""
        else:
            for i in reversed(self.ruled):
                lines.insert(i, [SEPARATING_LINE])
        body = tabulate(
            lines,
            headers=self.headers,
            tablefmt="github" if form == "md" else "simple",
            disable_numparse=True,
            colalign=["left" if left else "right" for left in self.left],
        )
        return "\n\n".join([*self.first, "\n".join(self.above), body, *self.below]) + "\n"


def render(rows: Sequence[Row], form: str, columns: str | None = None) -> str:
    """Rows in one of FORMATS; CSV and JSON have columns of their own. Unlike settings stay apart."""
    if columns is not None and form in ("csv", "json"):
        raise UserError(f"--columns: {form} has columns of its own; text, md and tex can choose.")
    if form == "json":
        recommended = {group[0].group: recommend(group).as_json() for group in groups_of(rows)}
        return as_json([row.as_json() | {"recommendation": recommended[row.group]} for row in rows])
    if form == "csv":
        return rows_csv(rows)
    grids = [table(group, choose_columns(columns, group)) for group in groups_of(rows)]
    return "\n".join(grid.render(form) for grid in [*grids, *task_tables(rows)])


def task_tables(rows: Sequence[Row]) -> list[TextTable]:
    """Several tasks on one text in one table, where there are any."""
    grids = []
    for groups in tasks_on_one_text(rows):
        headers, lines, told = grid_of_tasks(groups)
        left = [True] + [False] * (len(headers) - 1)
        grids.append(TextTable(headers, lines, left, [told], label=f"tab:tasks-{groups[0][0].group}"))
    return grids


def table(rows: Sequence[Row], names: Sequence[str]) -> TextTable:
    """Rows of one setting with these columns."""
    return TextTable(
        [header(name, rows) for name in names],
        [[COLUMNS[name].show(row) for name in names] for row in rows],
        [COLUMNS[name].left for name in names],
        above(rows, names),
        notes(rows, names),
        [i for i, row in enumerate(rows) if row.label == BEST],
        [k for k, name in enumerate(names) if name in ("row", "dev")],
        f"tab:{rows[0].group}",
        [i for i in range(1, len(rows)) if rows[i].section != rows[i - 1].section],
        recommendation(rows) if "dev" in names else [],
    )


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _latex(grid: TextTable) -> str:
    """A table for \\usepackage{booktabs}, ready to paste. What is above and below it is its caption."""
    lines = [[_tex(cell) for cell in line] for line in grid.lines]
    for i in grid.bold:
        lines[i] = [f"\\textbf{{{cell}}}" if cell else cell for cell in lines[i]]
    rules = ["\\midrule\n" if i in grid.ruled else "" for i in range(len(lines))]
    body = "\n".join(f"{rule}  {' & '.join(line)} \\\\" for rule, line in zip(rules, lines, strict=True))
    caption = _tex(" ".join([*grid.first, *grid.above, *grid.below]))
    return (
        "\\begin{table}\n\\centering\n"
        f"\\begin{{tabular}}{{@{{}}{''.join('l' if left else 'r' for left in grid.left)}@{{}}}}\n\\toprule\n"
        f"  {' & '.join(map(_tex, grid.headers))} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        f"\\caption{{{caption}}}\n\\label{{{grid.label}}}\n\\end{{table}}\n"
    )


def _tex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    escaped = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped)
    for plain, command in (("^", r"\^{}"), ("~", r"\~{}"), ("±", r"$\pm$"), (" .. ", "--"), ("<", "$<$"), (">", "$>$")):
        escaped = escaped.replace(plain, command)
    return re.sub(r"(?<=\d)\.\.(?=\d)", "--", escaped)


def rows_csv(rows: Sequence[Row], folders: Sequence[Path] = ()) -> str:
    """A line a row, fractions in full. folders: of each row, where they come from several."""
    scores = [f"{split}_{name}" for split in ("dev", "test") for name in SCORES]
    parts = ("mean", "std", "min", "max")
    bits = [f"{split}_{name}" for split in ("dev", "test") for name in ("bits", "information")]
    bits = bits if any(name in row.cells for row in rows for name in bits) else []
    relative = ("selectivity", "guess_floor", "beyond", "gap_closed", "gap_closed_embeddings", "paired", "compression")
    beside = [name for name in relative if any(name in row.beside for row in rows)]
    costs = ("parameters", "seconds_per_epoch", "mb_read", "f1_per_width")
    treated = any(row.treatment for row in rows)
    normalized, tuned = any(row.normalize for row in rows), any(row.rates for row in rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["dir"] * bool(folders)
        + "group data encoder context layers".split()
        + ["treatment"] * treated
        + ["normalize"] * normalized
        + ["rate"] * tuned
        + "indices combine width n missing failed label behind_low behind_high".split()
        + [f"{score}_{part}" for score in scores for part in parts]
        + [f"{split}_to_best{end}" for split in ("dev", "test") for end in ("", "_low", "_high")]
        + list(costs)
        + [f"{name}_{part}" for name in (*bits, *beside) for part in ("mean", "std")]
    )
    for i, row in enumerate(rows):
        content = row.as_json()
        cost = content.get("cost", {})
        writer.writerow(
            [str(folder) for folder in folders[i : i + 1]]
            + [row.group, row.setting.data, row.setting.encoder, row.setting.features["context"], row.name]
            + [row.treatment or ""] * treated
            + [row.normalize or "none"] * normalized
            + [rate_of(row)] * tuned
            + [" ".join(map(str, row.indices)), row.combine, row.width, row.n, row.missing, row.failed, row.label]
            + list(row.behind or (None, None))
            + [content.get(score, {}).get(part) for score in scores for part in parts]
            + (_to_best(row.to_best.dev) + _to_best(row.to_best.test) if row.to_best else [None] * 6)
            + [cost.get(name) for name in costs]
            + [content.get(name, {}).get(part) for name in (*bits, *beside) for part in ("mean", "std")]
        )
    return out.getvalue()


def _to_best(part: SplitDifference) -> list[float | None]:
    return [part.difference, *(part.interval or (None, None))]


def table_files(rows: Sequence[Row]) -> dict[str, str]:
    """Content of the table's files, by name. `failed` is 0 in them: they must not depend on logs."""
    kept = [replace(row, failed=0) for row in rows]
    return {name: render(kept, form) for form, name in FILES.items()}


def write_tables(results_dir: Path, rows: Sequence[Row]) -> None:
    """The table beside the records, in the forms that files are read in."""
    for name, text in table_files(rows).items():
        write_atomically(results_dir / name, text)
