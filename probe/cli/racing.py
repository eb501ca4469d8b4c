"""The command that races rows until they are told apart."""

from __future__ import annotations

import functools
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from probe.cli.parser import say_bad_records
from probe.cli.settings import HYDRA_ONLY, asked_by, hydra_itself
from probe.config import Config, layer_presets, layers_named

HELP = """\
probe race [setting=value ...]           rows trained seed by seed; what is told apart from the leader gets no more

Rows: race.rows=[concat_last_four,layer_4,mix_1_2_3] and those of layers=A,B or of a sweep; all presets where none is
named. Seeds: seed, seed + 1, ... up to race.max_seeds, or those that are named. The same command continues a race.

Examples
  probe race data=demo encoder=minilm_l6
  probe race +sweep=conll2003_minilm data.path=DIR 'race.rows=[layer_4,concat_3_4]' results_dir=results/search
  probe race data=demo encoder=minilm_l6 layers=last,mix_all race.max_minutes=30
"""


def race(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(HELP, end="")
        return 0
    if any(argument.split("=")[0] in HYDRA_ONLY for argument in arguments):
        hydra_itself(arguments)
        return 0
    from probe.racing.race import run_race
    from probe.reporting.answer import answer
    from probe.reporting.formats import render, write_tables
    from probe.reporting.rows import build_rows

    sweep = arguments if {"-m", "--multirun"} & set(arguments) else ["-m", *arguments]
    configs, launcher, settings = asked_by(sweep)
    assert launcher is not None
    seeds = list(dict.fromkeys(cfg.seed for cfg in configs))
    rules = configs[0].race
    if len(seeds) == 1:
        seeds = [seeds[0] + number for number in range(rules.max_seeds)]
    command = shlex.join(["probe", *sys.argv[1:]])
    tell = functools.partial(print, flush=True)
    failed = run_race(_rows(configs, settings), seeds[: rules.max_seeds], {}, launcher, command, tell)
    folder = Path(configs[0].results_dir)
    code = say_bad_records(folder)
    rows = build_rows(folder)
    write_tables(folder, rows)
    print(f"\n{render(rows, 'text')}")
    print(*answer(folder, rows), f"Records, tables and decisions: {folder}", sep="\n")
    for (row, seed), reason in failed.items():
        print(f"failed: {row} seed {seed}: {reason}", file=sys.stderr)
    return 1 if failed or code else 0


def _rows(configs: list[Config], settings: set[str]) -> list[Config]:
    """One config a row: the rows of race.rows and those that were typed as layers; all presets where neither was."""
    base, named = configs[0], [layers_named(row) for row in configs[0].race.rows or ()]
    typed = any(name == "layers" or name.startswith("layers.") for name in settings)
    if not named and not typed:
        named = layer_presets()
    return [replace(base, layers=layers) for layers in named] + (configs if typed else [])
