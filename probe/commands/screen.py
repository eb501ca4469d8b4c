"""Implements `probe screen`: choices of layers ranked by quick probes."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path

from probe.commands.arguments import Parser
from probe.config import UserError
from probe.settings import configs_of


def screen(arguments: list[str]) -> int:
    """Trains a quick probe on every single layer, on every preset and on concatenations of the best
    layers, and forecasts how far each will lie behind the best after long training. It reads train and
    dev only. It writes screen.json, a table and a page (report.html) to results_dir, and prints the
    command that trains the choices that are worth it. Several encoders (encoder=A,B) are screened on
    the same sentences and ranked together, with the cost of each choice.

    examples:
      probe screen data=demo encoder=minilm_l6 results_dir=results/quickstart
      probe screen data=demo encoder=minilm_l6 screen.max_layers=3 screen.window=2
      probe screen data=demo encoder=minilm_l6,mpnet_base results_dir=results/two-encoders
    """
    parser = Parser(screen)
    parser.add_settings()
    overrides = parser.parse_intermixed_args(arguments).overrides
    configs, _ = configs_of(overrides, swept="encoder")
    cfg, folder = configs[0], Path(configs[0].results_dir)
    if any((other.data, other.features, other.screen) != (cfg.data, cfg.features, cfg.screen) for other in configs):
        raise UserError("screen: give one corpus, and one value of each setting of features and screen.")

    from probe.data.tasks import task_of
    from probe.report.page import page_line
    from probe.runs.plan import one_per_encoder
    from probe.screening.report import screen_table, to_train_first
    from probe.screening.run import run_screen

    log = functools.partial(print, file=sys.stderr, flush=True)
    screened = run_screen(one_per_encoder(configs), log, shlex.join(["probe", *sys.argv[1:]]))
    print(screen_table(screened).render("text"), end="")
    log(f"screen: {screened.seconds:.0f} s; screen and table: {folder}")
    if len(screened.encoders) == 1:
        names = ",".join(choice.name for choice in to_train_first(screened))
        typed = [
            word
            for word in overrides
            if not word.startswith(("layers=", "layers.indices=", "layers.combine=", "screen.", "seed="))
        ]
        is_per_word = task_of(cfg.data).is_per_word
        typed += [] if is_per_word or any(word.startswith("probe=") for word in typed) else ["probe=linear"]
        scaled = [] if any(word.startswith("layers.normalize=") for word in typed) else ["layers.normalize=scale"]
        log(f"next, to train them: {shlex.join(['probe', '-m', *typed, *scaled, f'layers={names}', 'seed=1,2,3'])}")
    else:
        log("next: screen the encoder of your choice alone, for the command that trains its layers")
    log(page_line(folder))
    return 0
