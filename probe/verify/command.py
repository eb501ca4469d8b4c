"""Implements `probe verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last
from probe.config import UserError
from probe.settings import SETTING, config_of, split_settings
from probe.verify.check import Check

DESCRIPTION = """\
Checks records, counts, scores and table.json of a results folder against each other. With one of
the options below it trains runs again, or compares with other results instead.
Exit code 0 if everything that could be checked holds, 1 if not.
"""
EXAMPLES = """\
  probe verify results/demo-minilm
  probe verify results/quickstart --against results/demo-quickstart
  probe verify results/demo-minilm --rerun concat_last_four --seed 1
  probe verify results/demo-minilm --rerun --sample 2
  probe verify results/paper_table --rerun last --seed 2 data.path=DIR
"""

# Printed below a folder's checks: what they cannot show.
LIMITS = "Scores that were changed everywhere alike are found by training again alone: probe verify {folder} --rerun."


def verify(arguments: list[str]) -> int:
    """Checks a results folder, prints each check, and returns the exit code."""
    parser = Parser("verify", DESCRIPTION, EXAMPLES)
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
    parser.add_format("text", "json")
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
    folder = results_or_last(Path(folders[0]) if folders else None, options.format)
    results = []
    for check in _checks(folder, row, overrides, options):
        results.append(check)
        if options.format == "text":
            print(check.line(), flush=True)
    failed = sum(check.ok is False for check in results)
    if options.format == "json":
        print(json.dumps([check._asdict() for check in results], indent=1))
        return 1 if failed else 0
    passed = sum(check.ok is True for check in results)
    print(f"{passed} checks hold, {failed} do not, {len(results) - passed - failed} could not be made.")
    if row is None and options.against is None and not failed:
        print(LIMITS.format(folder=folder))
    return 1 if failed else 0


def _checks(folder: Path, row: str | None, overrides: list[str], options: argparse.Namespace) -> Iterator[Check]:
    """Returns the checks that were asked for."""
    if row is None and options.against is None:
        from probe.verify.results import check_files

        return check_files(folder)
    from probe.verify import reruns

    if row is None:
        return reruns.check_against(folder, Path(options.against))
    chosen = reruns.choose_runs(folder, row or None, options.seed, options.sample)
    return chain(reruns.unreadable(folder), reruns.rerun(chosen, config_of, overrides))
