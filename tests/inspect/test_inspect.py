"""What `probe inspect` and `word_vectors` say is what a plain transformers forward says, in text and JSON."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.facts import names
from support.families import FAMILIES
from support.inputs import (
    VOCABULARY,
    encoder_config,
    ensure_features,
    features_config,
    overrides,
    plain_encoder,
    stored,
)

from probe import features, word_vectors
from probe.cli import dispatch
from probe.config import Config, LayersConfig, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.checkpoint import open_encoder
from probe.inspect.encoded_text import TextEncoder, compare, sentence_vector
from probe.inspect.report import lines_of_readings
from probe.probes.combine import combine
from probe.settings import config_of

BANK = "After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank."
DEFAULTS: dict[str, Any] = {"pad": 0, "segment": None, "sentence": None, "word": None, "format": "text"}
ENGINEER = "She is a MachineLearning Engineer and works in California"


LAST_FOUR = [-4, -3, -2, -1]


def reader(cfg: Config, folder: Path | None = None, indices: Any = "", combine: str = "concat") -> TextEncoder:
    """A reader for another encoder or other layers."""
    encoder = encoder_config(folder) if folder else cfg.encoder
    return TextEncoder(replace(cfg, encoder=encoder, layers=LayersConfig(indices or LAST_FOUR, combine)))


def plain(folder: Path, text: str, **changes: Any) -> Any:
    """The outputs of transformers itself for one text, with the ids it made."""
    tokenizer, model = plain_encoder(folder)
    inputs = tokenizer(text, return_tensors="pt", **changes.pop("tokenizer", {}))
    inputs.update(changes)
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    outputs["inputs"] = inputs
    return outputs


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.fixture(scope="module")
def tiny_cfg(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    return config_of([f"encoder.path={tiny_bert}", f"features.cache_dir={tmp_path_factory.mktemp('cache')}"])


@pytest.fixture(scope="module")
def tiny(tiny_cfg: Config) -> TextEncoder:
    return reader(tiny_cfg)


@pytest.fixture
def tiny_settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [f"encoder.path={tiny_bert}", f"features.cache_dir={tmp_path}"]


# One text, against a plain forward.


def test_a_text_is_read_as_transformers_reads_it(tiny: TextEncoder):
    text = "Ana, Smith met at portton bank."
    expected = plain(tiny.encoder.folder, text, tokenizer={"padding": "max_length", "max_length": 14})
    reading = tiny.read(text, pad=14)
    assert reading.words == ["Ana", ",", "Smith", "met", "at", "portton", "bank", "."]
    assert reading.shape == (1, 14, 16)
    for ours, name in ((reading.ids, "input_ids"), (reading.mask, "attention_mask"), (reading.types, "token_type_ids")):
        assert ours is not None
        assert ours.tolist() == expected["inputs"][name].tolist()
    assert reading.word_of_piece == [[None, 0, 1, 2, 3, 4, 5, 5, 6, 7, None, None, None, None]]
    states = torch.stack(expected.hidden_states)[:, 0]  # (6, 14, 16)
    close(reading.pieces, states[:, :11])
    close(reading.vectors, states[:, [1, 2, 3, 4, 5, 6, 8, 9]].transpose(0, 1))
    assert reading.pooled is not None
    close(reading.pooled, expected.pooler_output[0])


def test_one_segment_for_all_pieces_can_be_asked_for(tiny: TextEncoder):
    ones = torch.ones(1, 5, dtype=torch.long)
    expected = plain(tiny.encoder.folder, "ana met smith", token_type_ids=ones)
    reading = tiny.read("ana met smith", segment=1, pad=7)
    assert reading.types is not None
    assert reading.types.tolist() == [[1, 1, 1, 1, 1, 0, 0]]
    close(reading.pieces, torch.stack(expected.hidden_states)[:, 0])


def test_layer_0_is_the_normalized_sum_of_its_embeddings(tiny: TextEncoder):
    _, model = plain_encoder(tiny.encoder.folder)
    reading = tiny.read("ana met smith")
    parts = reading.parts
    assert parts is not None
    assert list(parts) == ["word", "position", "segment", "sum", "layer 0"]
    close(parts["word"], model.embeddings.word_embeddings.weight[reading.ids[0]].detach())
    close(parts["position"], model.embeddings.position_embeddings.weight[:5].detach())
    close(parts["segment"], model.embeddings.token_type_embeddings.weight[[0] * 5].detach())
    close(parts["sum"], parts["word"] + parts["position"] + parts["segment"])
    close(parts["layer 0"], reading.pieces[0])


@pytest.mark.parametrize(
    ("kind", "are_known"),
    [("roberta", True), ("distilbert", True), ("electra", False), ("fnet", False), ("gpt2", False), ("t5", False)],
)
def test_the_parts_of_layer_0_are_shown_if_its_norm_of_their_sum(
    kind: str, are_known: bool, tiny_cfg: Config, tmp_path: Path
):
    torch.manual_seed(0)
    tokenizer, model = FAMILIES[kind]()
    tokenizer.save_pretrained(tmp_path / kind)
    model.save_pretrained(tmp_path / kind)
    reading = reader(tiny_cfg, tmp_path / kind).read("be met x")
    words = [word for word in reading.word_of_piece[0] if word is not None]
    assert words == sorted(words)
    assert set(words) == {0, 1, 2}
    assert (reading.parts is not None) == are_known


def test_a_pooler_without_weights_is_not_shown(tiny_bert: Path, tiny_cfg: Config, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(tiny_bert, tmp_path / "no-pooler"))
    weights = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    without = reader(tiny_cfg, folder)
    reading = without.read("ana")
    assert reading.pooled is None
    with pytest.raises(UserError, match=r"--sentence pooler.*mean, max"):
        sentence_vector(reading, "pooler", without)


# The same rules as extraction.


@pytest.mark.parametrize("subword", ["first", pytest.param("mean", marks=pytest.mark.slow)])
def test_a_long_text_gives_the_vectors_that_extraction_stores(
    subword: str, tiny_bert: Path, tiny_cfg: Config, tmp_path: Path
):
    words = "ana met smith in portton , washs won . the bank of england lost to chelsea".split() * 4
    split = Split([words], [["O"] * len(words)], None, [1], "text")
    features = features_config(tmp_path / "cache", dtype="float32", subword=subword)
    store = ensure_features(
        Corpus("x", {"dev": split}), open_encoder(encoder_config(tiny_bert), tmp_path), features, "cpu"
    )
    reading = TextEncoder(replace(tiny_cfg, features=features)).read(" ".join(words))
    assert reading.words == words
    assert len(reading.windows) > 2
    assert reading.ids.shape[0] == len(reading.windows)
    close(reading.vectors.transpose(0, 1), stored(store, "dev"))
    num_pieces = sum(len(tiny_ids) for tiny_ids in _ids_of(tiny_bert, words))
    assert reading.pieces.shape == (6, num_pieces + 2, 16)


def _ids_of(folder: Path, words: list[str]) -> list[list[int]]:
    tokenizer, _ = plain_encoder(folder)
    return [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]


def test_words_without_pieces_and_empty_texts_are_said_aloud(
    tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
):
    assert dispatch(["inspect", "ana \u200b met", "", *tiny_settings]) == 0
    out, errors = capsys.readouterr()
    names(errors, "text 1", "1 words")
    assert "[UNK]" in out
    assert "text 2: empty" in out
    names(out, "0 words", "2 pieces")


def test_a_long_text_is_shown_window_by_window(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]):
    assert dispatch(["inspect", "ana met smith . " * 8, *tiny_settings]) == 0
    out = capsys.readouterr().out
    assert "window 2 of 2: words 10 to 31, 16 to 31 taken from here" in out


# Vectors of a whole text.


@pytest.mark.parametrize("how", ["cls", "pooler", "mean", "max", "mean_second_to_last"])
def test_sentence_vectors_are_what_their_names_say(how: str, tiny_bert: Path, tiny_cfg: Config):
    last = reader(tiny_cfg, indices=[-1])
    reading = last.read("ana met portton", pad=12)
    outputs = plain(tiny_bert, "ana met portton")
    expected = {
        "cls": outputs.last_hidden_state[0, 0],
        "pooler": outputs.pooler_output[0],
        "mean": outputs.last_hidden_state[0].mean(0),
        "max": outputs.last_hidden_state[0].max(0).values,
        "mean_second_to_last": outputs.hidden_states[4][0].mean(0),
    }[how]
    close(sentence_vector(reading, how, last), expected)


# Occurrences of a word.


def test_cosines_are_those_of_a_words_vectors_at_each_layer(tiny: TextEncoder):
    texts = ["the Bank of England", "ana went to the bank .", "banks of leeds , bank"]
    readings = [tiny.read(text, number=i + 1) for i, text in enumerate(texts)]
    compared = compare(readings, "bank", tiny)
    assert [(occurrence.text, occurrence.word) for occurrence in compared.occurrences] == [(0, 1), (1, 4), (2, 4)]
    assert compared.occurrences[1].around == "… went to the [bank] ."
    states = [torch.stack(plain(tiny.encoder.folder, text).hidden_states)[:, 0] for text in texts]
    pieces = [state[:, at] for state, at in zip(states, (2, 5, -2), strict=True)]  # each (6, 16)
    references = {f"layer_{k}": [piece[k] for piece in pieces] for k in range(6)}
    references[tiny.selection.name] = [piece[2:].flatten() for piece in pieces]
    assert compared.cosines.keys() == references.keys()
    for name, vectors in references.items():
        stacked = torch.stack(vectors)
        alike = torch.nn.functional.cosine_similarity(stacked[:, None], stacked[None], dim=-1)
        np.testing.assert_allclose(compared.cosines[name], alike, atol=1e-5)


# For programs.


def test_json_holds_what_programs_need(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]):
    command = ["inspect", "ana met smith", "the bank , Bank", "--pad", "7", "--sentence", "mean", "--word", "bank"]
    assert dispatch([*command, "--format", "json", *tiny_settings]) == 0
    content = json.loads(capsys.readouterr().out)
    parts = {"encoder", "texts", "hidden_states", "layers", "cosines", "sentence", "word", "causal"}
    assert content.keys() == parts
    assert content["hidden_states"] == 6
    first = content["texts"][0]
    assert first["words"] == ["ana", "met", "smith"]
    assert first["pieces"] == ["[CLS]", "ana", "met", "smith", "[SEP]", "[PAD]", "[PAD]"]
    assert len(first["ids"]) == 7
    assert first["attention_mask"] == [1, 1, 1, 1, 1, 0, 0]
    assert first["segment_ids"] == [0] * 7
    assert first["word_of_piece"] == [None, 0, 1, 2, None, None, None]
    assert first["shape"] == [1, 7, 16]
    assert np.shape(content["cosines"]) == (2, 2)
    assert content["cosines"][0][0] == pytest.approx(1)
    assert len(content["word"]["occurrences"]) == 2
    assert np.shape(content["word"]["cosines"]["layer_3"]) == (2, 2)


# The command.


def test_the_command_shows_pieces_states_parts_and_vectors(
    tiny: TextEncoder, tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
):
    command = ["inspect", "Ana met smith .", "--pad", "8", "layers=second_to_last", *tiny_settings]
    assert dispatch(command) == 0
    out, errors = capsys.readouterr()
    shown = [line.split() for line in out.splitlines()]
    assert ["1", "ana", str(VOCABULARY.index("ana")), "1", "0", "0", "Ana"] in shown
    assert ["7", "[PAD]", "0", "0", "0", "-"] in shown
    names(
        out, "6 hidden states", "(1, 8, 16)", "0 = embedding output", "1..5 = encoder blocks", "5 = last hidden state"
    )
    names(out, "pooler output (1, 16)", "layer 0 = LayerNorm(word + position + segment embedding)")
    names(out, "second_to_last = layer 4", "16 values")
    vector = tiny.read("Ana met smith .").vectors[2, 4]
    row = next(line for line in shown if line[:2] == ["2", "smith"])
    assert row[2:6] == [f"{vector.norm():.2f}", *(f"{value:+.4f}" for value in vector[:3])]
    assert errors == ""


def test_texts_come_from_standard_input_one_a_line(
    tiny_settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def given(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    given("\ufeffana met a=b\r\nencoder=x won\n".encode())
    assert dispatch(["inspect", "--format", "json", *tiny_settings]) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert [text["text"] for text in texts] == ["ana met a=b", "encoder=x won"]
    given(b"ana\nm\xff\n")
    with pytest.raises(UserError, match="UTF-8"):
        dispatch(["inspect", *tiny_settings])
    given(b"")
    with pytest.raises(UserError, match="(?i)standard input"):
        dispatch(["inspect", *tiny_settings])


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["ana"], {"pad": 2}, r"--pad 2: .*\b3 to 24\b"),
        (["ana"], {"pad": 25}, r"--pad 25: .*\b24\b"),
        (["ana"], {"segment": 2}, r"\b2\b.*0 to 1\b"),
        (["ana", "met washs" + "ing" * 30], {}, r"text:2, word 2 .*\b32\b.*\b22\b"),
        (["ana met smith"], {"word": "smit"}, r"smit\b.*smith\b"),
        (["ana met smith"], {"word": "ana"}, r"--word ana\b.*\b1\b"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(
    texts: list[str], options: dict[str, Any], message: str, tiny_cfg: Config
):
    with pytest.raises(UserError, match=message) as caught:
        lines_of_readings(tiny_cfg, texts, **{**DEFAULTS, **options})
    assert len(str(caught.value).splitlines()) <= 2


# From Python.


def test_from_python_a_text_gives_its_words_and_their_vectors(tiny_settings: list[str], tiny: TextEncoder):
    words, vectors = word_vectors("Ana met smith.", *tiny_settings)
    assert words == ["Ana", "met", "smith", "."]
    assert vectors.shape == (4, 6, 16)
    assert vectors.dtype == torch.float32
    states = torch.stack(plain(tiny.encoder.folder, "Ana met smith.").hidden_states)[:, 0, 1:5]
    close(vectors, states.transpose(0, 1))
    several = word_vectors(["", "Ana met smith."], *tiny_settings)
    assert several[0].words == []
    assert several[0].vectors.shape == (0, 6, 16)
    close(several[1].vectors, vectors)
    torch.nn.Linear(16, 1)(vectors).sum().backward()  # they can be trained on


def test_from_python_chosen_layers_are_combined_as_features_combines_them(tiny_settings: list[str]):
    every = word_vectors("Ana met smith.", *tiny_settings).vectors
    for layers, expected in (
        (["layers=second_to_last"], every[:, 4]),
        (["layers=concat_last_four"], every[:, 2:].flatten(1)),
        (["layers.indices=[5,0]", "layers.combine=mean"], (every[:, 5] + every[:, 0]) / 2),
        (["layers=mix_last_four"], every[:, 2:]),
    ):
        close(word_vectors("Ana met smith.", *tiny_settings, *layers).vectors, expected)
    assert word_vectors("", *tiny_settings, "layers=concat_last_four").vectors.shape == (0, 64)


def test_from_python_normalized_vectors_of_a_text_are_those_of_features(
    tiny_settings: list[str], tiny_bert: Path, tiny_data: Path
):
    settings = [*tiny_settings, "layers.indices=[2,4]", "layers.combine=sum", "layers.normalize=scale"]
    of_data = [*overrides(tiny_bert, tiny_data)[1:], "features.dtype=float32"]
    train = features(*settings, *of_data).train
    first = train.sentences[0]
    words, vectors = word_vectors(" ".join(train.words[first]), *settings, *of_data)
    assert words == train.words[first]
    close(vectors, train.vectors[first])
    for without in ([], [*of_data, "data.task=sentence"]):
        with pytest.raises(UserError, match=r"layers.normalize=scale.*data=NAME"):
            word_vectors("Ana", *settings, *without)


@pytest.mark.parametrize("texts", [None, 3, ["Ana", None]])
def test_from_python_what_is_no_text_is_refused(texts: Any, tiny_settings: list[str]):
    with pytest.raises(UserError, match=str(texts).replace("[", r"\[")):
        word_vectors(texts, *tiny_settings)


def test_from_python_an_encoder_runs_with_threads_that_wait_little(tiny_settings: list[str], monkeypatch):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    word_vectors("Ana", *tiny_settings)
    assert int(os.environ["GOMP_SPINCOUNT"]) < 300_000, "OpenMP's default"


# The golden values of the tutorials on bert-base-uncased.


@pytest.fixture
def base(tmp_path: Path) -> TextEncoder:
    settings = ["encoder=bert_base_uncased", "layers=sum_last_four"]
    try:
        return TextEncoder(config_of([*settings, f"features.cache_dir={tmp_path}"]))
    except UserError as error:
        pytest.skip(str(error))


def ends(vector: torch.Tensor) -> list[float]:
    return [*vector[:3].tolist(), *vector[-3:].tolist()]


@pytest.mark.hub
def test_golden_i_love_paris(base: TextEncoder):
    reading = base.read("I love Paris", pad=7)
    assert reading.ids.tolist() == [[101, 1045, 2293, 3000, 102, 0, 0]]
    assert (len(reading.pieces), *reading.shape) == (13, 1, 7, 768)
    golden = [
        [0.073670, 0.27802, -0.46532, -0.68014, 0.12422, 0.68809],
        [0.83667, 0.57842, -0.43332, -0.29113, 0.15483, 0.00072985],
        [1.4993, 0.66219, 0.46924, -0.15683, 0.13537, -0.049741],
    ]
    for row, values in zip(reading.pieces[9], golden, strict=False):
        assert ends(row) == pytest.approx(values, abs=1e-3)


@pytest.mark.hub
def test_golden_machine_learning_engineer(base: TextEncoder):
    reading = base.read(ENGINEER, pad=16)
    ids = [101, 2016, 2003, 1037, 3698, 19738, 6826, 2075, 3992, 1998, 2573, 1999, 2662, 102, 0, 0]
    assert reading.ids.tolist() == [ids]
    of_fourth = [
        piece for piece, word in zip(reading.ids[0].tolist(), reading.word_of_piece[0], strict=True) if word == 3
    ]
    assert base.encoder.tokenizer.convert_ids_to_tokens(of_fourth) == ["machine", "##lea", "##rn", "##ing"]
    assert ends(reading.pieces[12, 0]) == pytest.approx([-0.1925, 0.1684, -0.4252, -0.2599, 0.3736, 0.0529], abs=1e-3)
    assert ends(reading.pieces[12, 1]) == pytest.approx([0.2417, -0.2748, -0.4909, 0.1372, 0.3408, -0.4655], abs=1e-3)
    assert reading.pooled is not None
    golden = [-0.9531, -0.4914, -0.8872, 0.9035, 0.8174, -0.2919]
    assert reading.pooled[:6].tolist() == pytest.approx(golden, abs=1e-3)


@pytest.mark.hub
def test_golden_banks(base: TextEncoder):
    reading = base.read(BANK, segment=1)
    compared = compare([reading], "bank", base)
    assert compared.cosines["sum_last_four"][1, 0] == pytest.approx(0.94567525, abs=1e-4)
    assert compared.cosines["sum_last_four"][1, 2] == pytest.approx(0.6797334, abs=1e-4)
    golden = [
        [2.1319, -2.1413, -1.6260, 0.8638],
        [1.1868, -1.5298, -1.3770, 1.0648],
        [1.1295, -1.4725, -0.7296, -0.0901],
    ]
    places = [occurrence.word for occurrence in compared.occurrences]
    vectors = combine(reading.vectors[places].transpose(0, 1), base.selection)
    for vector, values in zip(vectors, golden, strict=True):
        assert vector[:4].tolist() == pytest.approx(values, abs=1e-3)


def test_bytes_that_are_no_utf8_are_refused_as_a_text(tiny_settings: list[str]):
    with pytest.raises(UserError, match=r"text 1\b.*UTF-8"):
        dispatch(["inspect", "caf\udce9", *tiny_settings])
