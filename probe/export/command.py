"""Implements `probe export`."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.arguments import Parser
from probe.config import EXPORT_FORMATS
from probe.settings import config_of

DESCRIPTION = """\
Writes words, tags, documents and the vectors of the chosen layers (layers=..., as in training)
of all three splits to files in a new folder. export.json describes them. Features that the store
lacks are extracted first. An existing folder is never changed. The same command continues an
export that was stopped.
"""
EXAMPLES = """\
  probe export data=demo encoder=minilm_l6 layers=concat_last_four --to features
  probe export data=demo encoder=minilm_l6 layers=last --format parquet --to features
      then in Python: datasets.load_dataset("features")
  probe export data=demo encoder=minilm_l6 layers.indices=0: --each --format npy --to features
      then in Python: numpy.load("features/train.vectors.npy", mmap_mode="r")
"""


def export(arguments: list[str]) -> int:
    """Writes a corpus and its features to files, and returns the exit code."""
    parser = Parser("export", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the new folder")
    parser.add_format(*EXPORT_FORMATS)
    parser.add_argument(
        "--each", action="store_true", help="do not combine the layers: write vectors of (words, layers, hidden size)"
    )
    options = parser.parse_intermixed_args(arguments)

    from probe.export import export as features

    cfg = config_of(options.overrides)
    features.export(cfg, options.to, options.format, options.each, functools.partial(print, flush=True))
    return 0
