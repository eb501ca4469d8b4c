"""Encoders of other families, tiny and random, against a plain forward over running text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.families import FAMILIES, SIZE, WORDS, T
from support.inputs import encoder_config, features_config, stored
from tokenizers.pre_tokenizers import ByteLevel

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.features.checkpoint import Encoder, open_encoder
from probe.features.encoder import blocks_of, hidden_states, load_model, states_up_to
from probe.features.extraction import ensure_features


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


def test_windows_hold_what_the_encoder_takes_and_no_more(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    if encoder.limit > 100:
        assert encoder.limit in (512, 8192)
        return
    assert encoder.limit in (32, 64)
    words = ["be"] * encoder.room * 2
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
    assert "causal: a word's vector knows only what stands before it" in capsys.readouterr().err


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path):
    tokenizer, _ = FAMILIES["electra"]()
    tokenizer.save_pretrained(tmp_path / "mixed")
    T.BertModel(T.BertConfig(vocab_size=30, **SIZE)).save_pretrained(tmp_path / "mixed")
    T.ElectraConfig(vocab_size=30, embedding_size=16, **SIZE).save_pretrained(tmp_path / "mixed")
    config = json.loads((tmp_path / "mixed/config.json").read_text())
    (tmp_path / "mixed/config.json").write_text(json.dumps({**config, "model_type": "distilbert", "dim": 16}))
    with pytest.raises(UserError, match="weights are missing .* checkpoint of another kind of model"):
        load_model(open_encoder(encoder_config(tmp_path / "mixed"), tmp_path), "cpu")


def test_a_pass_that_ends_early_gives_the_very_states_of_a_whole_one(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    model = load_model(encoder, "cpu")
    ids = torch.tensor([[5, 6, 7, 8], [6, 5, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with torch.inference_mode():
        whole = hidden_states(model, ids, mask, None)
        for deepest in range(encoder.num_layers + 1):
            early = states_up_to(model, encoder.num_layers, deepest, ids, mask, None)
            assert len(early) == deepest + 1
            assert all(torch.equal(a, b) for a, b in zip(early, whole, strict=False))
    assert (blocks_of(model, encoder.num_layers) is None) == (family.name == "albert")


def test_a_pass_that_ends_early_computes_no_block_behind_it(tiny_encoder: Encoder):
    model = load_model(tiny_encoder, "cpu")
    entered: list[int] = []
    blocks = blocks_of(model, 5)
    assert blocks is not None
    for number, block in enumerate(blocks, 1):
        attention = block.get_submodule("attention")
        attention.register_forward_pre_hook(lambda *_, number=number: entered.append(number))
    states_up_to(model, 5, 2, torch.tensor([[5, 6]]), torch.ones(1, 2, dtype=torch.long), None)
    assert entered == [1, 2]
    states_up_to(model, 5, 5, torch.tensor([[5, 6]]), torch.ones(1, 2, dtype=torch.long), None)
    assert entered == [1, 2, 1, 2, 3, 4, 5], "and leaves the model as it was"
