"""`probe errors`: what one row gets right that another does not."""

from __future__ import annotations

from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last, say_bad_records
from probe.config import UserError

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
