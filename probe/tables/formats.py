"""Renders rows as text, Markdown, CSV, LaTeX and JSON, by the columns in `columns.COLUMNS`. Imports nothing slow."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tabulate import LATEX_ESCAPE_RULES, SEPARATING_LINE, tabulate

from probe.system.files import write_atomically
from probe.tables.columns import COLUMNS, choose_columns, header
from probe.tables.decisions import BEST
from probe.tables.notes import above, notes, recommendation
from probe.tables.recommendation import recommend
from probe.tables.row import Row, groups_of
from probe.tables.tasks import compare_tasks, tasks_of_one_encoder

FORMATS = ("text", "md", "csv", "tex", "json")
FILES = {"md": "table.md", "csv": "table.csv", "tex": "table.tex", "json": "table.json"}
BOLD = ("\x02", "\x03")  # stand around a bold cell of LaTeX while tabulate escapes it


@dataclass(frozen=True)
class TextTable:
    """Holds a table: lines of cells, and the text above and below.

    first: what a reader should read first. align_left: which columns are aligned to the left. bold: the best lines.
    emphasised: their bold columns in formats that do not set the whole line in bold. ruled: lines with a rule above.
    """

    headers: list[str]
    lines: list[list[str]]
    align_left: list[bool]
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    bold: list[int] = field(default_factory=list)
    emphasised: list[int] = field(default_factory=list)
    label: str = "tab:layers"
    ruled: list[int] = field(default_factory=list)
    first: list[str] = field(default_factory=list)

    def render(self, form: str) -> str:
        """Renders it as text, md, tex or html."""
        if form == "tex":
            return _latex(self)
        if form == "html":
            return _html(self)
        body = self.body("github", "**{}**".format, self.emphasised) if form == "md" else self.body(ruled=self.ruled)
        return "\n\n".join([*self.first, "\n".join(self.above), body, *self.below]) + "\n"

    def body(
        self,
        style: str = "simple",
        bold: Callable[[str], str] = str,
        bold_columns: Sequence[int] = (),
        ruled: Sequence[int] = (),
    ) -> str:
        """Renders headers and lines alone, in a style of tabulate."""
        lines = [list(line) for line in self.lines]
        for i in self.bold:
            for k in bold_columns:
                lines[i][k] = bold(lines[i][k]) if lines[i][k] else ""
        for i in reversed(ruled):
            lines.insert(i, [SEPARATING_LINE])
        alignment = ["left" if left else "right" for left in self.align_left]
        return str(tabulate(lines, self.headers, style, disable_numparse=True, colalign=alignment))


def _latex(shown: TextTable) -> str:
    """Renders a table for \\usepackage{booktabs}, ready to paste. What is above and below it is its caption."""
    body = shown.body("latex_booktabs", lambda cell: cell.join(BOLD), range(len(shown.headers)), shown.ruled)
    body = body.replace(BOLD[0], "\\textbf{").replace(BOLD[1], "}")
    caption = " ".join([*shown.first, *shown.above, *shown.below])
    caption = "".join(LATEX_ESCAPE_RULES.get(letter, letter) for letter in caption)
    return (
        f"\\begin{{table}}\n\\centering\n{_typeset(body)}\n"
        f"\\caption{{{_typeset(caption)}}}\n\\label{{{shown.label}}}\n\\end{{table}}\n"
    )


def _html(shown: TextTable) -> str:
    """Renders a table for a notebook, with its texts as paragraphs."""
    body = shown.body("html")  # tabulate escapes it
    above, below = (
        [f"<p>{html.escape(text)}</p>" for text in texts] for texts in (shown.first + shown.above, shown.below)
    )
    return "\n".join([*above, body, *below])


def _typeset(text: str) -> str:
    """Sets signs, ranges and options of escaped text as LaTeX does: a minus, a dash, two hyphens that stay two."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text.replace("--", "-{}-"))
    text = text.replace("±", r"$\pm$").replace(" .. ", "--")
    return re.sub(r"(?<=\d)\.\.(?=\d)", "--", text)


def render(rows: Sequence[Row], form: str, columns: str | None = None) -> str:
    """Renders rows in one of FORMATS, a table for each setting. columns: as `--columns` takes them; None: the default.

    CSV and JSON have by default every column, and JSON the recommendation of each row's table.
    """
    if form == "json":
        fields = [row_fields(row, choose_columns(columns, rows, form)) for row in rows]
        if columns is None:
            given = {group[0].group: recommend(group).as_json() for group in groups_of(rows)}
            fields = [one | {"recommendation": given[row.group]} for one, row in zip(fields, rows, strict=True)]
        return as_json(fields)
    if form == "csv":
        return rows_csv(rows, choose_columns(columns, rows, form))
    tables = [table(group, choose_columns(columns, group, form)) for group in groups_of(rows)]
    return "\n".join(shown.render(form) for shown in [*tables, *task_tables(rows)])


def task_tables(rows: Sequence[Row]) -> list[TextTable]:
    """Makes a table of several tasks, wherever an encoder has several."""
    tables = []
    for groups in tasks_of_one_encoder(rows):
        headers, lines, caption, notes = compare_tasks(groups)
        align_left = [name in ("task", "score", *headers[-2:]) for name in headers]
        label = "-".join(filter(None, ["tab:tasks", groups[0][0].group, groups[0][0].encoder]))
        tables.append(TextTable(headers, lines, align_left, [caption], notes, label=label))
    return tables


def table(rows: Sequence[Row], names: Sequence[str]) -> TextTable:
    """Makes the table of rows of one setting with these columns."""
    return TextTable(
        headers=[header(name, rows) for name in names],
        lines=[[COLUMNS[name].text(row) for name in names] for row in rows],
        align_left=[COLUMNS[name].align_left for name in names],
        above=above(rows, names),
        below=notes(rows, names),
        bold=[i for i, row in enumerate(rows) if row.label == BEST],
        emphasised=[k for k, name in enumerate(names) if name in ("row", "dev")],
        label=f"tab:{rows[0].group}",
        ruled=[i for i in range(1, len(rows)) if _part_of(rows[i]) != _part_of(rows[i - 1])],
        first=recommendation(rows) if "dev" in names else [],
    )


def _part_of(row: Row) -> tuple[str | None, int]:
    """Returns the part of the table that a row belongs to. A line separates the parts."""
    return row.encoder, row.section


def row_fields(row: Row, names: Sequence[str]) -> dict[str, Any]:
    """Gives a row as `table.json` holds it: the value of each column at its path."""
    fields: dict[str, Any] = {}
    for column in (COLUMNS[name] for name in names):
        value = column.value(row)
        *parents, last = column.path.split(".")
        if value is None and (column.optional or parents):
            continue
        place = fields
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = place[last] | value if isinstance(place.get(last), dict) else value
    return fields


def rows_csv(rows: Sequence[Row], names: Sequence[str], folders: Sequence[Path] = ()) -> str:
    """Renders a line per row, fractions in full. folders: that of each row, where they come from several."""
    lines = csv_fields(rows, names, folders)
    return as_csv(lines[0], (line.values() for line in lines))


def csv_fields(rows: Sequence[Row], names: Sequence[str], folders: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Gives each row's values by the headers of CSV. folders: as `rows_csv` takes them."""
    columns = [COLUMNS[name] for name in names]
    columns = [one for one in columns if not one.optional or any(one.value(row) is not None for row in rows)]
    lines = []
    for i, row in enumerate(rows):
        line: dict[str, Any] = {"dir": folders[i]} if folders else {}
        for column in columns:
            value = column.value(row)
            line |= {name: get(value) for name, get in column.csv.items()}  # columns may share a header and its value
        lines.append(line)
    return lines


def as_csv(headers: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """Renders CSV with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(lines)
    return out.getvalue()


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def table_files(rows: Sequence[Row]) -> dict[str, str]:
    """Gives the content of the table's files, by name. `failed` is 0 in them: they must not depend on logs."""
    without_logs = [replace(row, failed=0) for row in rows]
    return {name: render(without_logs, form) for form, name in FILES.items()}


def write_tables(results_dir: Path, rows: Sequence[Row]) -> None:
    """Writes the table into the folder of its records, in every format of FILES."""
    for name, text in table_files(rows).items():
        write_atomically(results_dir / name, text)
