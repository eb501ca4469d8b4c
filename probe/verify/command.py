"""Implements `probe verify`."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last
from probe.config import UserError
from probe.settings import SETTING, config_of, split_settings
from probe.verify.check import Check

DESCRIPTION = """\
Checks records, counts, scores and table.json of a results folder against each other. With one of
the options below it trains runs again, predicts again, or compares with other results instead.
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
LIMITS = """\
These checks do not prove the scores. If predictions, counts and record were changed consistently, only training again
shows it: probe verify {folder} --rerun [--sample N]. If runs were removed from sweep.json together with their records,
nothing shows it."""


def verify(arguments: list[str]) -> int:
    """Checks a results folder, prints each check, and returns the exit code."""
    from probe.tables.published import PUBLISHED

    parser = Parser("verify", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "given",
        nargs="*",
        metavar="DIR | setting=value",
        help="results folder (default: the one written last); with --rerun and --weights also settings for files that "
        "have moved (data.path=DIR)",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--rerun", nargs="?", const="", metavar="ROW", help="train again, all rows or one, and compare")
    mode.add_argument(
        "--weights",
        nargs="?",
        const="",
        metavar="ROW",
        help="predict again with saved weights (save_probe=true), for all rows or one, and compare",
    )
    mode.add_argument(
        "--against",
        metavar=f"{{DIR,{','.join(PUBLISHED)}}}",
        help="compare with the same runs made elsewhere, or with published numbers",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="with --rerun or --weights: only the runs with this seed")
    parser.add_argument(
        "--sample", type=at_least(int, 1), metavar="N", help="with --rerun or --weights: only N runs, drawn at random"
    )
    parser.add_argument(
        "--sample-seed",
        type=int,
        metavar="K",
        help="with --sample: draw the same runs again (printed by the first draw)",
    )
    parser.add_format("text", "json")
    options = parser.parse_intermixed_args(arguments)
    row = options.rerun if options.weights is None else options.weights  # "": every row; None: no run is made again
    overrides, folders = split_settings([text.removeprefix("results_dir=") for text in options.given])
    if row and SETTING.match(row):  # argparse takes a setting right after --rerun for its ROW
        row, overrides = "", [row, *overrides]
    if row is None and (overrides or (options.seed, options.sample) != (None, None)):
        raise UserError(
            "verify: settings, --seed and --sample are for --rerun and --weights: "
            "probe verify DIR --rerun [ROW] [--seed S] [--sample N] [setting=value ...]."
        )
    if options.sample is None and options.sample_seed is not None:
        raise UserError("verify: --sample-seed is for --sample: probe verify DIR --rerun --sample N --sample-seed K.")
    if len(folders) > 1:
        raise UserError(f"verify: give one folder, not {' and '.join(folders)}. To compare two: --against DIR.")
    folder = results_or_last(Path(folders[0]) if folders else None, options.format)
    if row is not None:
        checks = _made_again(folder, row, overrides, options)
    elif options.against is not None:
        checks = _compared(folder, options.against)
    else:
        from probe.verify.results import check_files

        checks = check_files(folder, Path(config_of([]).features.cache_dir))
    results = []
    for check in checks:
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


def _made_again(folder: Path, row: str, overrides: list[str], options: argparse.Namespace) -> Iterator[Check]:
    """Trains runs again, or predicts again with their saved weights, and compares. row: "" for every row."""
    from probe.verify import reruns
    from probe.verify.complete import unreadable

    sample_seed = random.SystemRandom().randrange(10**6) if options.sample_seed is None else options.sample_seed
    chosen = reruns.choose_runs(folder, row or None, options.seed, options.sample, sample_seed)
    if options.sample is not None:
        print(
            f"Drawn: {', '.join(record.label for record in chosen)}. "
            f"The same again: --sample {options.sample} --sample-seed {sample_seed}",
            file=sys.stdout if options.format == "text" else sys.stderr,
            flush=True,
        )
    if options.weights is None:
        again = reruns.rerun(chosen, config_of, overrides)
    else:
        saved = [record for record in chosen if record.sha256.weights]
        if not saved:
            raise UserError(f"{folder}: none of these {len(chosen)} runs has saved its weights (save_probe=true).")
        again = reruns.predict_again(saved, folder, config_of, overrides)
    yield from unreadable(folder)
    yield from again


def _compared(folder: Path, against: str) -> Iterator[Check]:
    """Compares a folder with the same runs in another, or with published numbers."""
    from probe.tables.published import PUBLISHED
    from probe.verify import reruns

    if against in PUBLISHED:
        return reruns.check_against_published(folder, against)
    return reruns.check_against(folder, Path(against))
