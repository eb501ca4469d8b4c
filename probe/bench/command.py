"""Implements `probe bench`."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.arguments import Parser, results_or_last
from probe.config import UserError
from probe.settings import config_of, split_settings

DESCRIPTION = """\
Measures how many words per second the encoder of a results folder processes on this machine, if
it stops after the deepest layer that a row needs. Writes the speeds to DIR/bench.json, where the
recommendation and the column words_s read them.
"""
EXAMPLES = """\
  probe bench results/quickstart
  probe bench results/quickstart encoder.path=DIR device=cpu
"""


def bench(arguments: list[str]) -> int:
    """Measures and prints the speed of a results folder's encoder, and returns the exit code."""
    parser = Parser("bench", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "given",
        nargs="*",
        metavar="DIR | setting=value",
        help="results folder (default: the one written last), and settings that differ on this machine",
    )
    overrides, folders = split_settings(parser.parse_intermixed_args(arguments).given)
    if len(folders) > 1:
        raise UserError(f"bench: give one folder, not {' and '.join(folders)}.")

    from probe.bench.bench import BENCH, measure
    from probe.runs.config_from_record import config_from_record
    from probe.tables.rows import results_folder

    folder = results_folder(results_or_last(Path(folders[0]) if folders else None))
    measured = measure(
        folder, lambda record: config_from_record(record, config_of, overrides), functools.partial(print, flush=True)
    )
    for encoder in measured:
        for blocks, speed in encoder.words_per_second.items():
            print(f"{blocks:>4} blocks {speed:>9,} words/s")
    print(f"Speeds: {folder / BENCH}. To see them in tables and figures: probe report {folder}")
    return 0
