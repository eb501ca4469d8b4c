"""Refuses a tokenizer that drops case from words though its vocabulary was made with case.

Checkpoints such as SciBERT cased, BioBERT, ClinicalBERT and SpanBERT ship a vocabulary and no tokenizer settings. The
library then lower-cases every word, so that "Paris" becomes p ##a ##r ##i ##s, and says nothing
(huggingface/transformers#3823, allenai/scibert#79, dmis-lab/biobert#163).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase
from typing import Any

from probe.config import UserError

UNREACHABLE = 0.01  # of the vocabulary; an uncased vocabulary has no entry with a capital letter, a cased one thousands
SPACE = "Ġ"  # denotes a space in byte-level vocabularies; it is itself a capital letter
SHOWN = 3


def drops_case(tokenizer: Any) -> bool:
    """Returns whether a tokenizer drops case from words."""
    if tokenizer.is_fast:
        return "A" not in (normal := _normalized(tokenizer, "A")) and "a" in normal
    letters = [(tokenizer.tokenize(letter), tokenizer.tokenize(letter.upper())) for letter in ascii_lowercase]
    return all(small == capital for small, capital in letters) and any(
        tokenizer.unk_token not in small for small, _ in letters
    )


def _normalized(tokenizer: Any, text: str) -> str:
    """Returns a text after the normalization of a fast tokenizer, before its vocabulary is used."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    normal: str = text if normalizer is None else normalizer.normalize_str(text)
    return normal


def set_lower_case(tokenizer: Any, lower_case: bool, name: str) -> None:
    """Makes a tokenizer lower-case words, or not. Accents go with case, as in BERT.

    Raises UserError for a tokenizer without BERT's normalization, unless it already behaves as asked.
    """
    from tokenizers.normalizers import BertNormalizer

    normalizer = tokenizer.backend_tokenizer.normalizer if tokenizer.is_fast else None
    if isinstance(normalizer, BertNormalizer):
        normalizer.lowercase = lower_case
        normalizer.strip_accents = None  # follows lower-casing
    elif drops_case(tokenizer) != lower_case:
        raise UserError(
            f"encoder.lower_case={str(lower_case).lower()} is for tokenizers with BERT's normalization; {name} has "
            "another. Correct the case setting in tokenizer_config.json of a copy of its folder: encoder.path=DIR."
        )


def capital_entries(entries: Iterable[str]) -> list[str]:
    """Returns the entries of a vocabulary that have capital letters.

    Omits single letters and entries in brackets, such as [CLS]: uncased vocabularies have some of them too.
    """
    return sorted(
        entry
        for entry in entries
        if not re.fullmatch(r"\[.*\]|<.*>|(##|▁)?.", entry)
        and any(letter.isupper() and letter != SPACE for letter in entry)
    )


def unreachable_entries(tokenizer: Any) -> list[str]:
    """Returns the entries with capital letters that the tokenizer can never produce, because it lower-cases words."""
    if not drops_case(tokenizer):
        return []
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()} | set(tokenizer.all_special_tokens)
    capital = capital_entries(entry for entry in tokenizer.get_vocab() if entry not in added)
    return [
        entry for entry in capital if not tokenizer.is_fast or not any(map(str.isupper, _normalized(tokenizer, entry)))
    ]


def refuse_dropped_case(tokenizer: Any, name: str) -> None:
    """Raises UserError if many entries of the vocabulary can never be used, because the tokenizer lower-cases."""
    if capital := _described(unreachable_entries(tokenizer), len(tokenizer.get_vocab())):
        raise UserError(
            f"The tokenizer of {name} lower-cases words, but {capital}, which can never be used. If the encoder is "
            "cased, as it seems: encoder.lower_case=false. If it was trained on lower-cased text: "
            "encoder.lower_case=true."
        )


def _described(capital: list[str], size: int) -> str | None:
    """Describes how many entries of a vocabulary have capital letters; None if few."""
    if len(capital) <= UNREACHABLE * size:
        return None
    examples = ", ".join(sorted(capital, key=lambda entry: (entry.startswith("##"), -len(entry), entry))[:SHOWN])
    return f"{len(capital):,} of its {size:,} vocabulary entries have capital letters ({examples})"
