"""Implements `probe race`: rows trained seed by seed, and dropped when they are significantly worse than the leader."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from probe.arguments import Parser, report_bad_records
from probe.config import Config, LayersConfig, UserError, layer_presets, layers_named
from probe.settings import add_hydra_flags, parse_command, run_hydra_flags
from probe.system.grouping import group_by

if TYPE_CHECKING:
    from probe.screen.report import RankedChoice

DESCRIPTION = """\
Trains rows one seed at a time, and drops a row once it is significantly worse than the leader on
dev. The rows are the best of `probe screen` (race.candidates of them, the best of each encoder
and width first; with 0 nothing is screened), those of race.rows, and those of layers=A,B or of a
sweep; all presets if none is given. With several encoders (encoder=A,B) these are rows of each
encoder, and the candidates come from one ranking of all encoders. The seeds are seed, seed + 1,
... up to race.max_seeds, or those that you give. The same command continues a race.
"""
EXAMPLES = """\
  probe race data=demo encoder=minilm_l6 results_dir=results/race
  probe race +sweep=conll2003_minilm data.path=DIR race.candidates=4 results_dir=results/search
  probe race data=demo encoder=minilm_l6 race.candidates=0 layers=last,mix_all
"""


def race(arguments: list[str]) -> int:
    """Races rows, prints their table and what the race has shown, and returns the exit code."""
    if run_hydra_flags(arguments):
        return 0
    parser = Parser("race", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_argument("-m", "--multirun", action="store_true", help="accepted, but not needed: a race is a sweep")
    add_hydra_flags(parser)
    overrides = parser.parse_intermixed_args(arguments).overrides

    from probe.race.race import run_race
    from probe.race.report import answer
    from probe.report.page import page_line
    from probe.runs.plan import named_encoders, one_per_encoder
    from probe.tables.formats import render, write_tables
    from probe.tables.rows import build_rows

    configs, _, settings = parse_command(["-m", *overrides])
    typed = any(name == "layers" or name.startswith("layers.") for name in settings - {"layers.normalize"})
    base, folder = configs[0], Path(configs[0].results_dir)
    seeds = list(dict.fromkeys(cfg.seed for cfg in configs))
    if len(seeds) == 1:
        seeds = [seeds[0] + number for number in range(base.race.max_seeds)]
    if any(replace(cfg, layers=base.layers, seed=base.seed, encoder=base.encoder) != base for cfg in configs):
        raise UserError("A race compares layers and encoders only: give one corpus, one probe and one results_dir.")
    of_encoders = one_per_encoder(configs)
    encoders = named_encoders(of_encoders) if len(of_encoders) > 1 else {}
    by_name = [layers_named(row) for row in base.race.rows or ()]
    if not by_name and not typed and not base.race.candidates:
        by_name = layer_presets()
    named = [replace(cfg, layers=_normalized(layers, base)) for cfg in of_encoders for layers in by_name]
    named += configs if typed else []
    command = shlex.join(["probe", *sys.argv[1:]])
    log = functools.partial(print, flush=True)
    screened = functools.partial(_screened_candidates, of_encoders, command, log)
    failed = run_race(named, seeds[: base.race.max_seeds], base, screened, command, log, encoders)
    code = report_bad_records(folder)
    rows = build_rows(folder, base.margin)
    write_tables(folder, rows)
    print(f"\n{render(rows, 'text')}")
    print(*answer(folder, rows), f"Records, tables and decisions: {folder}", sep="\n")
    for (row, seed), reason in failed.items():
        print(f"failed: {row} seed {seed}: {reason}", file=sys.stderr)
    print(page_line(folder, rows), flush=True)
    return 1 if failed or code else 0


def _screened_candidates(of_encoders: Sequence[Config], command: str, log: Callable[[str], None]) -> list[Config]:
    """Runs the screen, shows and writes it, and returns the rows of `choose_candidates`."""
    base = of_encoders[0]
    if not base.race.candidates:
        return []
    from probe.screen.report import rank_screens, render_screens, write_screen_tables
    from probe.screen.run import run_screens

    folder = Path(base.results_dir)
    screens = run_screens(of_encoders, log, command)
    write_screen_tables(folder, screens)
    log(f"{render_screens(screens, 'text')}\nNow the runs.\n")
    config_of = dict(zip(screens, of_encoders, strict=True))
    return [
        replace(config_of[one.encoder], layers=_normalized(one.choice.layers, base))
        for one in choose_candidates(rank_screens(screens), base.race.candidates)
    ]


def choose_candidates(ranked: Sequence[RankedChoice], number: int) -> list[RankedChoice]:
    """Chooses `number` candidates for a race and returns them best first.

    First come the choices that rank above all narrower ones of their encoder; the encoders take turns. Then come the
    next best. A linear readout gains more from width than a trained probe does, so the first choices of a screen are
    usually equally wide, and often of one encoder. A cheaper choice can only be recommended if it takes part.
    """
    from probe.screen.ranking import front

    turn: dict[str, int] = {}  # of each choice of a front, from the best down
    for own in group_by(ranked, lambda one: one.encoder).values():
        points = front([(one.title, one.choice.width, -one.place) for one in own])
        turn |= {title: i for i, (title, _, _) in enumerate(reversed(points))}
    in_turn = sorted(ranked, key=lambda one: (turn.get(one.title, len(ranked)), one.place))
    return sorted(in_turn[:number], key=lambda one: one.place)


def _normalized(layers: LayersConfig, base: Config) -> LayersConfig:
    """Returns layers named or screened, normalized as the race's settings say."""
    return replace(layers, normalize=base.layers.normalize)
