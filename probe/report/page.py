"""One page that holds everything about a results folder: tables, figures, settings, records, how to run each again.

Self-contained: no script, no file beside it, no network. The figures stand in it as SVG, and as files beside it.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from probe.race.report import answer, race_lines
from probe.runs.records import Records, RunRecord, bad_records, load_records
from probe.screen.figures import draw_screen
from probe.screen.record import ScreenRecord
from probe.screen.report import grid, rows_or_screen, sound_screen, write_screen_tables
from probe.system.files import plain, write_atomically
from probe.system.format import percent
from probe.tables.columns import choose_columns
from probe.tables.figures import draw_all
from probe.tables.formats import TextTable, table, task_tables, write_tables
from probe.tables.row import Row, groups_of
from probe.tables.rows import results_folder

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th { border-bottom: 2px solid #888; }
.left { text-align: left; }
.best, .first { font-weight: bold; }
figure { margin: 1.5rem 0; }
figure svg { width: 46rem; max-width: 100%; height: auto; background: white; }
pre, code { font: 13px/1.4 ui-monospace, monospace; }
pre { white-space: pre-wrap; padding: .7rem; background: #8881; }
.note { opacity: .8; }
"""
WORTH = "row,treatment,n,dev,floors,bits"  # columns
RULE = ' style="border-top: 2px solid #888"'  # above a row


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
    """Every picture that a results folder gives: file name to content."""
    screen = sound_screen(folder)
    return draw_all(rows) | (draw_screen(screen) if screen else {})


def page(folder: Path, rows: Sequence[Row], pictures: Mapping[str, bytes]) -> str:
    """The page of a results folder, from its rows and their pictures."""
    title = folder.resolve().name
    parts = [f"<h1>{escape(title)}</h1>"]
    records = load_records(folder)
    for group in groups_of(rows):
        keys = {key for row in group for key in row.keys}
        parts += ["<h2>Table</h2>", *_table(group, choose_columns(None, group))]
        if any(row.treatment or not row.indices or "beyond" in row.beside for row in group):
            parts += ["<h2>What it is worth</h2>", *_table(group, choose_columns(WORTH, group))]
        parts += [
            "<h2>Differences and cost</h2>",
            *_table(group, choose_columns("row,n,differences,variance,scores,cost", group)),
        ]
        own = [record for record in records.values() if record.key in keys]
        if own:
            parts += ["<h2>Settings</h2>", f"<pre>{escape(_settings(own))}</pre>"]
    for shown in task_tables(rows):
        parts += ["<h2>Tasks</h2>", *_html(shown)]
    if race := race_lines(folder):
        parts += ["<h2>Race</h2>", *(f"<p>{escape(line)}</p>" for line in answer(folder, rows))]
        parts += [f"<pre>{escape(chr(10).join(race))}</pre>"]
    if screen := sound_screen(folder):
        parts += ["<h2>Screen</h2>", *_html(grid(screen))]
        parts.append(f"<pre>{escape(_provenance(screen))}</pre>")
    parts.append("<h2>Figures</h2>")
    for name, content in pictures.items():
        if name.endswith(".svg"):
            parts.append(f'<figure role="img" aria-label="{escape(name)}">{_svg(content)}</figure>')
    parts += ["<h2>Records</h2>", *_records(folder, records)]
    parts += [f"<p class=note>{escape(str(problem))}</p>" for problem in bad_records(folder).values()]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _svg(content: bytes) -> str:
    """A picture's file as it stands in a page: without what comes before its element."""
    text = content.decode()
    return text[text.index("<svg") :]


def _table(rows: Sequence[Row], names: list[str]) -> list[str]:
    return _html(table(rows, names))


def _provenance(screen: ScreenRecord) -> str:
    """What a screen was made with."""
    parts = {"screen": screen.identity.screen, "seed": screen.identity.seed, "data": screen.data}
    parts |= {"encoder": screen.encoder, "features": screen.setting.features, "software": screen.software.versions}
    parts |= {"hardware": plain(screen.hardware), "git": plain(screen.software.git), "command": screen.software.command}
    return "\n".join(
        f"{name}: {'  '.join(f'{k}={v}' for k, v in value.items()) if isinstance(value, dict) else value}"
        for name, value in parts.items()
    )


def _html(grid: TextTable) -> list[str]:
    """A table with what stands above and below it."""

    def line(tag: str, texts: list[str], row_class: str = "", style: str = "") -> str:
        inside = "".join(
            f"<{tag}{' class=left' if left else ''}>{escape(text)}</{tag}>"
            for left, text in zip(grid.left, texts, strict=True)
        )
        return f"<tr{f' class={row_class}' if row_class else ''}{style}>{inside}</tr>"

    lines = [line("th", grid.headers)]
    lines += [
        line("td", cells, "best" if i in grid.bold else "", RULE if i in grid.ruled else "")
        for i, cells in enumerate(grid.lines)
    ]
    return [
        *(f"<p class=first>{escape(text)}</p>" for text in grid.first),
        *(f"<p>{escape(text)}</p>" for text in grid.above),
        "<table>" + "\n".join(lines) + "</table>",
        *(f"<p class=note>{escape(text)}</p>" for text in grid.below),
    ]


def _settings(records: Sequence[RunRecord]) -> str:
    """What the runs were made with; where they differ, each way and how many runs it was."""
    ways: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        parts = {name: value for name, value in plain(record.config).items() if name not in ("layers", "seed")}
        parts |= {"software": record.software.versions, "hardware": plain(record.hardware)}
        parts |= {"git": plain(record.software.git), "command": record.software.command}
        for name, value in parts.items():
            ways[name]["  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)] += 1
    return "\n".join(
        f"{name}: {way}" + f"  ({runs} of {len(records)} runs)" * (runs < len(records))
        for name, counter in ways.items()
        for way, runs in counter.items()
    )


def _records(folder: Path, records: Records) -> list[str]:
    head = "".join(f"<th class=left>{name}</th>" for name in ("row", "seed", "dev", "test", "record", "run it again"))
    lines = [f"<tr>{head}</tr>"]
    for file, record in records.items():
        again = f"probe verify {shlex.quote(str(folder))} --rerun {record.row} --seed {record.seed}"
        scores = (percent(split.headline) for split in (record.scores.dev, record.scores.test))
        treatment = record.identity.treatment
        row = f"{record.row}, {treatment.label}" if treatment else record.row
        cells = [row, str(record.seed), *scores, f"records/{file.name}", again]
        lines.append("<tr>" + "".join(f"<td class=left>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return ["<table>" + "\n".join(lines) + "</table>"]
