"""The command that ranks layers without training: screen."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError
from probe.settings import configs_of

SCREEN_HELP = """\
probe screen [setting=value ...] [--format text|md|csv|tex|json] [--against DIR]

Every single layer, every preset, concatenations of up to screen.max_layers layers and means of neighbouring layers,
ranked without training: a linear readout of a word and its neighbours is solved for each from one pass over the
features. Only train and dev are read. Writes screen.json, a table and figures to results_dir.
--against DIR: how well it predicted the rows that were trained there, and what its first picks would have cost.

Examples
  probe screen data=demo encoder=minilm_l6 results_dir=results/quickstart
  probe screen data=conll2003 data.path=DIR encoder=minilm_l6 --against results/conll2003-minilm-sentence
  probe screen data=demo encoder=minilm_l6 screen.max_layers=2 screen.window=2 --format md
"""


def screen(arguments: list[str]) -> int:
    from probe.report.page import write_screen
    from probe.screen.report import render_screen
    from probe.screen.run import run_screen
    from probe.screen.validation import foretold_grid, validate_screen
    from probe.system.files import plain
    from probe.tables.formats import FORMATS, as_json

    parser = Parser(prog="probe screen", usage=SCREEN_HELP)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--against", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="setting=value")
    options = parser.parse_intermixed_args(arguments)
    configs, _ = configs_of(options.overrides)
    if options.against is not None and not options.against.is_dir():
        raise UserError(f"--against {options.against}: there is no such folder.")
    cfg = configs[0]
    if any((one.data, one.encoder, one.features) != (cfg.data, cfg.encoder, cfg.features) for one in configs):
        raise UserError("screen: one text and one encoder at a time.")
    tell = functools.partial(print, file=sys.stderr, flush=True)
    record = run_screen(cfg, tell, shlex.join(["probe", *sys.argv[1:]]))
    files = write_screen(Path(cfg.results_dir), record)
    foretold = validate_screen(record, options.against) if options.against is not None else None
    if options.format == "json":
        shown = plain(record) if foretold is None else {"screen": plain(record), "against": plain(foretold)}
        print(as_json(shown), end="")
    else:
        print(render_screen(record, options.format), end="")
        if foretold is not None:
            told = foretold_grid(foretold, options.against).render("md" if options.format == "md" else "text")
            print("\n" + told, end="", file=sys.stdout if options.format in ("text", "md") else sys.stderr)
    tell(f"screen: {record.seconds:.0f} s; {', '.join(str(file) for file in files)}")
    return 0
