"""Commands that show results: table, report, errors, bench, sweep-status."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from probe.cli.parser import Parser, at_least, results_or_last, say_bad_records
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


def report(arguments: list[str]) -> int:
    from probe.report.page import write_report

    parser = Parser(prog="probe report", description="Tables, figures and one self-contained page (report.html).")
    parser.add_argument("dir", nargs="?", type=Path, help="folder with records/; none: the one written last")
    parser.add_argument(
        "--margin", type=at_least(float, 0), help="points of dev F1 that you do not mind; see probe table"
    )
    options = parser.parse_args(arguments)
    folder = results_or_last(options.dir)
    code = say_bad_records(folder)
    print(*write_report(folder, options.margin), sep="\n")
    return code


ERRORS_HELP = """\
probe errors [DIR] --row ROW [--against ROW] [--split dev|test] [--seed S] [--examples N] [--format text|json]

What one row gets right that the other does not: by type, by length of span and sentence, by words seen in training,
with examples where predictions lie beside the records. Without --against: what the row gets wrong. Runs are paired by
seed.

Examples
  probe errors results/demo-minilm --row concat_last_four --against last
  probe errors results/conll2003-minilm-each-layer --row layer_4 --against concat_last_four --split dev
"""


def errors(arguments: list[str]) -> int:
    from probe.errors.errors import compare_errors, lines
    from probe.tables.formats import as_json

    parser = Parser(prog="probe errors", usage=ERRORS_HELP)
    parser.add_argument("dir", nargs="?", type=Path)
    parser.add_argument("--row", required=True)
    parser.add_argument("--against")
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--examples", type=at_least(int, 0), default=5)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_intermixed_args(arguments)
    if options.against == options.row:
        raise UserError(f"errors: --against {options.against} is the row itself; another, or none.")
    folder = results_or_last(options.dir, options.format)
    code = say_bad_records(folder)
    found = compare_errors(folder, options.row, options.against, options.split, options.seed, options.examples)
    if options.format == "json":
        print(as_json(found.as_json()), end="")
    else:
        print(*lines(found), sep="\n")
    return code


BENCH_HELP = """\
probe bench [DIR] [setting=value ...]

How many words a second this machine takes through the encoder of a results folder, cut after the deepest layer that
each row needs. The figures go into DIR/bench.json, and from there into the recommendation and the column words_s.
Settings say what is otherwise here: encoder.path=DIR, device=cpu.
"""


def bench(arguments: list[str]) -> int:
    from probe.bench.bench import BENCH, measure
    from probe.cli.settings import configs_of
    from probe.runs.config_from_record import config_from_record
    from probe.tables.rows import results_folder

    parser = Parser(prog="probe bench", usage=BENCH_HELP)
    parser.add_argument("given", nargs="*")
    given = parser.parse_intermixed_args(arguments).given
    folders, overrides = [one for one in given if "=" not in one], [one for one in given if "=" in one]
    if len(folders) > 1:
        raise UserError(f"bench: one folder at a time, not {' and '.join(folders)}.")
    folder = results_folder(results_or_last(Path(folders[0]) if folders else None))
    made = measure(
        folder,
        lambda record: config_from_record(record, lambda typed: configs_of(typed)[0][0], overrides),
        functools.partial(print, flush=True),
    )
    for one in made:
        for blocks, speed in one.words_per_second.items():
            print(f"{blocks:>4} blocks {speed:>9,} words/s")
    print(f"{folder / BENCH}; tables and figures with it: probe report {folder}")
    return 0


def sweep_status(arguments: list[str]) -> int:
    from probe.runs.progress import lines

    parser = Parser(prog="probe sweep-status", description="Where a sweep stands: done, running, failed, time left.")
    parser.add_argument("dir", nargs="?", type=Path, help="the sweep's results_dir; none: the one written last")
    print(*lines(results_or_last(parser.parse_args(arguments).dir)), sep="\n")
    return 0
