"""Splits running text into words, by the same rules for every encoder."""

from __future__ import annotations

import re

from probe.config import UserError

# Ideographs, as BERT's own rules have them: a text without blanks would else be a single word.
IDEOGRAPH = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])")


def split_text(text: str, place: str) -> list[str]:
    """Splits running text into words at blanks; each punctuation mark and each ideograph is a word.

    "bank." is "bank" and ".". These are BERT's rules. They are used for every encoder, so that all read the same words.
    Each word is then cut into pieces like a word of a corpus. The encoder's tokenizer handles case and accents. Raises
    UserError with the text's place for half a character.
    """
    from tokenizers.pre_tokenizers import BertPreTokenizer

    try:
        return [word for word, _ in BertPreTokenizer().pre_tokenize_str(IDEOGRAPH.sub(r" \1 ", text))]
    except UnicodeEncodeError:  # Python turns other bytes of the command line into surrogates, and JSON may have them
        raise UserError(f"{place} is not UTF-8, or has half a character.") from None
