"""Implements `probe table`: records to a table."""

from __future__ import annotations

from pathlib import Path

from probe.commands.arguments import Parser, report_bad_records, results_or_last, results_path
from probe.config import UserError

KINDS = ("scores", "difference", "compare", "sentence")  # of what is printed instead of the table


def table(arguments: list[str]) -> int:
    """Prints the records of a results folder as a table: which row to use, means and standard deviations
    over seeds, how far each row lies behind the best, and for bert-base-cased on CoNLL-2003 the paper's
    numbers.

    examples:
      probe table results/quickstart --format md
      probe table results/quickstart --margin 1
      probe table results/quickstart --columns default,cost
      probe table results/quickstart --difference concat_last_four last
      probe table --compare results/quickstart results/demo-quickstart
    """
    from probe.tables.columns import COLUMNS, GROUPS
    from probe.tables.formats import FORMATS

    parser = Parser(table)
    parser.add_argument("dirs", nargs="*", metavar="DIR", help="results folder (default: the one written last)")
    parser.add_argument(
        "--columns",
        metavar="NAME,...",
        help=f"columns to show, or groups of them: {', '.join(GROUPS)}. Columns: {', '.join(COLUMNS)}",
    )
    parser.add_margin()
    parser.add_argument(
        "--difference",
        nargs=2,
        metavar="ROW",
        help="print the difference of two rows, overall and per type, with its interval over seeds and text; with two "
        "folders, the first row is of the first",
    )
    parser.add_argument(
        "--scores", type=Path, metavar="FILE.csv",
        help="compare scores from elsewhere, higher ones better: columns row, score and, where known, seed, unit, "
        "document, cost",
    )  # fmt: skip
    parser.add_argument(
        "--sentence", action="store_true", help="print the result as a sentence for a paper, with its limits"
    )
    parser.add_argument("--compare", action="store_true", help="print how rows of one name differ between two folders")
    parser.add_format(*FORMATS)
    options = parser.parse_intermixed_args(arguments)
    across = options.compare or bool(options.difference and len(options.dirs) == 2)
    kinds = [f"--{name}" for name in KINDS if getattr(options, name)]
    if len(kinds) > 1:
        raise UserError(f"table: {' and '.join(kinds)} print different things. Type one of them.")
    unused = {
        "--columns": options.columns and kinds,
        "--margin": options.margin is not None and across,
        "--format": options.format != "text" and options.sentence,
    }
    if wrong := next(filter(unused.get, unused), None):
        raise UserError(f"table: {wrong} changes nothing with {kinds[0]}. Omit it.")
    if options.scores:
        from probe.tables.scores import render_scores

        print(render_scores(options.scores, options.margin, options.format), end="")
        return 0
    folders = [*map(results_path, options.dirs)] or [results_or_last(None, options.format)]
    if len(folders) != 1 + across:
        raise UserError(
            "table: give one folder of results, or two with --compare or --difference: probe table --compare A B."
        )

    from probe.tables.difference import differences, render_differences
    from probe.tables.formats import render
    from probe.tables.recommendation import sentence
    from probe.tables.row import tables_of
    from probe.tables.rows import build_rows

    code = report_bad_records(*folders)
    if options.difference or options.compare:
        print(
            render_differences(*differences(folders, options.difference or (), options.margin), options.format), end=""
        )
    elif options.sentence:
        print("\n".join(map(sentence, tables_of(build_rows(folders[0], options.margin)))))
    else:
        print(render(build_rows(folders[0], options.margin), options.format, options.columns), end="")
    return code
