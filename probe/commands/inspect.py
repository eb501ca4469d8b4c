"""Implements `probe inspect`."""

from __future__ import annotations

import sys

from probe.commands.arguments import Parser
from probe.config import UserError
from probe.settings import config_of, split_settings
from probe.tag.io import read_stdin


def inspect(arguments: list[str]) -> int:
    """Shows how an encoder processes a text: its pieces, their ids, and the word of each piece; how many
    hidden states there are and what each index denotes; and the vectors of the chosen layers
    (layers=..., as in training). Words are split at blanks, and each punctuation mark is a separate
    word: "bank." is "bank" and ".".

    examples:
      probe inspect "I love Paris" encoder=minilm_l6
      probe inspect encoder=minilm_l6 --sentence mean "A cat sat." "A dog lay down." "Stocks fell."
      probe inspect encoder=minilm_l6 --word bank "The bank vault." "A river bank."
      probe inspect encoder.path=DIR --format json < texts.txt
    """
    parser = Parser(inspect)
    parser.add_argument("given", nargs="*", metavar="TEXT | setting=value", help="default: lines of standard input")
    parser.add_argument(
        "--sentence",
        choices=("cls", "mean", "max"),
        help="print one vector per text, pooled over all its pieces like this, and the cosines of the texts instead",
    )
    parser.add_argument("--word", help="print the occurrences of this word, and their cosines by layer instead")
    parser.add_format("text", "json")
    options = vars(parser.parse_intermixed_args(arguments))
    overrides, texts = split_settings(options.pop("given"))
    cfg = config_of(overrides)
    if not texts and not sys.stdin.isatty():
        texts = read_stdin().splitlines()
    if not texts:
        raise UserError('probe inspect needs a text: probe inspect "I love Paris", or one per line on standard input.')

    from probe.inspect.report import lines_of_readings

    print("\n".join(lines_of_readings(cfg, texts, **options)))
    return 0
