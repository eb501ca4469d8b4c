"""`probe export`: words, tags and vectors as files."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from probe.arguments import Parser
from probe.config import EXPORT_FORMATS
from probe.settings import config_of

EXPORT_HELP = """\
Words, tags, documents and the vectors of the layers chosen (layers=..., as in training), of all three splits, as files
in a new folder, with export.json that says what they are. What is missing in the feature store is extracted first. A
target that is there is left alone; what was stopped goes on with the same command.
"""
EXPORT_EXAMPLES = """\
examples:
  probe export data=demo encoder=minilm_l6 layers=concat_last_four --to features
  probe export data=demo encoder=minilm_l6 layers=last --format parquet --to features
      then in Python: datasets.load_dataset("features")
  probe export data=demo encoder=minilm_l6 layers.indices=0: --each --format npy --to features
      then in Python: numpy.load("features/train.vectors.npy", mmap_mode="r")
"""


def export(arguments: list[str]) -> int:
    parser = Parser(
        prog="probe export",
        usage="probe export [setting=value ...] --to DIR [options]",
        description=EXPORT_HELP,
        epilog=EXPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="setting=value")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder to be made")
    default = EXPORT_FORMATS[0]
    parser.add_argument("--format", choices=EXPORT_FORMATS, default=default, help=f"default: {default}")
    parser.add_argument("--each", action="store_true", help="the layers side by side, (words, layers, H), not combined")
    options = parser.parse_intermixed_args(arguments)
    cfg = config_of(options.overrides)

    from probe.export.export import export as write

    write(cfg, options.to, options.format, options.each, functools.partial(print, flush=True))
    return 0
