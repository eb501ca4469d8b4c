"""Commands that show results: table, report, sweep-status."""

from __future__ import annotations

from pathlib import Path

from probe.cli.parser import Parser, results_or_last, say_bad_records
from probe.config import UserError

TABLE_HELP = """\
probe table [DIR ...] [--format text|md|csv|tex|json] [--columns NAME,...]
probe table --compare A B

Records to a table: mean and standard deviation over seeds, the order of the rows as far as it can be told, and for
CoNLL-2003 the paper's numbers. Several folders stand side by side. --compare: row by row the difference of two result
sets, its interval and its p.

Examples
  probe table results/quickstart --format md
  probe table results/quickstart --columns default,tests,cost
  probe table results/quickstart results/demo-minilm
  probe table --compare results/quickstart results/demo-minilm
"""


def table(arguments: list[str]) -> int:
    from probe.reporting.columns import COLUMNS, GROUPS
    from probe.reporting.comparison import render_comparison, render_side_by_side
    from probe.reporting.formats import FORMATS, render
    from probe.reporting.rows import build_rows

    columns = f"\ncolumns: {', '.join(COLUMNS)}\nseveral at once: {', '.join(GROUPS)}\n"
    parser = Parser(prog="probe table", usage=TABLE_HELP + columns)
    parser.add_argument("dirs", nargs="*", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--columns")
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args(arguments)
    folders = options.dirs or [results_or_last(None, options.format)]
    if options.columns and (options.compare or len(folders) > 1):
        raise UserError("table: --columns is for one folder.")
    if options.compare and len(folders) != 2:
        raise UserError("table: --compare needs two folders of results: probe table --compare A B.")
    code = say_bad_records(*folders)
    if options.compare:
        print(render_comparison(folders[0], folders[1], options.format), end="")
    elif len(folders) > 1:
        print(render_side_by_side(folders, options.format), end="")
    else:
        print(render(build_rows(folders[0]), options.format, options.columns), end="")
    return code


def report(arguments: list[str]) -> int:
    from probe.reporting.page import write_report

    parser = Parser(prog="probe report", description="Tables, figures and one self-contained page (report.html).")
    parser.add_argument("dir", nargs="?", type=Path, help="folder with records/; none: the one written last")
    folder = results_or_last(parser.parse_args(arguments).dir)
    code = say_bad_records(folder)
    print(*write_report(folder), sep="\n")
    return code


def sweep_status(arguments: list[str]) -> int:
    from probe.runs.progress import lines

    parser = Parser(prog="probe sweep-status", description="Where a sweep stands: done, running, failed, time left.")
    parser.add_argument("dir", nargs="?", type=Path, help="the sweep's results_dir; none: the one written last")
    print(*lines(results_or_last(parser.parse_args(arguments).dir)), sep="\n")
    return 0
