"""Splits running text into words, by the same rules for every encoder."""

from __future__ import annotations

import re

# Ideographs, as BERT's own rules have them: a text without blanks would else be a single word.
IDEOGRAPH = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])")


def split_text(text: str) -> list[str]:
    """Splits running text into words at blanks; each punctuation mark and each ideograph is a word.

    "bank." is "bank" and ".". These are BERT's rules. They are used for every encoder, so that all read the same words.
    Each word is then cut into pieces like a word of a corpus. The encoder's tokenizer handles case and accents.
    """
    from tokenizers.pre_tokenizers import BertPreTokenizer

    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(IDEOGRAPH.sub(r" \1 ", text))]
