"""Loads an encoder's tokenizer and computes its identity from its content.

Most tokenizers are fast: their whole content is one JSON value. Those of BERTweet, PhoBERT, FlauBERT, XLM and Japanese
BERT are written in Python. Their identity is their files, their settings, and the versions of the code that reads them.
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.encoders.pieces import keep_prefix_spaces
from probe.system.files import sha256_of_file

# Packages that tokenizers in Python call. Another version may cut a word differently.
PACKAGES = {
    "BertJapaneseTokenizer": ("fugashi", "unidic-lite", "ipadic", "unidic", "sudachipy", "rhoknp", "sentencepiece"),
    "BertweetTokenizer": ("emoji",),
    "FlaubertTokenizer": ("sacremoses",),
    "XLMTokenizer": ("sacremoses",),
}
# Settings of a tokenizer in Python that do not change how words are cut: its files' place, and the longest text.
NOT_IDENTITY = ("name_or_path", "tokenizer_file", "is_local", "local_files_only", "backend", "model_max_length")


def load_tokenizer(folder: Path, name: str) -> Any:
    """Loads the tokenizer of an encoder, set to cut single words as in running text. Raises UserError."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
    special_ids = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    if not set(tokenizer.get_vocab().values()) - special_ids:
        raise UserError(
            f"The tokenizer of {name} has no vocabulary, so every word would be unknown. {folder} lacks its files "
            "(vocab.txt, tokenizer.json, merges.txt, ...)."
        )
    if tokenizer.is_fast:
        keep_prefix_spaces(tokenizer)
    elif getattr(tokenizer, "normalization", False) and getattr(tokenizer, "demojizer", True) is None:
        raise UserError(f"The tokenizer of {name} needs a package that writes emoji as words: pip install emoji")
    return tokenizer


def tokenizer_identity(tokenizer: Any, folder: Path) -> dict[str, Any]:
    """Returns the tokenizer's content except padding and truncation, which extraction sets itself."""
    if tokenizer.is_fast:
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        return {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    kind = type(tokenizer).__name__
    files = tokenizer.vocab_files_names
    settings = tokenizer.init_kwargs.items()
    return {
        "class": kind,
        "files": {file: sha256_of_file(folder / file) for file in files.values() if (folder / file).is_file()},
        "settings": {key: repr(value) for key, value in settings if key not in (*files, *NOT_IDENTITY)},
        "added": {str(token): number for number, token in tokenizer.added_tokens_decoder.items()},
        "versions": _versions("transformers", *PACKAGES.get(kind, ())),
    }


def _versions(*packages: str) -> dict[str, str]:
    """Returns the versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
