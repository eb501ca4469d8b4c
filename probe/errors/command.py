"""Implements `probe errors`."""

from __future__ import annotations

from probe.arguments import Parser, at_least, report_bad_records, results_or_last
from probe.config import UserError

DESCRIPTION = """\
Shows what one row gets right that another row does not: by entity type, by length of span and
sentence, and by whether the words occur in train. Shows examples where the predictions are in
the folder. Without --against, it shows what the row gets wrong. Runs are paired by seed.
"""
EXAMPLES = """\
  probe errors results/demo-minilm --row concat_last_four --against last
  probe errors results/conll2003-minilm-sentence --row last --against concat_last_four --split dev
"""


def errors(arguments: list[str]) -> int:
    """Prints what one row gets right that another does not, and returns the exit code."""
    parser = Parser("errors", DESCRIPTION, EXAMPLES)
    parser.add_folder()
    parser.add_argument("--row", required=True, help="the row, by its name in tables")
    parser.add_argument("--against", metavar="ROW", help="the row to compare with")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="the split (default: %(default)s)")
    parser.add_argument("--seed", type=int, metavar="S", help="only the runs with this seed (default: all seeds)")
    parser.add_argument(
        "--examples", type=at_least(int, 0), default=5, metavar="N", help="how many examples (default: %(default)s)"
    )
    parser.add_format("text", "json")
    options = parser.parse_intermixed_args(arguments)
    if options.against == options.row:
        raise UserError(f"errors: --against {options.against} is the row itself. Name another row, or omit --against.")

    from probe.errors.errors import compare_errors, lines
    from probe.tables.formats import as_json

    folder = results_or_last(options.dir, options.format)
    code = report_bad_records(folder)
    found = compare_errors(folder, options.row, options.against, options.split, options.seed, options.examples)
    if options.format == "json":
        print(as_json(found.as_json()), end="")
    else:
        print(*lines(found), sep="\n")
    return code
