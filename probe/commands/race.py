"""Implements `probe race`: rows trained seed by seed, and dropped when they are significantly worse than the leader."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from probe.commands.arguments import Parser, report_bad_records
from probe.config import Config, LayersConfig, UserError, layer_presets, layers_named, unknown
from probe.probes.candidates import Candidate
from probe.settings import configs_of
from probe.system.processes import is_child

DESCRIPTION = """\
Trains rows one seed at a time, and drops a row once it is significantly worse than the leader on
dev. The rows are the best of `probe screen` (race.candidates of them, the best of each width and
the best single layer first; with 0 nothing is screened), those of race.rows, and those of
layers=A,B or of a sweep; all presets if none is given. The seeds are seed, seed + 1, ... up to
race.max_seeds, or those that you give. The same command continues a race.
"""
EXAMPLES = """\
  probe race data=demo encoder=minilm_l6 results_dir=results/race
  probe race +sweep=conll2003_minilm data.path=DIR race.candidates=4 results_dir=results/search
  probe race data=demo encoder=minilm_l6 race.candidates=0 layers=last,mix_all
"""


def race(arguments: list[str]) -> int:
    """Races rows, prints their table and what the race has shown, and returns the exit code."""
    parser = Parser("race", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_argument("-m", "--multirun", action="store_true", help="accepted, but not needed: a race is a sweep")
    overrides = parser.parse_intermixed_args(arguments).overrides

    from probe.race.race import run_race
    from probe.report.page import finish
    from probe.runs.sweep import crew_of

    configs, _ = configs_of(["-m", *overrides])
    typed = any(word.startswith(("layers=", "layers.indices=", "layers.combine=", "+sweep=")) for word in overrides)
    base = configs[0]
    seeds = list(dict.fromkeys(cfg.seed for cfg in configs))
    if len(seeds) == 1:
        seeds = [seeds[0] + number for number in range(base.race.max_seeds)]
    if any(cfg.encoder != base.encoder for cfg in configs):
        raise UserError("A race has one encoder: screen several (probe screen encoder=A,B), then race the best.")
    if any(replace(cfg, layers=base.layers, seed=base.seed) != base for cfg in configs):
        raise UserError("A race compares layers only: give one corpus, one probe and one results_dir.")
    presets = {preset.name: preset for preset in layer_presets()}
    by_name = []
    for row in base.race.rows or ():
        if (layers := presets.get(row) or layers_named(row)) is None:
            raise unknown("race.rows", row, [*presets, "layer_4", "concat_3_4", "mix_1_2_3", "..."])
        by_name.append(layers)
    if not by_name and not typed and not base.race.candidates:
        by_name = layer_presets()
    named = [*_with_layers(base, by_name), *(configs if typed else [])]
    command = shlex.join(["probe", *sys.argv[1:]])
    log = functools.partial(print, flush=True)
    screened = functools.partial(_screened, base, command, log)
    with crew_of(command) as crew:
        failed = run_race(named, seeds[: base.race.max_seeds], base, screened, crew, log)
    if is_child():
        return 0
    folder = Path(base.results_dir)
    return report_bad_records(folder) | finish([folder], failed.items())


def _with_layers(base: Config, layers: Iterable[LayersConfig]) -> list[Config]:
    """Returns the rows with these layers, normalized as the race's settings say."""
    return [replace(base, layers=replace(one, normalize=base.layers.normalize)) for one in layers]


def _screened(base: Config, command: str, log: Callable[[str], None]) -> tuple[list[Config], int]:
    """Runs the screen, shows and writes it, and returns the rows of `choose_candidates` and how many it ranked."""
    if not base.race.candidates:
        return [], 0
    from probe.screening.report import screen_table
    from probe.screening.run import run_screens

    screens = run_screens([base], log, command)
    log(f"{screen_table(screens).render('text')}\nNow the runs.\n")
    (screen,) = screens.values()
    chosen = choose_candidates(screen.ranked, base.race.candidates)
    return _with_layers(base, (one.layers for one in chosen)), len(screen.ranked)


def choose_candidates(ranked: Sequence[Candidate], number: int) -> list[Candidate]:
    """Chooses `number` candidates for a race from a screen's ranking and returns them best first.

    First come the choices that rank above all narrower ones, then the best single layer, then the next best. A linear
    readout gains more from width than a trained probe does, so the first choices of a screen are usually equally wide,
    and single layers rank low. A cheaper choice can only be recommended if it takes part.
    """
    above_narrower = [
        place for place, one in enumerate(ranked) if all(one.width < other.width for other in ranked[:place])
    ]
    single = [place for place, one in enumerate(ranked) if len(one.layers.indices) == 1][:1]
    first = dict.fromkeys([*above_narrower, *single, *range(len(ranked))])
    return [ranked[place] for place in sorted(list(first)[:number])]
