"""Implements `probe export`."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.arguments import Parser
from probe.settings import config_of

DESCRIPTION = """\
Writes words, tags, documents and the vectors of the chosen layers (layers=..., as in training)
of all three splits to a new folder, as safetensors and JSON lines. export.json describes them.
Features that the store lacks are extracted first. An existing folder is never changed.
"""
EXAMPLES = """\
  probe export data=demo encoder=minilm_l6 layers=concat_last_four --to features
  probe export data=demo encoder=minilm_l6 layers.indices=0: --each --to features
      then in Python: safetensors.numpy.load_file("features/train.safetensors")["vectors"]
"""


def export(arguments: list[str]) -> int:
    """Writes a corpus and its features to files, and returns the exit code."""
    parser = Parser("export", DESCRIPTION, EXAMPLES)
    parser.add_settings()
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the new folder")
    parser.add_argument(
        "--each", action="store_true", help="do not combine the layers: write vectors of (words, layers, hidden size)"
    )
    options = parser.parse_intermixed_args(arguments)

    from probe.export.export import export as write

    write(config_of(options.overrides), options.to, options.each, functools.partial(print, flush=True))
    return 0
