"""Cased vocabularies that a tokenizer would lower-case in silence."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import transformers
from support.facts import names
from support.inputs import encoder_config
from tokenizers import Tokenizer, models, normalizers

from probe.config import UserError
from probe.encoders.encoder import open_encoder
from probe.encoders.pieces import cut
from probe.encoders.tokenizer import drops_case, set_lower_case, unreachable_entries

CASED = "[PAD] [UNK] [CLS] [SEP] [MASK] Paris Smith EU ##S paris p ##a ##r ##i ##s the of may n ' t be u . a".split()
CASED += "s nice don , in 1 ##9 ##6 co - operation $ 3 5 0 ( x ##t e ##u ##m h ##h r ana".split()


@pytest.fixture
def vocabulary_only(tiny_bert: Path, tmp_path: Path) -> Path:
    """A BERT with a cased vocabulary, whose files do not say whether to lower-case."""
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "cased"))
    for file in folder.glob("*token*.json"):
        file.unlink()
    vocabulary = CASED + [f"[unused{i}]" for i in range(41 - len(CASED))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder


def pieces(folder: Path, tmp_path: Path, lower_case: bool | None, word: str = "Paris") -> list[str]:
    tokenizer = open_encoder(replace(encoder_config(folder), lower_case=lower_case), tmp_path).tokenizer
    return tokenizer.convert_ids_to_tokens(cut(tokenizer, [word])[0])


def test_a_lower_cased_cased_vocabulary_is_refused(vocabulary_only: Path, tmp_path: Path):
    with pytest.raises(UserError) as error:
        open_encoder(encoder_config(vocabulary_only), tmp_path)
    names(str(error.value), "encoder.lower_case=false", "encoder.lower_case=true", "Paris")


def test_lower_case_decides_how_words_are_cut(vocabulary_only: Path, tmp_path: Path):
    assert pieces(vocabulary_only, tmp_path, False) == ["Paris"]
    assert pieces(vocabulary_only, tmp_path, True) == ["paris"]
    assert pieces(vocabulary_only, tmp_path, False, "EU") == ["EU"]


def test_lower_case_is_part_of_the_identity(vocabulary_only: Path, tmp_path: Path):
    kept, dropped = (
        open_encoder(replace(encoder_config(vocabulary_only), lower_case=value), tmp_path) for value in (False, True)
    )
    assert (kept.lower_cases, dropped.lower_cases) == (False, True)
    assert kept.fingerprint["tokenizer"] != dropped.fingerprint["tokenizer"]


def test_an_uncased_vocabulary_is_opened_and_stays_what_it_was(tiny_bert: Path, tmp_path: Path):
    plain = open_encoder(encoder_config(tiny_bert), tmp_path)
    same = open_encoder(replace(encoder_config(tiny_bert), lower_case=True), tmp_path)
    assert unreachable_entries(plain.tokenizer) == []
    assert plain.fingerprint == same.fingerprint


@pytest.mark.parametrize("lower", [True, False])
def test_a_normalizer_that_prepends_a_sign_is_asked_too(lower: bool):
    steps = [normalizers.Prepend("▁"), *([normalizers.Lowercase()] if lower else [])]
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "▁paris": 1, "▁Paris": 2, "▁A": 3}, "[UNK]"))
    backend.normalizer = normalizers.Sequence(steps)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert drops_case(tokenizer) == lower
    assert unreachable_entries(tokenizer) == ["▁Paris"] * lower


def test_a_tokenizer_in_python_is_tried(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"aAbB", "Paris"]) + "\n"
    )
    for lower in (True, False):
        tokenizer = transformers.BertJapaneseTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=lower)
        assert drops_case(tokenizer) == lower
        assert unreachable_entries(tokenizer) == ["Paris"] * lower
        set_lower_case(tokenizer, lower, "x")
        with pytest.raises(UserError, match=r"encoder\.lower_case=.*encoder\.path=DIR"):
            set_lower_case(tokenizer, not lower, "x")
