"""Refuses a tokenizer that drops case from words though its vocabulary was made with case.

Checkpoints such as SciBERT cased, BioBERT, ClinicalBERT and SpanBERT ship a vocabulary and no tokenizer settings. The
library then lower-cases every word, so that "Paris" becomes p ##a ##r ##i ##s, and says nothing
(huggingface/transformers#3823, allenai/scibert#79, dmis-lab/biobert#163).
"""

from __future__ import annotations

import re
from typing import Any

from probe.config import UserError

UNREACHABLE = 0.01  # of the vocabulary; an uncased vocabulary has no entry with a capital letter, a cased one thousands
SPACE = "Ġ"  # stands for a space in byte-level vocabularies, and is a capital letter by itself
SHOWN = 3


def set_lower_case(tokenizer: Any, lower_case: bool, name: str) -> None:
    """Makes a tokenizer lower-case words, or leave them as they are. Accents go with case, as in BERT.

    Raises UserError for a tokenizer whose normalization is not BERT's.
    """
    from tokenizers.normalizers import BertNormalizer

    normalizer = tokenizer.backend_tokenizer.normalizer
    if not isinstance(normalizer, BertNormalizer):
        raise UserError(
            f"encoder.lower_case={str(lower_case).lower()} is for tokenizers with BERT's normalization. That of {name} "
            "has another. Leave the setting out."
        )
    normalizer.lowercase = lower_case
    normalizer.strip_accents = None  # as lower-casing has it


def unreachable_entries(tokenizer: Any) -> list[str]:
    """The entries of the vocabulary with capital letters that the normalizer takes from every word.

    Single letters and entries in brackets, such as [CLS], are left out: uncased vocabularies have some of them too.
    """
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") == "A":
        return []
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()} | set(tokenizer.all_special_tokens)
    capital = [
        entry
        for entry in tokenizer.get_vocab()
        if entry not in added
        and not re.fullmatch(r"\[.*\]|<.*>|(##|▁)?.", entry)
        and any(letter.isupper() and letter != SPACE for letter in entry)
    ]
    return sorted(entry for entry in capital if not any(map(str.isupper, normalizer.normalize_str(entry))))


def refuse_dropped_case(tokenizer: Any, name: str) -> None:
    """Raises UserError where many entries of the vocabulary can never be used, since the tokenizer lower-cases."""
    entries, size = unreachable_entries(tokenizer), len(tokenizer.get_vocab())
    if len(entries) > UNREACHABLE * size:
        examples = ", ".join(sorted(entries, key=lambda entry: (entry.startswith("##"), -len(entry), entry))[:SHOWN])
        raise UserError(
            f"The tokenizer of {name} lower-cases words, but {len(entries):,} of its {size:,} vocabulary entries have "
            f"capital letters ({examples}), so they are never used. The vocabulary is cased: type "
            "encoder.lower_case=false. If the encoder was trained on lower-cased text: encoder.lower_case=true."
        )
