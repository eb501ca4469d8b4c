"""Implements `probe screen`: layers ranked without training."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import Config, UserError
from probe.data.task import TASKS
from probe.settings import configs_of

DESCRIPTION = """\
Ranks every single layer, every preset, concatenations of up to screen.max_layers layers and means
of neighbouring layers, without training: for each it solves a linear readout of a word and its
neighbours, all from one pass over the features. It reads train and dev only. It writes screen.json,
a table and a page with figures (report.html) to results_dir. Several encoders (encoder=A,B) are
screened on the same sentences and ranked together, with the cost of each choice.
"""
EXAMPLES = """\
  probe screen data=demo encoder=minilm_l6 results_dir=results/quickstart
  probe screen data=demo encoder=minilm_l6 screen.max_layers=2 screen.window=2 --format md
  probe screen data=demo encoder=minilm_l6,mpnet_base results_dir=results/two-encoders
"""


def screen(arguments: list[str]) -> int:
    """Ranks layers without training, and returns the exit code."""
    from probe.tables.formats import FORMATS

    parser = Parser("screen", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_format(*FORMATS)
    options = parser.parse_intermixed_args(arguments)
    configs, _ = configs_of(options.overrides, swept="encoder")
    cfg, folder = configs[0], Path(configs[0].results_dir)
    if any((other.data, other.features, other.screen) != (cfg.data, cfg.features, cfg.screen) for other in configs):
        raise UserError("screen: give one corpus, and one value of each setting of features and screen.")

    from probe.report.page import page_line
    from probe.runs.plan import one_per_encoder
    from probe.screen.report import render_screens, write_screen_tables
    from probe.screen.run import run_screens

    log = functools.partial(print, file=sys.stderr, flush=True)
    screens = run_screens(one_per_encoder(configs), log, shlex.join(["probe", *sys.argv[1:]]))
    write_screen_tables(folder, screens)
    print(render_screens(screens, options.format), end="")
    log(f"screen: {sum(one.seconds for one in screens.values()):.0f} s; screen and tables: {folder}")
    typed = _trainable(cfg, options.overrides)
    if len(screens) > 1:  # a race has one encoder, and screens it alone in its own folder
        typed = [re.sub("^(encoder[^=]*)=.*,.*", r"\1=ONE", one) for one in typed if not one.startswith("results_dir=")]
        typed.append("results_dir=DIR")
    log(f"next, to train the best of them: {shlex.join(['probe', 'race', *typed])}")
    log(page_line(folder, margin=cfg.margin))
    return 0


def _trainable(cfg: Config, typed: list[str]) -> list[str]:
    """Returns settings with which the screened task can be trained: an LSTM reads words only."""
    if not cfg.probe.num_layers or TASKS[cfg.data.task].is_per_word:
        return typed
    return [*(one for one in typed if not one.startswith("probe=")), "probe=linear"]
