"""`probe bench`: the speed of the encoder."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.arguments import Parser, results_or_last
from probe.config import UserError
from probe.settings import configs_of

BENCH_HELP = """\
probe bench [DIR] [setting=value ...]

How many words a second this machine takes through the encoder of a results folder, cut after the deepest layer that
each row needs. The figures go into DIR/bench.json, and from there into the recommendation and the column words_s.
Settings say what is otherwise here: encoder.path=DIR, device=cpu.
"""


def bench(arguments: list[str]) -> int:
    from probe.bench.bench import BENCH, measure
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
