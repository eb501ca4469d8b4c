"""Implements `probe screen`: layers ranked without training."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path

from probe.commands.arguments import Parser
from probe.config import UserError
from probe.settings import configs_of

DESCRIPTION = """\
Ranks every single layer, every preset, concatenations of up to screen.max_layers layers and means
of neighbouring layers, without training: for each it solves a linear readout of a word and its
neighbours, all from one pass over the features. It reads train and dev only. It writes screen.json,
a table and a page (report.html) to results_dir. Several encoders (encoder=A,B) are screened on the
same sentences and ranked together, with the cost of each choice.
"""
EXAMPLES = """\
  probe screen data=demo encoder=minilm_l6 results_dir=results/quickstart
  probe screen data=demo encoder=minilm_l6 screen.max_layers=2 screen.window=2
  probe screen data=demo encoder=minilm_l6,mpnet_base results_dir=results/two-encoders
"""


def screen(arguments: list[str]) -> int:
    """Ranks layers without training, and returns the exit code."""
    parser = Parser("screen", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    overrides = parser.parse_intermixed_args(arguments).overrides
    configs, _ = configs_of(overrides, swept="encoder")
    cfg, folder = configs[0], Path(configs[0].results_dir)
    if any((other.data, other.features, other.screen) != (cfg.data, cfg.features, cfg.screen) for other in configs):
        raise UserError("screen: give one corpus, and one value of each setting of features and screen.")

    from probe.report.page import page_line
    from probe.runs.plan import one_per_encoder
    from probe.screening.report import screen_table
    from probe.screening.run import run_screens

    log = functools.partial(print, file=sys.stderr, flush=True)
    screens = run_screens(one_per_encoder(configs), log, shlex.join(["probe", *sys.argv[1:]]))
    print(screen_table(screens).render("text"), end="")
    log(f"screen: {sum(one.seconds for one in screens.values()):.0f} s; screen and table: {folder}")
    typed = shlex.join(overrides) if len(screens) == 1 else "encoder=ONE results_dir=DIR ..."
    log(f"next, to train the best of them: probe race {typed}")
    log(page_line(folder))
    return 0
