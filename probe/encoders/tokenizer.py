"""Loads an encoder's tokenizer, and computes its identity from its content.

Most tokenizers are fast: their whole content is one JSON value. Those of BERTweet, PhoBERT, FlauBERT, XLM and Japanese
BERT are written in Python. Their identity is their files, their settings, and the versions of the code that reads them.

Checkpoints such as SciBERT cased, BioBERT, ClinicalBERT and SpanBERT ship a cased vocabulary and no tokenizer settings.
The library then lower-cases every word, so that "Paris" becomes p ##a ##r ##i ##s, and says nothing
(huggingface/transformers#3823, allenai/scibert#79, dmis-lab/biobert#163). Such a tokenizer is refused.
"""

from __future__ import annotations

import contextlib
import json
import re
from importlib import metadata
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from probe.config import UserError
from probe.encoders.pieces import keep_prefix_spaces
from probe.system.files import sha256_of_file
from probe.system.format import first_few

# Packages that tokenizers in Python call. Another version may cut a word differently.
PACKAGES = {
    "BertJapaneseTokenizer": ("fugashi", "unidic-lite", "ipadic", "unidic", "sudachipy", "rhoknp", "sentencepiece"),
    "BertweetTokenizer": ("emoji",),
    "FlaubertTokenizer": ("sacremoses",),
    "XLMTokenizer": ("sacremoses",),
}
# Settings of a tokenizer in Python that do not change how words are cut: its files' place, and the longest text.
NOT_IDENTITY = ("name_or_path", "tokenizer_file", "is_local", "local_files_only", "backend", "model_max_length")
UNREACHABLE = 0.01  # of the vocabulary; an uncased vocabulary has no entry with a capital letter, a cased one thousands
SPACE = "Ġ"  # denotes a space in byte-level vocabularies; it is itself a capital letter


def load_tokenizer(folder: Path, name: str, lower_case: bool | None = None, for_words: bool = True) -> Any:
    """Loads the tokenizer of an encoder, set to cut single words as in running text. Raises UserError.

    lower_case: whether it lower-cases words; None: as its files say. for_words: else it is for whole texts.
    """
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
    special_ids = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    if not set(tokenizer.get_vocab().values()) - special_ids:
        raise UserError(
            f"The tokenizer of {name} has no vocabulary, so every word would be unknown. {folder} lacks its files "
            "(vocab.txt, tokenizer.json, merges.txt, ...)."
        )
    if tokenizer.is_fast:
        if for_words:
            keep_prefix_spaces(tokenizer)
    elif getattr(tokenizer, "normalization", False) and getattr(tokenizer, "demojizer", True) is None:
        raise UserError(f"The tokenizer of {name} needs a package that writes emoji as words: pip install emoji")
    if lower_case is not None:
        set_lower_case(tokenizer, lower_case, name)
    elif len(lost := unreachable_entries(tokenizer)) > UNREACHABLE * len(tokenizer.get_vocab()):
        raise UserError(
            f"The tokenizer of {name} lower-cases words, but {len(lost):,} vocabulary entries have capital letters "
            f"({first_few(lost, 3)}) and can never be used. If the encoder is cased, as it seems: "
            "encoder.lower_case=false. If it was trained on lower-cased text: encoder.lower_case=true."
        )
    return tokenizer


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
    return text if normalizer is None else normalizer.normalize_str(text)


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


def unreachable_entries(tokenizer: Any) -> list[str]:
    """Returns the entries with capital letters that the tokenizer can never produce, because it lower-cases words.

    Omits single letters and entries in brackets, such as [CLS]: uncased vocabularies have some of them too.
    """
    if not drops_case(tokenizer):
        return []
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()} | set(tokenizer.all_special_tokens)
    capital = [
        entry
        for entry in tokenizer.get_vocab().keys() - added
        if not re.fullmatch(r"\[.*\]|<.*>|(##|▁)?.", entry)
        and any(letter.isupper() and letter != SPACE for letter in entry)
    ]
    return sorted(
        entry for entry in capital if not tokenizer.is_fast or not any(map(str.isupper, _normalized(tokenizer, entry)))
    )


def tokenizer_identity(tokenizer: Any, folder: Path) -> dict[str, Any]:
    """Returns the tokenizer's content except padding and truncation, which extraction sets itself."""
    if tokenizer.is_fast:
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        return {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    kind = type(tokenizer).__name__
    files = tokenizer.vocab_files_names
    settings = tokenizer.init_kwargs.items()
    versions = {}
    for package in ("transformers", *PACKAGES.get(kind, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "class": kind,
        "files": {file: sha256_of_file(folder / file) for file in files.values() if (folder / file).is_file()},
        "settings": {key: repr(value) for key, value in settings if key not in (*files, *NOT_IDENTITY)},
        "added": {str(token): number for number, token in tokenizer.added_tokens_decoder.items()},
        "versions": versions,
    }
