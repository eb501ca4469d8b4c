"""Splits running text into words, by the same rules for every encoder."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from probe.config import UserError
from probe.data.split import AROUND_WORD

# Ideographs, as BERT's own rules have them: a text without blanks would else be a single word.
IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")


def word_bounds(text: str, place: str, cuts: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Returns where each word of running text begins and ends, in characters.

    Words end at blanks; each punctuation mark and each ideograph is a word: "bank." is "bank" and ".". These are BERT's
    rules. They are used for every encoder, so that all read the same words. Each word is then cut into pieces like a
    word of a corpus. The encoder's tokenizer handles case and accents. cuts: where words end too, ascending; what has
    no width beside a cut is no word. Raises UserError with the text's place for half a character.
    """
    from tokenizers.pre_tokenizers import BertPreTokenizer

    try:
        found = BertPreTokenizer().pre_tokenize_str(text)
    except UnicodeEncodeError:  # Python turns other bytes of the command line into surrogates, and JSON may have them
        raise UserError(f"{place} is not UTF-8, or has half a character.") from None
    if not cuts and not IDEOGRAPH.search(text):
        return [bounds for _, bounds in found]
    bounds = []
    for _, (start, end) in found:
        ends = {at for ideograph in IDEOGRAPH.finditer(text, start, end) for at in ideograph.span()}
        inside = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        parts = pairwise(sorted({start, end, *ends, *inside}))
        bounds += [part for part in parts if not inside or text[slice(*part)].strip(AROUND_WORD)]
    return bounds


def split_text(text: str, place: str) -> list[str]:
    """Splits running text into words, as `word_bounds` does."""
    return [text[start:end] for start, end in word_bounds(text, place)]
