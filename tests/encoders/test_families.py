"""Encoders of other families, tiny and random, against a plain forward over running text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.facts import names
from support.families import FAMILIES, SIZE, WORDS, T, unigram
from support.inputs import encoder_config, ensure_features, features_config, stored
from transformers import PreTrainedModel

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.encoder import open_encoder
from probe.encoders.model import hidden_states, load_model, notes_on, trial_texts
from probe.vectors import extraction
from probe.vectors.words import Text, batches

IN_PYTHON = {"bertweet", "phobert", "bert-japanese", "flaubert"}
NEEDS = {"flaubert": "sacremoses"}  # a package that the family's tokenizer calls
CAUSAL = {"gpt2", "llama", "llama-3", "qwen3", "gemma-3-text", "gemma-3", "qwen2-vl", "olmo-2"}
WHOLE = {"albert", "bart", "t5", "gemma-3", "qwen2-vl"}  # one block for all, a decoder, or other parts beside the text
UNPADDED = {"mobilebert", "fnet", "bigbird"}


def saved(family: str, folder: Path) -> Path:
    """The folder of a tiny random encoder of one family."""
    if family in NEEDS:
        pytest.importorskip(NEEDS[family])
    torch.manual_seed(0)
    tokenizer, model = FAMILIES[family]()
    tokenizer.save_pretrained(folder / family)
    model.save_pretrained(folder / family)
    return folder / family


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(request.param, tmp_path)


def over_running_text(folder: Path, words: list[str]) -> torch.Tensor:
    """(L + 1, W, H): the text as one string, each piece given to its word by its place among the characters.

    A tokenizer in Python does not say the place; there the pieces of the words are counted one after another.
    """
    tokenizer = T.AutoTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        encoded = tokenizer(" ".join(words), return_tensors="pt")
        ends_of_words = [len(tokenizer.tokenize(" ".join(words[: i + 1]))) for i in range(len(words))]
        before = tokenizer.num_special_tokens_to_add() // 2
        firsts = [before + first for first in (0, *ends_of_words[:-1])]
        return states_of_model(folder, encoded)[:, firsts]
    starts_with_space = tokenizer.tokenize("x") != tokenizer.tokenize(" x")
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
    return states_of_model(folder, encoded)[:, [first_piece[i] for i in range(len(words))]]


def states_of_model(folder: Path, encoded: Any) -> torch.Tensor:
    """(L + 1, P, H): what the whole model gives for a text, where it has parts for images too."""
    model: PreTrainedModel = T.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        encoded.pop("token_type_ids", None)
    with torch.no_grad():
        states = model(**encoded, output_hidden_states=True).hidden_states
    return torch.stack([state[0, : encoded["input_ids"].shape[1]] for state in states])


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

    def load(*arguments: Any, **more: Any) -> torch.nn.Module:
        model = load_model(*arguments, **more)
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
    passes = len(batches(Text(corpus, "dev", encoder, features_config(tmp_path)), some.shards["dev"][0], 64, "cpu"))
    assert len(entered[0]) == (3 if family.name in UNPADDED else passes) * chosen[-1]


@pytest.mark.parametrize("layers", [[0, 1, 2, 3], [1]])
def test_bigbird_reads_long_texts_sparsely_after_short_ones(layers: list[int], tmp_path: Path):
    folder = saved("bigbird", tmp_path)
    texts = [WORDS[:2], WORDS * 2 + ["be"], WORDS * 2, WORDS[:1]]  # long ones of odd and even numbers of pieces
    split = Split(texts, [["O"] * len(text) for text in texts], None, [1, 2, 3, 4], "text")
    cfg = features_config(tmp_path / "cache", dtype="float32", layers=layers)
    encoder = open_encoder(encoder_config(folder), tmp_path)
    ((_, found),) = ensure_features(Corpus("x", {"dev": split}), encoder, cfg, "cpu").read("dev", layers)
    expected = torch.cat([over_running_text(folder, text) for text in texts], 1)
    torch.testing.assert_close(torch.stack(found), expected[layers], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", sorted(UNPADDED))
def test_a_padded_batch_has_states_and_gradients_as_if_each_text_were_alone(family: str, tmp_path: Path):
    encoder = open_encoder(encoder_config(saved(family, tmp_path)), tmp_path)
    model = load_model(encoder, "cpu").requires_grad_()
    texts = [[2, 11, 12, 3], [2, 13, 3], [2, 14, 15, 3]]
    ids = torch.tensor([text + [encoder.padding] * (6 - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (6 - len(text)) for text in texts])
    types = torch.zeros_like(ids) if encoder.special.has_types else None
    batch = hidden_states(model, ids, mask, types)
    batch[-1][mask == 1].square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for i, text in enumerate(texts):
        alone = model(input_ids=torch.tensor([text]), output_hidden_states=True)
        for ours, theirs in zip(batch, alone.hidden_states, strict=True):
            torch.testing.assert_close(ours[i, : len(text)], theirs[0])
            assert ours.shape == (3, 6, 16)
        alone.hidden_states[-1].square().sum().backward()
    expected = [p.grad for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-3)


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


def test_a_trial_shows_who_is_causal_and_whose_vectors_padding_changes(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    model: Any = load_model(encoder, "cpu")
    assert model.is_causal == (family.name in CAUSAL)
    assert model.takes_padding == (family.name not in UNPADDED)
    assert encoder.tokenizer.is_fast == (family.name not in IN_PYTHON)


def test_an_encoder_whose_vectors_padding_changes_is_told_of(tmp_path: Path):
    for family in ("fnet", "electra"):
        encoder = open_encoder(replace(encoder_config(saved(family, tmp_path)), name=family), tmp_path)
        notes = notes_on(encoder, load_model(encoder, "cpu"), "first")
        assert len(notes) == (family == "fnet")
        assert all("fnet" in note for note in notes)


def test_a_trial_shows_the_same_in_bfloat16(tiny_bert: Path, tmp_path: Path):
    found = []
    for folder in (tiny_bert, saved("gpt2", tmp_path), saved("qwen3", tmp_path)):
        encoder = open_encoder(encoder_config(folder), tmp_path)
        found.append(load_model(encoder, "cpu", "bfloat16").is_causal)
    assert found == [False, True, True]


@pytest.mark.parametrize("subword", ["first", "last"])
@pytest.mark.parametrize("family", ["gpt2", "llama-both-ways"])
def test_a_causal_encoder_is_warned_of_with_the_piece_to_use(
    family: str, subword: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    encoder = open_encoder(encoder_config(saved(family, tmp_path)), tmp_path)
    corpus = Corpus("x", {"dev": Split([WORDS], [["O"] * 8], None, [1], "text")})
    ensure_features(corpus, encoder, features_config(tmp_path / "cache", subword=subword), "cpu")
    told = capsys.readouterr().err
    assert ("causal" in told) == (family == "gpt2")
    assert ("features.subword=last" in told) == (family == "gpt2" and subword == "first")


def test_deberta_v3_is_read_from_its_bin_file_and_not_from_its_generator(tmp_path: Path):
    """As microsoft/deberta-v3-base lies there: half precision, a head, the prefix `deberta.`, a second model beside."""
    folder = tmp_path / "hub"
    torch.manual_seed(0)
    tokenizer = T.DebertaV2Tokenizer(vocab=unigram(), cls_token="<s>", sep_token="</s>", pad_token="<pad>")
    settings: dict[str, Any] = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 8, **SIZE}
    settings |= {"position_biased_input": False, "type_vocab_size": 0, "relative_attention": True}
    config = T.DebertaV2Config(vocab_size=100, pos_att_type=["p2c", "c2p"], **settings)
    model = T.DebertaV2Model(config).half().eval()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "plain")
    config.save_pretrained(folder)
    weights = {f"deberta.{name}": value for name, value in model.state_dict().items()}
    weights["mask_predictions.dense.weight"] = torch.ones(16, 16, dtype=torch.float16)
    torch.save(weights, folder / "pytorch_model.bin")
    torch.save({name: 0 * value for name, value in weights.items()}, folder / "pytorch_model.generator.bin")
    encoder = open_encoder(encoder_config(folder), tmp_path)
    split = Split([WORDS], [["O"] * 8], None, [1], "text")
    store = ensure_features(
        Corpus("x", {"dev": split}), encoder, features_config(tmp_path / "cache", dtype="float32"), "cpu"
    )
    torch.testing.assert_close(stored(store, "dev"), over_running_text(tmp_path / "plain", WORDS), atol=1e-5, rtol=0)


def test_random_weights_of_a_model_with_a_text_part_are_those_of_that_part(tmp_path: Path):
    folder = saved("gemma-3", tmp_path)
    encoder = open_encoder(replace(encoder_config(folder), weights="random"), tmp_path)
    drawn, trained = load_model(encoder, "cpu"), load_model(open_encoder(encoder_config(folder), tmp_path), "cpu")
    assert {name: p.shape for name, p in drawn.named_parameters()} == {
        name: p.shape for name, p in trained.named_parameters()
    }


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


@pytest.mark.slow
def test_of_an_encoder_that_stops_early_only_the_needed_blocks_are_loaded(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path)
    texts = trial_texts(encoder, "cpu")
    whole, part = load_model(encoder, "cpu"), load_model(encoder, "cpu", deepest=1)
    for expected, found in zip(hidden_states(whole, *texts)[:2], hidden_states(part, *texts), strict=True):
        assert torch.equal(expected, found)
    assert (num_values(part) < num_values(whole)) == (family.name not in WHOLE)


@pytest.mark.parametrize("name", ["modernbert", "t5", "llama", "qwen3", "gpt2", "olmo-2"])
def test_with_a_norm_behind_each_layer_a_layer_is_the_last_of_an_encoder_cut_there(name: str, tmp_path: Path):
    folder = saved(name, tmp_path)
    encoder = open_encoder(encoder_config(folder), tmp_path)
    texts = trial_texts(encoder, "cpu")
    found = hidden_states(load_model(encoder, "cpu", final_norm="each"), *texts)
    stopped = hidden_states(load_model(encoder, "cpu", final_norm="each", deepest=1), *texts)
    assert len(found) == 4
    for layer in (1, 2, 3):
        config = T.AutoConfig.from_pretrained(folder)
        types = getattr(config, "layer_types", None)
        config.num_hidden_layers, config.layer_types = layer, types and types[:layer]
        cut: PreTrainedModel = T.AutoModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()
        cut = cut.get_encoder() if config.is_encoder_decoder else cut
        with torch.no_grad():
            expected = cut(input_ids=texts[0], attention_mask=texts[1]).last_hidden_state
        assert torch.equal(found[layer], expected)
        assert layer > 1 or torch.equal(stopped[layer], expected)


def test_an_encoder_without_a_final_norm_is_refused_where_each_layer_is_to_have_it(tiny_bert: Path, tmp_path: Path):
    with pytest.raises(UserError):
        load_model(open_encoder(encoder_config(tiny_bert), tmp_path), "cpu", final_norm="each")


@pytest.mark.parametrize("kind", ["T5", "UMT5"])
def test_a_checkpoint_of_an_encoder_alone_is_opened_without_its_decoder(kind: str, tmp_path: Path):
    tokenizer, _ = FAMILIES["t5"]()
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2}
    getattr(T, f"{kind}EncoderModel")(getattr(T, f"{kind}Config")(**sizes)).save_pretrained(tmp_path)
    encoder = open_encoder(encoder_config(tmp_path), tmp_path)
    texts = trial_texts(encoder, "cpu")
    alone = getattr(T, f"{kind}EncoderModel").from_pretrained(tmp_path).eval()
    expected = alone(input_ids=texts[0], attention_mask=texts[1], output_hidden_states=True).hidden_states
    for ours, theirs in zip(hidden_states(load_model(encoder, "cpu"), *texts), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[next(name for name in weights if "block.1" in name)]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError):
        load_model(open_encoder(encoder_config(tmp_path), tmp_path), "cpu")
