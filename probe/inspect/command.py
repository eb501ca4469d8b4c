"""`probe inspect`: one text, layer by layer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import SENTENCES, UserError
from probe.settings import SETTING, config_of

INSPECT_HELP = """\
What an encoder makes of a text: its pieces, ids, mask and segments, and the word of each piece; how many hidden states
there are and what each index is; the parts of layer 0; the vectors of the layers chosen (layers=..., as in training).
Words are split at blanks, and each punctuation mark is a word of its own: "bank." is "bank" and ".".
"""
INSPECT_EXAMPLES = """\
examples:
  probe inspect "I love Paris" encoder=minilm_l6 --pad 7
  probe inspect encoder=minilm_l6 layers=single 'layers.indices=[4]' --values 8 "I love Paris"
  probe inspect encoder=minilm_l6 --sentence mean "A cat sat." "A dog lay down." "Stocks fell."
  probe inspect encoder=minilm_l6 --word bank "The bank vault." "A river bank." "Go to the bank." --figure bank.svg
  probe inspect encoder.path=DIR --format json < texts.txt
"""


def inspect(arguments: list[str]) -> int:
    parser = Parser(
        prog="probe inspect",
        usage="probe inspect [TEXT ...] [setting=value ...] [options]",
        description=INSPECT_HELP,
        epilog=INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("given", nargs="*", metavar="TEXT", help="none: texts from standard input, one a line")
    parser.add_argument("--pair", action="store_true", help="two texts as one input, as for next-sentence prediction")
    parser.add_argument("--pad", type=int, default=0, metavar="N", help="pad to N pieces")
    parser.add_argument("--segment", type=int, metavar="N", help="this segment id for all pieces, not the tokenizer's")
    parser.add_argument("--values", type=int, default=5, metavar="N", help="how many values to print of a vector (5)")
    parser.add_argument(
        "--sentence",
        choices=SENTENCES,
        help="instead: a vector for each text, and their cosines. cls, mean, max: over all pieces, layers as chosen",
    )
    parser.add_argument("--word", help="instead: a word's occurrences, and their cosines by layer and by combination")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw what --word compares: .png or .svg")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep all vectors, (words, layers, H): .safetensors")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = vars(parser.parse_intermixed_args(arguments))
    given = options.pop("given")
    cfg = config_of([argument for argument in given if SETTING.match(argument)])
    texts = [argument for argument in given if not SETTING.match(argument)] or _texts_from_stdin()

    from probe.inspect.report import lines

    for line in lines(cfg, texts, **options):
        print(line)
    return 0


def _texts_from_stdin() -> list[str]:
    if sys.stdin.isatty():
        raise UserError('probe inspect needs a text: probe inspect "I love Paris", or one a line on standard input.')
    texts = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            texts.append(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: {error.reason}; texts are UTF-8.") from None
    if not texts:
        raise UserError("Standard input holds no text. One a line is needed.")
    return texts
