"""Writes one page with everything about a results folder: tables, figures, settings, records, how to run each again.

The page is self-contained: no script, no other file, no network. The figures are part of it as SVG, and also files of
their own. `page.html.j2` is its template; every text that is put into it is escaped, except the figures.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from probe.race.report import answer, race_lines
from probe.runs.records import Records, RunRecord, bad_records, load_records
from probe.screen.figures import draw_screen
from probe.screen.record import ScreenRecord
from probe.screen.report import rows_or_screen, screen_table, sound_screen, write_screen_tables
from probe.system.files import plain, write_atomically
from probe.system.format import percent
from probe.tables.columns import choose_columns
from probe.tables.figures import draw_all
from probe.tables.formats import table, task_tables, write_tables
from probe.tables.row import Row, groups_of
from probe.tables.rows import results_folder

WORTH = "row,condition,n,dev,floors,bits"  # columns
DIFFERENCES = "row,n,differences,variance,scores,cost"
TEMPLATE = Path(__file__).with_name("page.html.j2")


def write_report(folder: Path, margin: float | None = None) -> list[Path]:
    """Writes tables, figures and report.html into a results folder; returns the files. UserError without records.

    margin: points of dev score that the user does not mind; None: the default.
    """
    folder = results_folder(folder)
    rows = rows_or_screen(folder, margin)
    pictures = pictures_of(folder, rows)
    if rows:
        write_tables(folder, rows)
    if screen := sound_screen(folder):
        write_screen_tables(folder, screen)
    for stale in (folder / "figures").glob("*.*"):
        if stale.suffix in (".png", ".svg") and stale.name not in pictures:
            stale.unlink()
    for name, content in pictures.items():
        write_atomically(folder / "figures" / name, content)
    write_atomically(folder / "report.html", page(folder, rows, pictures))
    return [folder / "report.html", *(folder / "figures" / name for name in pictures)]


def write_screen(folder: Path, screen: ScreenRecord) -> list[Path]:
    """Writes a screen's tables and figures into its results folder; returns the files."""
    files = write_screen_tables(folder, screen)
    for name, content in draw_screen(screen).items():
        write_atomically(folder / "figures" / name, content)
        files.append(folder / "figures" / name)
    return files


def pictures_of(folder: Path, rows: Sequence[Row]) -> dict[str, bytes]:
    """Draws every picture of a results folder: file name to content."""
    screen = sound_screen(folder)
    return draw_all(rows) | (draw_screen(screen) if screen else {})


def page(folder: Path, rows: Sequence[Row], pictures: Mapping[str, bytes]) -> str:
    """Renders the page of a results folder, from its rows and their pictures."""
    records, screen, race = load_records(folder), sound_screen(folder), race_lines(folder)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return environment.get_template(TEMPLATE.name).render(
        title=folder.resolve().name,
        settings=[_setting(group, records) for group in groups_of(rows)],
        tasks=task_tables(rows),
        race={"answer": list(answer(folder, rows)), "rounds": race} if race else None,
        screen={"table": screen_table(screen), "provenance": _provenance(screen)} if screen else None,
        figures={name: _svg(content) for name, content in pictures.items() if name.endswith(".svg")},
        records=[_record(folder, file, record) for file, record in records.items()],
        problems=[str(problem) for problem in bad_records(folder).values()],
    )


def _svg(content: bytes) -> Markup:
    """Gives a picture's file as a part of a page: without what comes before its element."""
    text = content.decode()
    return Markup(text[text.index("<svg") :])


def _setting(rows: Sequence[Row], records: Records) -> dict[str, Any]:
    """Gives the tables of one setting, and what its runs were made with."""
    keys = {key for row in rows for key in row.keys}
    own = [record for record in records.values() if record.key in keys]
    has_others = any(row.condition or not row.indices or "conditional_gain" in row.relative for row in rows)
    return {
        "table": table(rows, choose_columns(None, rows)),
        "worth": table(rows, choose_columns(WORTH, rows)) if has_others else None,
        "differences": table(rows, choose_columns(DIFFERENCES, rows)),
        "made_with": _made_with(own) if own else "",
    }


def _provenance(screen: ScreenRecord) -> str:
    """Says what a screen was made with."""
    parts = {"screen": screen.identity.screen, "seed": screen.identity.seed, "data": screen.data}
    parts |= {"encoder": screen.encoder, "features": screen.setting.features, "software": screen.software.versions}
    parts |= {"hardware": plain(screen.hardware), "git": plain(screen.software.git), "command": screen.software.command}
    return "\n".join(f"{name}: {_flat(value)}" for name, value in parts.items())


def _made_with(records: Sequence[RunRecord]) -> str:
    """Says what the runs were made with; where they differ, each value with the number of its runs."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        parts = {name: value for name, value in plain(record.config).items() if name not in ("layers", "seed")}
        parts |= {"software": record.software.versions, "hardware": plain(record.hardware)}
        parts |= {"git": plain(record.software.git), "command": record.software.command}
        for name, value in parts.items():
            values[name][_flat(value)] += 1
    return "\n".join(
        f"{name}: {value}" + f"  ({runs} of {len(records)} runs)" * (runs < len(records))
        for name, counter in values.items()
        for value, runs in counter.items()
    )


def _flat(value: Any) -> str:
    return "  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _record(folder: Path, file: Path, record: RunRecord) -> list[str]:
    """Gives a line of the table of records."""
    condition = record.identity.condition
    return [
        f"{record.row}, {condition.label}" if condition else record.row,
        str(record.seed),
        percent(record.scores.dev.headline),
        percent(record.scores.test.headline),
        f"records/{file.name}",
        f"probe verify {shlex.quote(str(folder))} --rerun {record.row} --seed {record.seed}",
    ]
