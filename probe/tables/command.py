"""`probe table`: records to a table."""

from __future__ import annotations

import sys
from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last, say_bad_records
from probe.config import UserError

TABLE_HELP = """\
probe table [DIR ...] [--format text|md|csv|tex|json] [--columns NAME,...] [--margin POINTS]
probe table --compare A B

Makes a table from records: which row to use, means and standard deviations over seeds, how far each row lies behind the
best, and for CoNLL-2003 the paper's numbers. Several folders stand side by side.

--margin   points of dev F1 that you do not mind; the cheapest row within them is recommended (default: margin in
           conf/config.yaml, 0.5)
--compare  the difference of two result sets row by row, with its interval over seeds and text

Examples
  probe table results/quickstart --format md
  probe table results/quickstart --margin 1
  probe table results/quickstart --columns default,variance,cost
  probe table results/quickstart results/demo-minilm
  probe table --compare results/quickstart results/demo-minilm
"""


def table(arguments: list[str]) -> int:
    from probe.tables.columns import COLUMNS, GROUPS
    from probe.tables.comparison import compare, render_comparison, render_side_by_side
    from probe.tables.formats import FORMATS, render
    from probe.tables.rows import build_rows

    columns = f"\ncolumns: {', '.join(COLUMNS)}\nseveral at once: {', '.join(GROUPS)}\n"
    parser = Parser(prog="probe table", usage=TABLE_HELP + columns)
    parser.add_argument("dirs", nargs="*", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--columns")
    parser.add_argument("--margin", type=at_least(float, 0))
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args(arguments)
    folders = options.dirs or [results_or_last(None, options.format)]
    for name in ("columns", "margin"):
        if getattr(options, name) is not None and (options.compare or len(folders) > 1):
            raise UserError(f"table: --{name} is for one folder.")
    if options.compare and len(folders) != 2:
        raise UserError("table: --compare needs two folders of results: probe table --compare A B.")
    code = say_bad_records(*folders)
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
