"""Renders rows as text, Markdown, CSV, LaTeX and JSON, by the columns in `columns.COLUMNS`. Imports nothing slow."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tabulate import LATEX_ESCAPE_RULES, SEPARATING_LINE, tabulate

from probe.conditions import MAIN
from probe.format import percent, printable, short_name
from probe.system.files import write_atomically
from probe.system.grouping import group_by
from probe.tables.columns import COLUMNS, choose_columns, header, values_of
from probe.tables.labels import BEST, label_rows
from probe.tables.notes import advice, majority_accuracy, notes, table_caption
from probe.tables.recommendation import recommend
from probe.tables.row import Row, split_by_encoder, tables_of

FORMATS = ("text", "md", "csv", "tex", "json")
FILES = {"md": "table.md", "csv": "table.csv", "tex": "table.tex", "json": "table.json"}
LEFT_OUT = ("condition", "layers", "width", "label")  # of LaTeX by default: names and intervals say the same
COLUMN = 62  # letters of a line of LaTeX that fit a column; a wider table stands across both columns of a page
WITH_RULES = ("simple", "latex_booktabs")  # styles of tabulate that can have a rule between lines
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs a cell that begins so
BOLD = ("\x02", "\x03")  # stand around a bold cell of LaTeX while tabulate escapes it


@dataclass(frozen=True)
class TextTable:
    """Holds a table: lines of cells, and the text above and below.

    first: what a reader should read first. advice: to whoever made the table. align_left: which columns are aligned to
    the left. bold: the lines to use. emphasised: their bold columns. ruled: lines with a rule above. values: for csv
    and json, a dict per line.
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
    advice: list[str] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Escapes what others may have named to do more in a terminal than be read."""
        for texts in (self.headers, *self.lines, self.first, self.above, self.advice, self.below):
            texts[:] = map(printable, texts)

    def render(self, form: str) -> str:
        """Renders it as text, md, tex or html; its values as csv or json."""
        if form in ("csv", "json"):
            return _as_values(self.values, form)
        if form == "tex":
            return _latex(self)
        if form == "html":
            return _html(self)
        body = self.body("github", "**{}**".format) if form == "md" else self.body("simple")
        text = "\n\n".join([*self.first, "\n".join(self.above), body, *self.advice, *self.below]) + "\n"
        return text.replace("<", "&lt;") if form == "md" else text

    def body(self, style: str, bold: Callable[[str], str] = str) -> str:
        """Renders headers and lines alone, in a style of tabulate."""
        lines = [[cell.replace("|", "\\|") if style == "github" else cell for cell in line] for line in self.lines]
        for i in self.bold:
            for k in self.emphasised:
                lines[i][k] = bold(lines[i][k]) if lines[i][k] else ""
        for i in reversed(self.ruled if style in WITH_RULES else ()):
            lines.insert(i, [SEPARATING_LINE])
        alignment = ["left" if left else "right" for left in self.align_left]
        return str(tabulate(lines, self.headers, style, disable_numparse=True, colalign=alignment))


def _latex(shown: TextTable) -> str:
    """Renders a table, ready to paste. Its texts are its caption; what is for whoever made it, comments above."""
    body = shown.body("latex_booktabs", lambda cell: cell.join(BOLD))
    body = body.replace(BOLD[0], "\\textbf{").replace(BOLD[1], "}")
    body = re.sub(r" ± ([\d.]+)", r"$_{\\pm \1}$", body)  # narrower
    body = re.sub(r"(?<=tabular}{)([lr]+)", r"@{}\1@{}", body)
    caption = "".join(LATEX_ESCAPE_RULES.get(letter, letter) for letter in " ".join([*shown.above, *shown.below]))
    comments = ["needs \\usepackage{booktabs}", *shown.first, *shown.advice]
    table = "table" + "*" * (sum(max(map(len, column)) for column in zip(*shown.lines, strict=True)) > COLUMN)
    return (
        f"{''.join(f'% {comment}' + chr(10) for comment in comments)}\\begin{{{table}}}\n"
        f"\\centering\\footnotesize\\setlength{{\\tabcolsep}}{{3pt}}\n{_typeset(body)}\n"
        f"\\caption{{{_typeset(caption)}}}\n\\label{{{shown.label}}}\n\\end{{{table}}}\n"
    )


def _html(shown: TextTable) -> str:
    """Renders a table for a notebook, with its texts as paragraphs."""
    body = shown.body("html")  # tabulate escapes it
    above, below = (
        [f"<p>{html.escape(text)}</p>" for text in texts]
        for texts in (shown.first + shown.above, shown.advice + shown.below)
    )
    return "\n".join([*above, body, *below])


def _typeset(text: str) -> str:
    """Sets signs, intervals, ranges and options of escaped text as LaTeX does: a minus, a dash, two hyphens."""
    text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text.replace("--", "-{}-")).replace("±", r"$\pm$")
    text = re.sub(r"\(?([\d.+$-]+) \.\. ([\d.+$-]+)\)?", r"[\1, \2]", text)
    return re.sub(r"(?<=\d)\.\.(?=\d)", "--", text)


def render(rows: Sequence[Row], form: str, columns: str | None = None) -> str:
    """Renders rows in one of FORMATS, one table after another. columns: as `--columns` takes them; None: the default.

    CSV and JSON have by default every column, and `use` for the row that is recommended.
    """
    if form in ("csv", "json"):
        return _as_values(values_of(rows, choose_columns(columns, rows)) if columns else table_values(rows), form)
    tables = [
        _for_paper(of_table, columns) if form == "tex" else as_table(of_table, choose_columns(columns, of_table))
        for of_table in tables_of(rows)
    ]
    shown, uses = [*tables, *task_tables(rows)], Counter[str]()
    for place, part in enumerate(shown):
        uses[part.label] += 1
        shown[place] = replace(part, label=f"{part.label}-{uses[part.label]}" if uses[part.label] > 1 else part.label)
    return "\n".join(part.render(form) for part in shown)


def table_values(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Gives each row's values by the names of CSV and JSON, and whether it is recommended."""
    used = [recommend(of_table).use for of_table in tables_of(rows)]
    return [line | {"use": row in used} for row, line in zip(rows, values_of(rows), strict=True)]


def task_tables(rows: Sequence[Row]) -> list[TextTable]:
    """Makes a table for each encoder of several tasks: the ranked rows of a task in a line, by their layers.

    Scores of two tasks cannot be compared, so a line has its own score's name, its own floor, and the rows that its own
    table does not call worse.
    """
    shown = []
    for tables in _tasks_of_encoders(rows):
        of_rows = sorted((row for table in tables for row in table), key=lambda row: (len(row.indices), row.indices))
        names = list(dict.fromkeys(row.name for row in of_rows))
        layers = [name.removeprefix("layer_") for name in names]
        headers = ["task", "score", "most frequent", *layers, "best", "not shown to be worse"]
        lines = []
        for table in tables:
            first, floor, means = table[0], majority_accuracy(table), {row.name: percent(row.dev_mean) for row in table}
            best = next((row.name for row in table if row.label == BEST), "not compared")
            close = [row.name for row in table if row.label != BEST and row.behind and row.behind[1] >= 0]
            of_task = [first.setting.data, first.task.headline.name, "" if floor is None else percent(floor)]
            lines.append([*of_task, *(means.get(name, "") for name in names), best, ", ".join(close)])
        caption = (
            f"Tasks by layer, {short_name(tables[0][0].setting.encoder)}. Dev scores in percent, means over seeds. "
            "Compare the layers of one task; scores of two tasks do not compare."
        )
        align_left = [head in ("task", "score", *headers[-2:]) for head in headers]
        shown.append(TextTable(headers, lines, align_left, [caption], label=_label("tasks", tables[0])))
    return shown


def _tasks_of_encoders(rows: Sequence[Row]) -> Iterator[list[list[Row]]]:
    """Yields a table per task of each encoder that has several tasks, with rows of this encoder alone.

    Of several settings of one task, the first is taken.
    """
    ranked = [row for row in rows if row.section == MAIN and row.n and not row.unconverged]
    for tables in group_by(split_by_encoder(ranked), lambda table: table[0].setting.encoder).values():
        of_tasks = group_by(tables, lambda table: (table[0].setting.data, table[0].identity.task)).values()
        if len(of_tasks) > 1:
            yield [label_rows(same[0], same[0][0].margin) if same[0][0].encoder else same[0] for same in of_tasks]


def as_table(rows: Sequence[Row], names: Sequence[str]) -> TextTable:
    recommended = recommend(rows)
    has_answer = "dev" in names and sum(bool(row.n) for row in rows if row.section == MAIN) > 1
    return TextTable(
        headers=[header(name, rows) for name in names],
        lines=[[COLUMNS[name].text(row) for name in names] for row in rows],
        align_left=[COLUMNS[name].align_left for name in names],
        above=[table_caption(rows)],
        below=[*notes(rows, names)],
        advice=advice(rows),
        bold=[i for i, row in enumerate(rows) if row is recommended.use],
        emphasised=[k for k, name in enumerate(names) if name in ("row", "dev")],
        label=_label(rows[0].setting.data, rows),
        ruled=[i for i, (a, b) in enumerate(pairwise(rows), 1) if a.section != b.section],
        first=[recommended.text] if has_answer else [],
    )


def _for_paper(rows: Sequence[Row], columns: str | None) -> TextTable:
    """Makes a table that fits a column of a paper. All notes but a short one are for whoever writes the paper."""
    names, seeds = choose_columns(columns, rows), {row.n for row in rows if row.n > 1}  # one seed shows no deviation
    if columns is None:
        need_n = len(seeds) != 1 or any(row.missing for row in rows)
        names = [name for name in names if name not in LEFT_OUT and (name != "n" or need_n)]
    table, lines = as_table(rows, names), []
    for line, row in zip(table.lines, rows, strict=True):
        short = re.sub(r"^([a-z]+)(_\d+){2,}", rf"\1 {row.layers_as_text}", row.name).replace("_", " ")
        behind = COLUMNS["behind"].text(row).partition(" ")[2] or row.condition or ""
        lines.append([{"row": short, "behind": behind}.get(*cell) for cell in zip(names, line, strict=True)])
    below = []
    if best := next((row for row in rows if row.label == BEST and "behind" in names), None):
        over = " and text" * best.over_text + f", {best.cover.condition}" * bool(best.cover.condition)
        note = f"how far the row lies behind the truly best one (95 %, all rows at once, over seeds{over}; Hsu 1984)"
        below = [f"Brackets: {note}. Bold: the recommended row."]
    caption = table_caption(rows, *seeds) if len(seeds) == 1 and "n" not in names else table_caption(rows)
    above = [f"Choices of layers as features: {caption}"]
    headers, advice = [head.removesuffix(" the best (95 %)") for head in table.headers], [*table.advice, *table.below]
    return replace(table, headers=headers, lines=lines, above=above, below=below, advice=advice)


def _label(subject: str, rows: Sequence[Row]) -> str:
    """Returns a table's label in LaTeX, of its subject and its encoders, without what LaTeX would read as a command."""
    encoders = dict.fromkeys(short_name(row.setting.encoder) for row in rows)
    return "tab:" + re.sub(r"[^\w.-]", "-", "-".join([subject, *encoders]))


def _as_values(lines: Sequence[Mapping[str, Any]], form: str) -> str:
    """Renders JSON, or CSV: the parts of a list are separated by blanks, and no text is a formula of a spreadsheet."""
    if form == "json":
        return json.dumps(lines, indent=1, ensure_ascii=False) + "\n"
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        cells = {name: " ".join(map(str, v)) if isinstance(v, list) else v for name, v in line.items()}
        formulas = {name: f"'{v}" for name, v in cells.items() if isinstance(v, str) and v.startswith(FORMULA)}
        writer.writerow(cells | formulas)
    return out.getvalue()


def write_tables(results_dir: Path, rows: Sequence[Row]) -> None:
    """Writes the table into the folder of its records, in every format of FILES."""
    for form, name in FILES.items():
        write_atomically(results_dir / name, render(rows, form))
