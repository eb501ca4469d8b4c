"""Implements `probe verify`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from probe.commands.arguments import Parser, at_least, results_or_last
from probe.config import UserError
from probe.format import printable
from probe.settings import SETTING, config_of, split_settings

# Printed below a folder's checks: what they cannot show.
LIMITS = (
    "Not checked: losses, a screen's scores, times, software, hardware, how files were read, and a change made in "
    "every place alike. Only training again shows these: probe verify {folder} --rerun. Of the tables, only table.json "
    "is compared. The page, the pictures and the other tables are not: probe report {folder} writes them again."
)


def verify(arguments: list[str]) -> int:
    """Checks records, counts, scores and table.json of a results folder against each other. With one of
    the options below it trains runs again, or compares with other results instead.
    Exit code 0 if everything that could be checked holds, 1 if not.

    examples:
      probe verify results/demo-minilm
      probe verify results/quickstart --against results/demo-quickstart
      probe verify results/demo-minilm --rerun concat_last_four --seed 1
      probe verify results/demo-minilm --rerun --sample 2
      probe verify results/paper_table --rerun last --seed 2 data.path=DIR
    """
    parser = Parser(verify)
    parser.add_argument(
        "given",
        nargs="*",
        metavar="DIR | setting=value",
        help="results folder (default: the one written last); with --rerun also settings for files that have moved "
        "(data.path=DIR)",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--rerun", nargs="?", const="", metavar="ROW", help="train again, all rows or one, and compare")
    mode.add_argument("--against", metavar="DIR", help="compare with the same runs made elsewhere")
    parser.add_argument("--seed", type=int, metavar="S", help="with --rerun: only the runs with this seed")
    parser.add_argument(
        "--sample", type=at_least(int, 1), metavar="N", help="with --rerun: only N runs, drawn at random"
    )
    options = parser.parse_intermixed_args(arguments)
    row = options.rerun  # "": every row; None: no run is trained
    overrides, folders = split_settings([text.removeprefix("results_dir=") for text in options.given])
    if row and SETTING.match(row):  # argparse takes a setting right after --rerun for its ROW
        row, overrides = "", [row, *overrides]
    if row is None and (overrides or (options.seed, options.sample) != (None, None)):
        raise UserError(
            "verify: settings, --seed and --sample are for --rerun: "
            "probe verify DIR --rerun [ROW] [--seed S] [--sample N] [setting=value ...]."
        )
    if len(folders) > 1:
        raise UserError(f"verify: give one folder, not {' and '.join(folders)}. To compare two: --against DIR.")
    folder = results_or_last(Path(folders[0]) if folders else None)

    from probe.verify import checks, reruns

    if row is not None:
        chosen = reruns.choose_runs(folder, row or None, options.seed, options.sample)
        made: Iterator[checks.Check] = chain(reruns.unreadable(folder), reruns.rerun(chosen, config_of, overrides))
    elif options.against is not None:
        made = reruns.check_against(folder, Path(options.against))
    else:
        made = checks.check_files(folder)
    results = []
    for check in made:
        results.append(check.ok)
        print(printable(check.line()), flush=True)
    failed = results.count(False)
    print(f"{results.count(True)} checks hold, {failed} do not, {results.count(None)} could not be made.")
    if row is None and options.against is None and not failed:
        print(LIMITS.format(folder=shlex.quote(str(folder))))
    return 1 if failed else 0
