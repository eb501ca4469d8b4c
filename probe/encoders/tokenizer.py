"""Loads an encoder's tokenizer, and computes its identity from its content.

Most tokenizers are fast: their whole content is one JSON value. Those of BERTweet, PhoBERT, FlauBERT, XLM and Japanese
BERT are written in Python. Their identity is their files, their settings, and the versions of the code that reads them.

Checkpoints such as SciBERT cased, BioBERT, ClinicalBERT and SpanBERT ship a cased vocabulary and no tokenizer settings.
The library then lower-cases every word, so that "Paris" becomes p ##a ##r ##i ##s, and says nothing
(huggingface/transformers#3823, allenai/scibert#79, dmis-lab/biobert#163). Such a tokenizer is refused.

transformers 5 builds the tokenizers of many models from vocabulary and merges by other rules, and does not read
the rules in tokenizer.json (huggingface/transformers#45812). See `as_its_file_says`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from probe.config import UserError
from probe.encoders.pieces import SAMPLE, WORDS_AT_ONCE, cut, keep_prefix_spaces, special_pieces
from probe.format import first_few
from probe.system.files import sha256_of_file
from probe.system.provenance import version_of

# Packages that tokenizers in Python call. Another version may cut a word differently.
PACKAGES = {
    "BertJapaneseTokenizer": ("fugashi", "unidic-lite", "ipadic", "unidic", "sudachipy", "rhoknp", "sentencepiece"),
    "BertweetTokenizer": ("emoji",),
    "FlaubertTokenizer": ("sacremoses",),
    "XLMTokenizer": ("sacremoses",),
}
# Settings of a tokenizer in Python that do not change how words are cut: its files' place, and the longest text.
NOT_IDENTITY = ("name_or_path", "tokenizer_file", "is_local", "local_files_only", "backend", "model_max_length")
HUGE_ID = re.compile(rb':(?<=":)(?<!length":)\s*(\d{8,})\s*[,}]')  # of a piece; a table up to it is made
UNREACHABLE = 0.01  # of the vocabulary; an uncased vocabulary has no entry with a capital letter, a cased one thousands
SPACE = "Ġ"  # denotes a space in byte-level vocabularies; it is itself a capital letter
# What settings of tokenizer_config.json are called in tokenizer.json, in BERT's normalization.
STATED = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# Characters to glue to words: alphabets, signs, ideographs, Hangul, wide forms, emoji.
CHARACTERS = [*range(0x21, 0x3100), *range(0x4E00, 0x4E20), *range(0xAC00, 0xAC20), *range(0xFB00, 0xFFFE, 3), 0x1F469]
ODD_WORDS = [*SAMPLE, "o'neil", "e\u0301te\u0301", "650841823", "U.S.A.", "\u2603\u2603", "x" * 120, "``", "#tag_1"]


def load_tokenizer(folder: Path, name: str, lower_case: bool | None = None, for_words: bool = True) -> Any:
    """Loads the tokenizer of an encoder, set to cut single words as in running text. Raises UserError.

    lower_case: whether it lower-cases words; None: as its files say. for_words: else it is for whole texts.
    """
    import transformers

    for file in (folder / "tokenizer.json", folder / "vocab.json"):
        if file.is_file() and (huge := HUGE_ID.search(file.read_bytes())):
            raise UserError(f"{file}: a piece has the number {int(huge[1])}; no encoder has so many. Is it damaged?")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
    except Exception as error:  # the library advises to install another package, which cannot read the file
        lacking = [package for package in ("sentencepiece", "protobuf") if version_of(package) is None]
        models = [file.name for file in sorted(folder.glob("*.model"))]
        if lacking and models and not (folder / "tokenizer.json").is_file():
            packages = " ".join(lacking)
            raise UserError(f"The tokenizer of {name} ({models[0]}) needs packages: pip install {packages}") from error
        raise
    special_ids = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    if not set(tokenizer.get_vocab().values()) - special_ids:
        raise UserError(
            f"The tokenizer of {name} has no vocabulary, so every word would be unknown. {folder} lacks its files "
            "(vocab.txt, tokenizer.json, merges.txt, ...)."
        )
    if tokenizer.is_fast:
        tokenizer = as_its_file_says(tokenizer, folder, lower_case, name, for_words)
    elif getattr(tokenizer, "normalization", False) and getattr(tokenizer, "demojizer", True) is None:
        raise UserError(f"The tokenizer of {name} needs a package that writes emoji as words: pip install emoji")
    elif lower_case is not None:
        set_lower_case(tokenizer, lower_case, name)
    if lower_case is None and len(lost := unreachable_entries(tokenizer)) > UNREACHABLE * len(tokenizer.get_vocab()):
        raise UserError(
            f"The tokenizer of {name} lower-cases words, but {len(lost):,} vocabulary entries have capital letters "
            f"({first_few(lost, 3)}) and can never be used. If the encoder is cased, as it seems: "
            "encoder.lower_case=false. If it was trained on lower-cased text: encoder.lower_case=true."
        )
    return tokenizer


def as_its_file_says(tokenizer: Any, folder: Path, lower_case: bool | None, name: str, for_words: bool) -> Any:
    """Returns a fast tokenizer that cuts words by the rules in tokenizer.json, if the folder has one.

    That is the given one if it cuts a sample of words alike, with the file's as `in_file`, by which `pieces.cut_split`
    checks each word of a corpus; else the file's. What tokenizer_config.json states of case, accents and ideographs
    holds, as all versions of transformers have obeyed it. Where it is silent, the file holds, not a class' defaults.
    """
    import transformers
    from tokenizers.normalizers import BertNormalizer

    follows_file = transformers.PreTrainedTokenizerFast
    by_file = tokenizer
    if (folder / "tokenizer.json").is_file() and type(tokenizer) is not follows_file:
        kept = {"model_input_names": tokenizer.model_input_names, **tokenizer.special_tokens_map}
        by_file = follows_file.from_pretrained(folder, **kept)
        normalizer = by_file.backend_tokenizer.normalizer
        if isinstance(normalizer, BertNormalizer):
            for setting in STATED.keys() & by_file.init_kwargs.keys():
                setattr(normalizer, STATED[setting], by_file.init_kwargs[setting])
    elif str(spm := getattr(tokenizer, "vocab_file", "")).endswith(".model"):
        keep_charsmap(tokenizer, spm)
    for either in [tokenizer] if by_file is tokenizer else [tokenizer, by_file]:
        if for_words:
            keep_prefix_spaces(either)
        if lower_case is not None:
            set_lower_case(either, lower_case, name)
    if tokenizer_identity(tokenizer, folder) != tokenizer_identity(by_file, folder):
        if special_pieces(tokenizer) != special_pieces(by_file):
            return by_file
        words = sample_words(by_file)
        for some in (words[i : i + WORDS_AT_ONCE] for i in range(0, len(words), WORDS_AT_ONCE)):
            if cut(tokenizer, some) != cut(by_file, some):
                return by_file
        tokenizer.in_file = by_file
    return tokenizer


def keep_charsmap(tokenizer: Any, spm: str) -> None:
    """Makes a fast tokenizer read from a file of sentencepiece write wide forms, ligatures, ... as that file says.

    Some classes drop this (DeBERTa v3), so that such letters would be unknown. A tokenizer.json made from it has it.
    """
    from tokenizers.normalizers import Precompiled, Sequence
    from transformers.convert_slow_tokenizer import SentencePieceExtractor

    charsmap = SentencePieceExtractor(spm).proto.normalizer_spec.precompiled_charsmap
    backend = tokenizer.backend_tokenizer
    if charsmap and '"Precompiled"' not in json.dumps(json.loads(backend.to_str())["normalizer"]):
        before = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = Sequence([*before, Precompiled(charsmap)])


def sample_words(tokenizer: Any) -> list[str]:
    """Returns words of a vocabulary, and each character between two of them."""
    known = sorted({re.sub(r"^##|[▁Ġ]", "", entry) for entry in tokenizer.get_vocab()} - {""})
    known = known[:: len(known) // 1000 + 1]
    glued = (known[i % len(known)] + chr(sign) + known[-i % len(known)] for i, sign in enumerate(CHARACTERS))
    return [*ODD_WORDS, *known, *map(str.title, known), *glued]


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
    versions = {package: version_of(package) for package in ("transformers", *PACKAGES.get(kind, ()))}
    return {
        "class": kind,
        "files": {file: sha256_of_file(folder / file) for file in files.values() if (folder / file).is_file()},
        "settings": {key: repr(value) for key, value in settings if key not in (*files, *NOT_IDENTITY)},
        "added": {str(token): number for number, token in tokenizer.added_tokens_decoder.items()},
        "versions": {package: version for package, version in versions.items() if version is not None},
    }
