"""Implements `probe table`: records to a table."""

from __future__ import annotations

import sys

from probe.arguments import Parser, report_bad_records, results_or_last, results_path
from probe.config import UserError

DESCRIPTION = """\
Prints the records of a results folder as a table: which row to use, means and standard deviations
over seeds, how far each row lies behind the best, and for CoNLL-2003 the paper's numbers. Several
folders are printed side by side.
"""
EXAMPLES = """\
  probe table results/quickstart --format md
  probe table results/quickstart --margin 1
  probe table results/quickstart --columns default,differences,cost
  probe table results/quickstart results/demo-quickstart
  probe table --compare results/quickstart results/demo-quickstart
"""


def table(arguments: list[str]) -> int:
    """Prints the table of one or several results folders, and returns the exit code."""
    from probe.tables.columns import COLUMNS, GROUPS
    from probe.tables.formats import FORMATS

    parser = Parser("table", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "dirs", nargs="*", type=results_path, metavar="DIR", help="results folders (default: the one written last)"
    )
    parser.add_argument(
        "--columns",
        metavar="NAME,...",
        help=f"columns to show, or groups of them: {', '.join(GROUPS)}. Columns: {', '.join(COLUMNS)}",
    )
    parser.add_margin()
    parser.add_argument(
        "--compare",
        action="store_true",
        help="print the difference of two folders row by row, with its interval over seeds and text",
    )
    parser.add_format(*FORMATS)
    options = parser.parse_intermixed_args(arguments)
    folders = options.dirs or [results_or_last(None, options.format)]
    for name in ("columns", "margin"):
        if getattr(options, name) is not None and (options.compare or len(folders) > 1):
            raise UserError(f"table: --{name} is for one folder.")
    if options.compare and len(folders) != 2:
        raise UserError("table: --compare needs two folders of results: probe table --compare A B.")

    from probe.tables.comparison import compare, render_comparison, render_side_by_side
    from probe.tables.formats import render
    from probe.tables.rows import build_rows

    code = report_bad_records(*folders)
    if options.compare:
        comparison = compare(*folders)
        if options.format in ("csv", "json") and comparison.left_out:
            print(*comparison.left_out, sep="\n", file=sys.stderr)
        print(render_comparison(comparison, options.format), end="")
    elif len(folders) > 1:
        print(render_side_by_side(folders, options.format), end="")
    else:
        print(render(build_rows(folders[0], options.margin), options.format, options.columns), end="")
    return code
