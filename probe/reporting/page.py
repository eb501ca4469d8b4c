"""One page that holds everything about a results folder: tables, figures, settings, records, how to run each again.

Self-contained: no script, no file beside it, no network. The figures stand in it as SVG, and as files beside it.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter, defaultdict
from html import escape
from pathlib import Path
from typing import Any

from probe.reporting.columns import COLUMNS, above, choose_columns, header, notes
from probe.reporting.figures import draw_all
from probe.reporting.formats import write_tables
from probe.reporting.row import Row
from probe.reporting.rows import build_rows, results_folder
from probe.runs.records import load_records
from probe.scoring.metrics import headline
from probe.system.files import write_atomically

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th { border-bottom: 2px solid #888; }
.left { text-align: left; }
.best { font-weight: bold; }
figure { margin: 1.5rem 0; }
figure svg { width: 46rem; max-width: 100%; height: auto; background: white; }
pre, code { font: 13px/1.4 ui-monospace, monospace; }
pre { white-space: pre-wrap; padding: .7rem; background: #8881; }
.note { opacity: .8; }
"""


def write_report(folder: Path) -> list[Path]:
    """Writes tables, figures and report.html into a results folder; returns the files. UserError without records."""
    folder = results_folder(folder)
    rows = build_rows(folder)
    records = load_records(folder)
    pictures = draw_all(rows, records)
    write_tables(folder, rows)
    for stale in (folder / "figures").glob("*.*"):
        if stale.suffix in (".png", ".svg") and stale.name not in pictures:
            stale.unlink()
    for name, (content, _) in pictures.items():
        write_atomically(folder / "figures" / name, content)
    write_atomically(folder / "report.html", page(folder, rows, records, pictures))
    return [folder / "report.html", *(folder / "figures" / name for name in pictures)]


def page(
    folder: Path, rows: list[Row], records: dict[Path, dict[str, Any]], pictures: dict[str, tuple[bytes, str]]
) -> str:
    title = folder.resolve().name
    parts = [f"<h1>{escape(title)}</h1>"]
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        keys = {key for row in mine for key in row["keys"]}
        parts += ["<h2>Table</h2>", *_table(mine, choose_columns(None, mine))]
        parts += ["<h2>Tests and cost</h2>", *_table(mine, choose_columns("row,n,tests,scores,cost", mine))]
        own = [record for record in records.values() if record["key"] in keys]
        if own:
            parts += ["<h2>Settings</h2>", f"<pre>{escape(_settings(own))}</pre>"]
    parts.append("<h2>Figures</h2>")
    for name, (content, _) in pictures.items():
        if name.endswith(".svg"):
            parts.append(f'<figure role="img" aria-label="{escape(name)}">{_svg(content)}</figure>')
    parts += ["<h2>Records</h2>", *_records(folder, records)]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def page_differs(folder: Path, rows: list[Row], records: dict[Path, dict[str, Any]]) -> str | None:
    """What is wrong with a folder's page, given its rows, records and figures as files; None if nothing is."""
    there = (folder / "report.html").read_text(encoding="utf-8")
    files = {file.name: (file.read_bytes(), "") for file in sorted((folder / "figures").glob("*.svg"))}
    shown = re.findall(r"<svg.*?</svg>", there, flags=re.S)
    for name, (content, _) in files.items():
        if _svg(content).strip() not in shown:
            return f"it does not show figures/{name}; `probe report` writes it anew"
    text, again = (_lines(html) for html in (there, page(folder, rows, records, files)))
    for line, given in itertools.zip_longest(text, again, fillvalue=""):
        if line != given:
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(line, given, strict=False)))
            start = max(0, same - 30)
            return f"it has {line[start : start + 80]!r}, the records give {given[start : start + 80]!r}"
    return None


def _svg(content: bytes) -> str:
    """A picture's file as it stands in a page: without what comes before its element."""
    text = content.decode()
    return text[text.index("<svg") :]


def _lines(html: str) -> list[str]:
    """The lines of a page, without its figures and without the folder's name: it may have been moved."""
    html = re.sub(r"<figure.*?</figure>\n?", "", html, flags=re.S)
    return re.sub(r"(<title>|<h1>|probe verify ).*?(</title>|</h1>| --rerun)", r"\1\2", html).splitlines()


def _table(rows: list[Row], names: list[str]) -> list[str]:
    def cells(tag: str, texts: list[str], row_class: str = "") -> str:
        inside = "".join(
            f"<{tag}{' class=left' if COLUMNS[name].left else ''}>{escape(text)}</{tag}>"
            for name, text in zip(names, texts, strict=True)
        )
        return f"<tr{f' class={row_class}' if row_class else ''}>{inside}</tr>"

    lines = [cells("th", [header(name, rows) for name in names])]
    for row in rows:
        lines.append(cells("td", [COLUMNS[name].show(row) for name in names], "best" if row["order"] == "best" else ""))
    return [
        *(f"<p>{escape(line)}</p>" for line in above(rows, names)),
        "<table>" + "\n".join(lines) + "</table>",
        *(f"<p class=note>{escape(line)}</p>" for line in notes(rows, names)),
    ]


def _settings(records: list[dict[str, Any]]) -> str:
    """What the runs were made with; where they differ, each way and how many runs it was."""
    ways: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        parts = {name: value for name, value in record["config"].items() if name not in ("layers", "seed")}
        parts |= {"software": record["software"]["versions"], "hardware": record["hardware"]}
        parts |= {name: record["software"][name] for name in ("git", "command")}
        for name, value in parts.items():
            ways[name]["  ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)] += 1
    return "\n".join(
        f"{name}: {way}" + f"  ({runs} of {len(records)} runs)" * (runs < len(records))
        for name, counter in ways.items()
        for way, runs in counter.items()
    )


def _records(folder: Path, records: dict[Path, dict[str, Any]]) -> list[str]:
    head = "".join(f"<th class=left>{name}</th>" for name in ("row", "seed", "dev", "test", "record", "run it again"))
    lines = [f"<tr>{head}</tr>"]
    for file, record in records.items():
        again = f"probe verify {shlex.quote(str(folder))} --rerun {record['row']} --seed {record['config']['seed']}"
        cells = [record["row"], str(record["config"]["seed"])]
        cells += [f"{100 * headline(record['scores'][split]):.2f}" for split in ("dev", "test")]
        cells += [f"records/{file.name}", again]
        lines.append("<tr>" + "".join(f"<td class=left>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return ["<table>" + "\n".join(lines) + "</table>"]
