"""`probe screen`: layers ranked without training."""

from __future__ import annotations

import functools
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError
from probe.settings import configs_of

DESCRIPTION = """\
Ranks every single layer, every preset, concatenations of up to screen.max_layers layers and means
of neighbouring layers, without training: for each it solves a linear readout of a word and its
neighbours, all from one pass over the features. It reads train and dev only. It writes screen.json,
a table and a page with figures (report.html) to results_dir.
"""
EXAMPLES = """\
  probe screen data=demo encoder=minilm_l6 results_dir=results/quickstart
  probe screen data=conll2003 data.path=DIR encoder=minilm_l6 --against results/conll2003-minilm-sentence
  probe screen data=demo encoder=minilm_l6 screen.max_layers=2 screen.window=2 --format md
"""


def screen(arguments: list[str]) -> int:
    """Ranks layers without training, and returns the exit code."""
    from probe.tables.formats import FORMATS, as_json

    parser = Parser("screen", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="also print how well the screen predicts the rows trained in this results folder, and what its first "
        "choices would have cost; the screen is written there, unless results_dir is given",
    )
    parser.add_format(*FORMATS)
    options = parser.parse_intermixed_args(arguments)
    configs, _ = configs_of(options.overrides)
    if options.against is not None and not options.against.is_dir():
        raise UserError(f"--against {options.against}: there is no such folder.")
    cfg = configs[0]
    is_beside = options.against is not None and not any(one.startswith("results_dir=") for one in options.overrides)
    if is_beside:
        cfg = replace(cfg, results_dir=str(options.against))
    if any((other.data, other.encoder, other.features) != (cfg.data, cfg.encoder, cfg.features) for other in configs):
        raise UserError("screen: give one corpus and one encoder.")

    from probe.report.page import page_line
    from probe.screen.report import render_screen, write_screen_tables
    from probe.screen.run import run_screen
    from probe.screen.validation import validate_screen, validation_table
    from probe.system.files import to_jsonable

    log = functools.partial(print, file=sys.stderr, flush=True)
    record = run_screen(cfg, log, shlex.join(["probe", *sys.argv[1:]]), replaces=not is_beside)
    folder = Path(cfg.results_dir)
    write_screen_tables(folder, record)
    agreement = validate_screen(record, options.against) if options.against is not None else None
    if options.format == "json":
        shown = (
            to_jsonable(record)
            if agreement is None
            else {"screen": to_jsonable(record), "against": to_jsonable(agreement)}
        )
        print(as_json(shown), end="")
    else:
        print(render_screen(record, options.format), end="")
        if agreement is not None:
            message = validation_table(agreement, options.against).render("md" if options.format == "md" else "text")
            print("\n" + message, end="", file=sys.stdout if options.format in ("text", "md") else sys.stderr)
    log(f"screen: {record.seconds:.0f} s; screen and tables: {folder}")
    log(f"next, to train the best of them: {shlex.join(['probe', 'race', *options.overrides])}")
    log(page_line(folder, margin=cfg.margin))
    return 0
