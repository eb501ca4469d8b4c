"""Implements `probe convert`."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.arguments import Parser

DESCRIPTION = """\
Writes the weights of a checkpoint that has only pytorch_model.bin as model.safetensors, into a new
folder with its config and tokenizer files. Reading a .bin file can run code. So only this command
reads one: it checks its names first, and refuses a file that imports more than weights need.
"""
EXAMPLES = """\
  probe convert microsoft/deberta-v3-base --to deberta-v3-base
      then: probe encoder.path=deberta-v3-base data=demo
  probe convert DIR --to NEW_DIR
"""


def convert(arguments: list[str]) -> int:
    """Converts a checkpoint, and returns the exit code."""
    parser = Parser("convert", DESCRIPTION, EXAMPLES)
    parser.add_argument("source", metavar="NAME | DIR", help="a model on the Hub, or a folder")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the new folder")
    parser.add_argument("--revision", metavar="NAME", help="a branch, tag or commit on the Hub (default: main)")
    options = parser.parse_args(arguments)

    from probe.convert.convert import convert as convert_checkpoint

    convert_checkpoint(options.source, options.revision, options.to, functools.partial(print, flush=True))
    return 0
