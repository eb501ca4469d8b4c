"""Encoders of other families, tiny and random, against a plain forward over running text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.facts import names
from support.families import FAMILIES, SIZE, WORDS, T
from support.inputs import encoder_config, features_config, stored
from tokenizers.pre_tokenizers import ByteLevel

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.checkpoint import open_encoder
from probe.encoders.encoder import load_model
from probe.features import extraction
from probe.features.extraction import ensure_features
from probe.features.words import Text, batches


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a tiny random encoder of one family."""
    torch.manual_seed(0)
    tokenizer, model = FAMILIES[request.param]()
    tokenizer.save_pretrained(tmp_path / request.param)
    model.save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


def over_running_text(folder: Path, words: list[str]) -> torch.Tensor:
    """(L + 1, W, H): the text as one string, each piece given to its word by its place among the characters."""
    tokenizer = T.AutoTokenizer.from_pretrained(folder)
    starts_with_space = isinstance(tokenizer.backend_tokenizer.pre_tokenizer, ByteLevel)
    text = " " * starts_with_space + " ".join(words)
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True, return_special_tokens_mask=True)
    ends, at = [], int(starts_with_space)
    for word in words:
        at += len(word)
        ends.append(at)
        at += 1
    first_piece: dict[int, int] = {}
    for piece, ((_, end), special) in enumerate(
        zip(encoded.pop("offset_mapping")[0].tolist(), encoded.pop("special_tokens_mask")[0].tolist(), strict=True)
    ):
        if not special:
            first_piece.setdefault(next(i for i, word_end in enumerate(ends) if word_end >= end), piece)
    model = T.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        encoded.pop("token_type_ids", None)
    with torch.no_grad():
        states = torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0]
    return states[:, [first_piece[i] for i in range(len(words))]]


def test_vectors_are_those_of_a_plain_forward_over_running_text(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    split = Split([WORDS, WORDS[3:], WORDS[:2]], [["O"] * 8, ["O"] * 5, ["O"] * 2], None, [1, 2, 3], "text")
    cfg = features_config(tmp_path / "cache", dtype="float32")
    features = stored(ensure_features(Corpus("families", {"dev": split}), encoder, cfg, "cpu"), "dev")
    expected = torch.cat([over_running_text(family, words) for words in split.words], 1)
    assert features.shape == expected.shape == (4, 15, 16)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)


def counted_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Each block of an encoder as it is entered, from here on; ALBERT's one, each time."""
    blocks = max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=lambda m: num_values(m))
    entered: list[torch.nn.Module] = []
    for block in blocks:
        block.register_forward_hook(lambda module, *_: entered.append(module))
    return entered


def num_values(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("layers", [[0], [-2, 1]])
def test_stopping_early_gives_the_layers_of_the_whole_forward(
    family: Path, layers: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    encoder = open_encoder(encoder_config(family), tmp_path)
    split = Split([WORDS, WORDS[3:], WORDS[:2]], [["O"] * 8, ["O"] * 5, ["O"] * 2], None, [1, 2, 3], "text")
    corpus = Corpus("families", {"dev": split})
    whole = ensure_features(corpus, encoder, features_config(tmp_path / "all"), "cpu")
    entered = []

    def load(*arguments: Any) -> torch.nn.Module:
        model = load_model(*arguments)
        entered.append(counted_blocks(model))
        return model

    monkeypatch.setattr(extraction, "load_model", load)
    compute = extraction.compute_shard

    def count_from_here(*arguments: Any) -> Any:
        entered[0].clear()  # what was tried on a sample before
        return compute(*arguments)

    monkeypatch.setattr(extraction, "compute_shard", count_from_here)
    some = ensure_features(corpus, encoder, features_config(tmp_path / "some", layers=layers), "cpu")
    chosen = sorted({layer % 4 for layer in layers})
    assert some.layers == tuple(chosen)
    assert some.key != whole.key
    ((_, ours),) = some.read("dev", chosen)
    ((_, theirs),) = whole.read("dev", chosen)
    assert all(map(torch.equal, ours, theirs))
    passes = len(
        batches(Text(corpus, "dev", encoder, features_config(tmp_path)), some.shards["dev"][0], encoder, 64, "cpu")
    )
    assert len(entered[0]) == passes * chosen[-1]


def test_windows_hold_what_the_encoder_takes_and_no_more(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    if encoder.limit > 100:
        assert encoder.limit in (512, 8192)
        return
    assert encoder.limit in (32, 64)
    words = ["be"] * encoder.max_text_pieces * 2
    split = Split([words], [["O"] * len(words)], None, [1], "text")
    store = ensure_features(Corpus("long", {"dev": split}), encoder, features_config(tmp_path / "cache"), "cpu")
    assert stored(store, "dev").isfinite().all()


def test_a_causal_encoder_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokenizer, model = FAMILIES["gpt2"]()
    tokenizer.save_pretrained(tmp_path / "gpt2")
    model.save_pretrained(tmp_path / "gpt2")
    encoder = open_encoder(encoder_config(tmp_path / "gpt2"), tmp_path)
    split = Split([WORDS], [["O"] * 8], None, [1], "text")
    ensure_features(Corpus("x", {"dev": split}), encoder, features_config(tmp_path / "cache"), "cpu")
    names(capsys.readouterr().err, "gpt2", "causal")


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path):
    tokenizer, _ = FAMILIES["electra"]()
    tokenizer.save_pretrained(tmp_path / "mixed")
    T.BertModel(T.BertConfig(vocab_size=30, **SIZE)).save_pretrained(tmp_path / "mixed")
    T.ElectraConfig(vocab_size=30, embedding_size=16, **SIZE).save_pretrained(tmp_path / "mixed")
    config = json.loads((tmp_path / "mixed/config.json").read_text())
    (tmp_path / "mixed/config.json").write_text(json.dumps({**config, "model_type": "distilbert", "dim": 16}))
    encoder = open_encoder(encoder_config(tmp_path / "mixed"), tmp_path)
    with pytest.raises(UserError, match=rf"^{re.escape(str(encoder.folder))}: \d+ weights .*\(\w+\.[\w.]+, ") as error:
        load_model(encoder, "cpu")
    names(error.value, "checkpoint")
