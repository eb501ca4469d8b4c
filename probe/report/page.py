"""Writes one page with everything about a results folder: the recommendation, its picture, tables, figures, records.

The page is self-contained: no script, no other file, no network. `page.html.j2` is its template, which a person can
edit; every text that is put into it is escaped. Pictures are PNG, on the page and as files of their own.
"""

from __future__ import annotations

import base64
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from probe.conditions import BASELINE
from probe.config import UserError
from probe.race.spec import race_lines, read_decisions
from probe.runs.records import Records, RunRecord, bad_records, load_records
from probe.runs.sweep_plan import SWEEP
from probe.screen.figures import screen_picture
from probe.screen.record import SCREEN, ScreenRecord, load_screens
from probe.screen.report import Screens, screen_table
from probe.system.files import to_jsonable, write_atomically
from probe.system.format import percent, reason_of
from probe.tables.columns import choose_columns
from probe.tables.figures import Picture, pictures
from probe.tables.formats import TextTable, table, task_tables, write_tables
from probe.tables.notes import caption, recommendation
from probe.tables.recommendation import recommend
from probe.tables.row import Row, groups_of
from probe.tables.rows import build_rows, results_folder

WORTH = "row,condition,n,dev,test,floors"  # columns
MORE = {  # tables folded at the end, each narrow enough for a page
    "Differences to the best row": "row,condition,dev_to_best,test_to_best",
    "Other scores": "row,condition,test,scores",
    "Cost": "row,condition,cost",
}
PAGE = "report.html"
TO_TRAIN = "A screen trains nothing: to train the best choices, type `probe race` with the same settings."
TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_report(folder: Path, margin: float | None = None, forms: Sequence[str] = ("png",)) -> list[Path]:
    """Writes tables, figures and the page into a results folder; returns page and figures. UserError without records.

    margin: points of dev score that the user does not mind; None: the default. forms: of figures, png and svg.
    """
    folder = results_folder(folder)
    rows = _rows(folder, margin)
    if rows:
        write_tables(folder, rows)
    return write_page(folder, rows, forms)


def _rows(folder: Path, margin: float | None) -> list[Row]:
    """Builds a results folder's rows; none where it holds a screen alone."""
    has_runs = any((folder / "records").glob("*.json")) or (folder / SWEEP).exists()
    return build_rows(folder, margin) if has_runs or not (folder / SCREEN).exists() else []


def write_page(folder: Path, rows: Sequence[Row], forms: Sequence[str] = ("png",)) -> list[Path]:
    """Writes figures and page of a results folder with these rows; returns their files, the page first."""
    screens = load_screens(folder)
    shown = [*pictures(rows), *([screen_picture(screens)] if screens else [])]
    drawn = {picture.name: picture.render() for picture in shown}
    files = {folder / "figures" / f"{name}.png": content for name, content in drawn.items()}
    if "svg" in forms:
        files |= {folder / "figures" / f"{picture.name}.svg": picture.render("svg") for picture in shown}
    for path, content in files.items():
        write_atomically(path, content)
    write_atomically(folder / PAGE, page(folder, rows, shown, drawn))
    return [folder / PAGE, *files]


def page_line(folder: Path, rows: Sequence[Row] | None = None, margin: float | None = None) -> str:
    """Writes figures and page at the end of a command, and says in one line where the page is.

    rows: of the folder, if they are at hand; else they are built with this margin. If the page cannot be written, the
    line says why: the results are there all the same, and `probe report` makes their page at any time.
    """
    try:
        write_page(folder, _rows(folder, margin) if rows is None else rows)
    except Exception as error:
        reason = reason_of(error) if isinstance(error, UserError) else f"{type(error).__name__}: {reason_of(error)}"
        return f"No page was written ({reason}). The results are not affected: probe report {shlex.quote(str(folder))}"
    return f"Page: {folder / PAGE}"


def page(folder: Path, rows: Sequence[Row], shown: Sequence[Picture], drawn: Mapping[str, bytes]) -> str:
    """Renders the page of a results folder, from its rows and pictures. drawn: PNG of each picture, by its name."""
    records, screens, race = load_records(folder), load_screens(folder), read_decisions(folder)
    groups, of_tasks = groups_of(rows), task_tables(rows)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    figures = {picture.name: _figure(picture, drawn[picture.name]) for picture in shown}
    scores = {picture.group: picture.name for picture in shown if picture.name.startswith("scores")}
    of_screen = [name for name in figures if name.startswith("screen_")]
    others = [name for name in figures if name not in (*scores.values(), *of_screen)]
    return environment.get_template(TEMPLATE.name).render(
        title=folder.resolve().name,
        settings=[
            _setting(group, records) | {"name": name, "figure": figures.get(scores.get(group[0].group, ""))}
            for group, name in zip(groups, _names(groups), strict=True)
        ],
        tasks=of_tasks,
        race=list(race_lines(race)) if race else None,
        screen=_screen(screens, [figures[name] for name in of_screen]) if screens else None,
        figures=[figures[name] for name in others],
        records=[_record(file, record) for file, record in records.items()],
        again=_again(folder, next(iter(records.values()))) if records else "",
        problems=[str(problem) for problem in bad_records(folder).values()],
    )


def _names(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Names the tables of a page: by their data, or if that is the same, by all that their captions say."""
    names = [group[0].setting.data for group in groups]
    return names if len(set(names)) == len(names) else [caption(group).split(". ")[0] for group in groups]


def _figure(picture: Picture, content: bytes) -> dict[str, Any]:
    """Gives a picture as a part of the page."""
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))  # of a PNG, in its header
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"name": picture.name, "alt": picture.alt, "source": source, "width": width, "height": height}


def _setting(rows: Sequence[Row], records: Records) -> dict[str, Any]:
    """Gives the tables of one setting, and what its runs were made with."""
    keys = {key for row in rows for key in row.keys}
    own = [record for record in records.values() if record.key in keys]
    has_others = any(row.condition or not row.indices for row in rows)
    main_rows = [row for row in rows if row.section != BASELINE] or rows  # a page shows baselines further down
    main = table(main_rows, choose_columns(None, main_rows))
    first = "encoder," if any(row.encoder for row in rows) else ""
    more = {title: table(rows, choose_columns(first + wanted, rows)) for title, wanted in MORE.items()}
    fewest = 2 + bool(first)  # columns that say which row it is
    return {
        "id": rows[0].group,
        "sentences": recommendation(rows) or [recommend(rows).as_text()],
        "caption": main.above[0],
        "table": _filled(main),
        "notes": [*main.above[1:], *main.below],
        "worth": _filled(table(rows, choose_columns(first + WORTH, rows))) if has_others else None,
        "more": {title: filled for title, one in more.items() if len((filled := _filled(one)).headers) > fewest},
        "made_with": _made_with(own) if own else [],
    }


def _filled(shown: TextTable) -> TextTable:
    """Leaves out the columns of a table in which no row has anything."""
    there = [k for k in range(len(shown.headers)) if any(line[k] for line in shown.lines)]
    return replace(
        shown,
        headers=[shown.headers[k] for k in there],
        lines=[[line[k] for k in there] for line in shown.lines],
        align_left=[shown.align_left[k] for k in there],
    )


def _screen(screens: Screens, figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    shown = screen_table(screens)
    made_with = {encoder: _made_with_screen(screen) for encoder, screen in screens.items()}
    return {"first": " ".join([*shown.first, TO_TRAIN]), "table": shown, "figures": figures, "made_with": made_with}


def _made_with_screen(screen: ScreenRecord) -> list[tuple[str, str]]:
    """Says what a screen was made with."""
    parts = {"screen": screen.identity.screen, "seed": screen.identity.seed, "data": screen.data}
    parts |= {"encoder": screen.encoder, "features": screen.setting.features, "software": screen.software.versions}
    parts |= {
        "hardware": to_jsonable(screen.hardware),
        "git": to_jsonable(screen.software.git),
        "command": screen.software.command,
    }
    return [(name, _flat(value)) for name, value in parts.items()]


def _made_with(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Says what the runs were made with; where they differ, each value with the number of its runs."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        parts = {name: value for name, value in to_jsonable(record.config).items() if name not in ("layers", "seed")}
        parts |= {"software": record.software.versions, "hardware": to_jsonable(record.hardware)}
        parts |= {"git": to_jsonable(record.software.git), "command": record.software.command}
        for name, value in parts.items():
            values[name][_flat(value)] += 1
    return [
        (name, value + f"  ({runs} of {len(records)} runs)" * (runs < len(records)))
        for name, counter in values.items()
        for value, runs in counter.items()
    ]


def _flat(value: Any) -> str:
    return "  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _record(file: Path, record: RunRecord) -> list[str]:
    """Gives a line of the table of records."""
    condition = record.identity.condition
    return [
        f"{record.row}, {condition.label}" if condition else record.row,
        str(record.seed),
        percent(record.scores.dev.headline),
        percent(record.scores.test.headline),
        f"records/{file.name}",
    ]


def _again(folder: Path, record: RunRecord) -> str:
    """Gives the command that runs one record again."""
    return f"probe verify {shlex.quote(str(folder))} --rerun {record.row} --seed {record.seed}"
