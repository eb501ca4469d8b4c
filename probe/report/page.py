"""Writes one page with everything about a results folder: the recommendation, its picture, tables, figures, records.

The page is self-contained: no script, no other file, no network. `page.html.j2` is its template, which a person can
edit; every text that is put into it is escaped. Its pictures are PNG, each in a wide form and a narrow one for phones.
"""

from __future__ import annotations

import base64
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from probe.config import UserError
from probe.format import first_few, percent, reason_of, short_name
from probe.runs.records import RunRecord, bad_records
from probe.runs.screens import SCREEN, ScreenRecord, load_screen
from probe.runs.sweep_plan import SWEEP
from probe.screening.figures import screen_picture
from probe.screening.report import screen_table
from probe.system.files import to_jsonable, write_atomically
from probe.system.locks import alone
from probe.tables.columns import choose_columns
from probe.tables.figures import NARROW, Picture, pictures
from probe.tables.formats import TextTable, as_table, render, task_tables, write_tables
from probe.tables.notes import heading
from probe.tables.recommendation import recommend
from probe.tables.row import Row, by_score, tables_of
from probe.tables.rows import build_rows, results_folder

MORE = "encoder,row,condition,scores,cost"  # columns of the table that is folded at the end
PAGE = "report.html"
TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_report(folder: Path, margin: float | None = None, form: str = "png") -> list[Path]:
    """Writes tables, figures and the page into a results folder; returns page and figures. UserError without records.

    margin: as in `build_rows`. form: of the figures: png, svg or pdf.
    """
    folder = results_folder(folder)
    rows = _rows(folder, margin)
    if rows:
        write_tables(folder, rows)
    return write_page(folder, rows, form)


def _rows(folder: Path, margin: float | None = None) -> list[Row]:
    """Builds a results folder's rows; none where it holds a screen alone."""
    has_runs = any((folder / "records").glob("*.json")) or (folder / SWEEP).exists()
    return build_rows(folder, margin) if has_runs or not (folder / SCREEN).exists() else []


def write_page(folder: Path, rows: Sequence[Row], form: str = "png") -> list[Path]:
    """Writes figures and page of a results folder with these rows; returns their files, the page first."""
    screen = load_screen(folder)
    shown = [*pictures(rows), *([screen_picture(screen)] if screen else [])]
    drawn = {picture.name: (picture.render("png"), picture.render("png", NARROW)) for picture in shown}
    files = {folder / "figures" / f"{name}.png": wide for name, (wide, _) in drawn.items()}
    if form != "png":
        files = {folder / "figures" / f"{picture.name}.{form}": picture.render(form) for picture in shown}
    if (folder / "figures").is_symlink():  # to pictures of something else, which these would replace
        raise UserError(f"{folder / 'figures'} is a link, and nothing is written through one. Remove it.")
    for path, content in files.items():
        write_atomically(path, content)
    write_atomically(folder / PAGE, page(folder, rows, shown, drawn))
    return [folder / PAGE, *files]


def page_line(folder: Path, rows: Sequence[Row] | None = None) -> str:
    """Writes figures and page at the end of a command, and says in one line where the page is.

    rows: of the folder, if they are at hand. If the page cannot be written, the line says why: the results are there
    all the same, and `probe report` makes their page at any time.
    """
    try:
        write_page(folder, _rows(folder) if rows is None else rows)
    except Exception as error:
        reason = reason_of(error) if isinstance(error, UserError) else f"{type(error).__name__}: {reason_of(error)}"
        return f"No page was written ({reason}). The results are not affected: probe report {shlex.quote(str(folder))}"
    return f"Page: {folder / PAGE}"


def finish(folders: Iterable[Path], failed: Collection[tuple[str, str]]) -> int:
    """Prints the tables of a sweep and its failures, writes tables and pages, and returns the exit code.

    failed: label and reason of each run that failed. Of processes that end at the same time, one after another writes,
    each with all records that are there then.
    """
    folders = list(folders)
    for folder in folders:
        print(f"\n{render(build_rows(folder), 'text')}\nRecords and tables: {folder}")
    for label, reason in failed:
        print(f"failed: {label}: {reason}", file=sys.stderr)
    for folder in folders:
        with alone(folder / "logs" / "end.lock"):
            rows = build_rows(folder)
            write_tables(folder, rows)
            print(page_line(folder, rows), flush=True)
    return 1 if failed else 0


def page(folder: Path, rows: Sequence[Row], shown: Sequence[Picture], drawn: Mapping[str, Sequence[bytes]]) -> str:
    """Renders the page of a results folder. drawn: by the name of each picture, its wide PNG and its narrow one."""
    screen = load_screen(folder)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    figures = [_figure(picture, drawn[picture.name]) for picture in shown]
    lines = []
    for row in rows:
        for file, run in row.records.items():
            scores = [percent(run.scores.dev.headline), percent(run.scores.test.headline)]
            lines.append([row.full_name, str(run.seed), *scores, file.name])
    again = next((row.record for row in rows if row.n), None)
    return environment.get_template(TEMPLATE.name).render(
        title=_title(folder, rows, screen),
        tables=[_table(of_table, figures) for of_table in tables_of(rows)],
        tasks=task_tables(rows),
        screen=screen_table(screen) if screen else None,
        figures=[figure for figure in figures if figure["table"] is None],
        settings=list(_settings([run for row in rows for run in row.records.values()])),
        records=TextTable(["row", "seed", "dev", "test", "record"], lines, [True] * 5),
        again=again and shlex.join(["probe", "verify", str(folder), "--rerun", again.row, "--seed", str(again.seed)]),
        problems=[str(problem) for problem in bad_records(folder).values()],
    )


def _title(folder: Path, rows: Sequence[Row], screen: ScreenRecord | None) -> str:
    encoders, corpora = [short_name(row.setting.encoder) for row in rows], [row.setting.data for row in rows]
    if not rows and screen:
        encoders, corpora = [*screen.encoders], [screen.corpus]
    of, on = (first_few(list(dict.fromkeys(names))) for names in (encoders, corpora))
    return f"Which layers of {of} to use on {on} ({folder.resolve().name})"


def _figure(picture: Picture, drawn: Sequence[bytes]) -> dict[str, Any]:
    wide, narrow = (f"data:image/png;base64,{base64.b64encode(content).decode()}" for content in drawn)
    return {"alt": picture.alt, "table": picture.table, "wide": wide, "narrow": narrow}


def _table(rows: Sequence[Row], figures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Gives the parts of the page about one table, its rows in the order of its figure."""
    rows = by_score(rows)
    return {
        "id": rows[0].table,
        "sentence": recommend(rows).text,
        "name": heading(rows),
        "main": as_table(rows, choose_columns(None, rows)),
        "more": as_table(rows, [name for name in choose_columns(MORE, rows) if name != "encoder" or rows[0].encoder]),
        "figure": next((figure for figure in figures if figure["table"] == rows[0].table), None),
    }


def _settings(records: Sequence[RunRecord]) -> Iterator[tuple[str, str]]:
    """Yields what the runs were made with; where they differ, each value with the number of its runs."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        parts = {
            **{name: value for name, value in to_jsonable(record.config).items() if name not in ("layers", "seed")},
            "software": record.software.versions,
            "hardware": to_jsonable(record.hardware),
            "git": to_jsonable(record.software.git),
            "command": record.software.command,
        }
        for name, value in parts.items():
            as_text = "  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            values[name][as_text] += 1
    for name, counter in values.items():
        for as_text, runs in counter.items():
            yield name, as_text + f"  ({runs} of {len(records)} runs)" * (runs < len(records))
