"""What `probe inspect` and `word_vectors` say is what a plain transformers forward says, in text and JSON."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.facts import names
from support.families import FAMILIES
from support.inputs import VOCABULARY, ensure_features, overrides, plain_encoder, stored

from probe import features, word_vectors
from probe.cli import dispatch
from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.inspect.encoded_text import TextEncoder, compare, sentence_vector
from probe.probes.combine import combine
from probe.settings import config_of

BANK = "After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank."
ENGINEER = "She is a MachineLearning Engineer and works in California"


def plain(folder: Path, text: str) -> torch.Tensor:
    """(L + 1, P, H): the hidden states that transformers itself gives for one text."""
    tokenizer, model = plain_encoder(folder)
    with torch.no_grad():
        return torch.cat(model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.fixture(scope="module")
def tiny(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    """With layers=concat_last_four."""
    return TextEncoder(
        config_of([f"encoder.path={tiny_bert}", f"features.cache_dir={tmp_path_factory.mktemp('cache')}"])
    )


@pytest.fixture
def tiny_settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [f"encoder.path={tiny_bert}", f"features.cache_dir={tmp_path}"]


def test_a_text_is_read_as_transformers_reads_it(tiny: TextEncoder):
    text = "Ana, Smith met at portton bank."
    tokenizer, _ = plain_encoder(tiny.encoder.folder)
    states = plain(tiny.encoder.folder, text)  # (6, 11, 16)
    reading = tiny.read(text)
    assert reading.words == ["Ana", ",", "Smith", "met", "at", "portton", "bank", "."]
    assert reading.ids == tokenizer(text)["input_ids"]
    assert reading.pieces == tokenizer.convert_ids_to_tokens(reading.ids)
    assert reading.word_of_piece == [None, 0, 1, 2, 3, 4, 5, 5, 6, 7, None]
    close(reading.states, states)
    close(reading.vectors, states[:, [1, 2, 3, 4, 5, 6, 8, 9]])


@pytest.mark.parametrize("subword", ["first", pytest.param("mean", marks=pytest.mark.slow)])
def test_a_long_text_gives_the_vectors_that_extraction_stores(subword: str, tiny_settings: list[str]):
    words = "ana met smith in portton , washs won . the bank of england lost to chelsea".split() * 4
    corpus = Corpus("x", {"dev": Split([words], [["O"] * len(words)], None, [1], "text")})
    cfg = config_of([*tiny_settings, "features.dtype=float32", f"features.subword={subword}"])
    reader = TextEncoder(cfg)
    reading = reader.read(" ".join(words))
    assert reading.words == words
    assert reading.num_windows > 2
    close(reading.vectors, stored(ensure_features(corpus, reader.encoder, cfg.features, "cpu"), "dev"))
    tokenizer, _ = plain_encoder(reader.encoder.folder)
    assert reading.ids == tokenizer(" ".join(words))["input_ids"]
    assert reading.states.shape == (6, len(reading.word_of_piece), 16)
    if subword == "first":
        close(reading.states[:, [reading.word_of_piece.index(word) for word in range(len(words))]], reading.vectors)


def test_empty_words_empty_texts_and_windows_are_said_aloud(tiny_settings: list[str], capsys: pytest.CaptureFixture):
    assert dispatch(["inspect", "ana \u200b met", "", "ana met smith . " * 8, *tiny_settings]) == 0
    out, errors = capsys.readouterr()
    names(errors, "text 1", "1 words")
    names(out, "[UNK]", "text 2: empty", "0 words", "2 pieces", "32 words", "34 pieces", "2 overlapping windows")


def test_sentence_vectors_are_what_their_names_say(tiny: TextEncoder):
    states = plain(tiny.encoder.folder, "ana met portton")
    chosen = torch.cat(tuple(states[2:]), 1)  # (P, 4 * 16)
    expected = {"cls": chosen[0], "mean": chosen.mean(0), "max": chosen.amax(0)}
    for how, vector in expected.items():
        close(sentence_vector(tiny.read("ana met portton"), how, tiny), vector)


def test_an_encoder_without_special_pieces_has_no_cls_and_reads_no_empty_text(tmp_path: Path):
    for part in FAMILIES["gpt2"]():
        part.save_pretrained(tmp_path)
    gpt2 = TextEncoder(config_of([f"encoder.path={tmp_path}", f"features.cache_dir={tmp_path}", "layers=last"]))
    reading = gpt2.read("be met x")
    assert set(reading.word_of_piece) == {0, 1, 2}
    with pytest.raises(UserError, match=r"--sentence cls.*--sentence mean"):
        sentence_vector(reading, "cls", gpt2)
    with pytest.raises(UserError, match="text 2 is empty"):
        gpt2.read("", 2)


def test_cosines_are_those_of_a_words_vectors_at_each_layer(tiny: TextEncoder):
    texts = ["the Bank of England", "ana went to the bank .", "banks of leeds , bank"]
    occurrences, by_layer = compare([tiny.read(text) for text in texts], "bank", tiny)
    assert [(occurrence.text, occurrence.word) for occurrence in occurrences] == [(0, 1), (1, 4), (2, 4)]
    assert occurrences[1].around == "went to the [bank] ."
    states = [plain(tiny.encoder.folder, text) for text in texts]
    pieces = [state[:, at] for state, at in zip(states, (2, 5, -2), strict=True)]  # each (6, 16)
    expected = {f"layer_{k}": [piece[k] for piece in pieces] for k in range(6)}
    expected[tiny.selection.name] = [piece[2:].flatten() for piece in pieces]
    assert by_layer.keys() == expected.keys()
    for name, vectors in expected.items():
        stacked = torch.stack(vectors)
        alike = torch.nn.functional.cosine_similarity(stacked[:, None], stacked[None], dim=-1)
        np.testing.assert_allclose(by_layer[name], alike, atol=1e-5)


def test_the_command_shows_pieces_states_and_vectors(
    tiny: TextEncoder, tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
):
    assert dispatch(["inspect", "Ana met smith .", "layers=second_to_last", *tiny_settings]) == 0
    out, errors = capsys.readouterr()
    shown = [line.split() for line in out.splitlines()]
    assert ["1", "ana", str(VOCABULARY.index("ana")), "0", "Ana"] in shown
    assert ["5", "[SEP]", str(VOCABULARY.index("[SEP]")), "-"] in shown
    names(out, "not causal", "6 hidden states", "(6, 16)", "0 = embedding output", "5 = last hidden state")
    names(out, "second_to_last = layer 4", "16 values")
    vector = tiny.read("Ana met smith .").vectors[4, 2]
    expected = ["2", "smith", f"{vector.norm():.2f}", *(f"{value:+.4f}" for value in vector[:3])]
    assert expected in [line[:6] for line in shown]
    assert errors == ""


def test_json_and_text_hold_the_same_cosines(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]):
    command = ["inspect", "ana met smith", "the bank , Bank " * 4, "--sentence", "mean", "--word", "bank"]
    assert dispatch([*command, *tiny_settings]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert dispatch([*command, "--format", "json", *tiny_settings]) == 0
    content = json.loads(capsys.readouterr().out)
    parts = {"encoder", "causal", "hidden_states", "hidden_size", "layers", "texts", "sentence", "cosines", "word"}
    assert content.keys() == parts
    assert (content["hidden_states"], content["hidden_size"], content["causal"]) == (6, 16, False)
    first = content["texts"][0]
    assert first["words"] == ["ana", "met", "smith"]
    assert first["pieces"] == ["[CLS]", "ana", "met", "smith", "[SEP]"]
    assert first["ids"] == [VOCABULARY.index(piece) for piece in first["pieces"]]
    assert first["word_of_piece"] == [None, 0, 1, 2, None]
    for number, row in enumerate(np.array(content["cosines"]), 1):
        assert row[number - 1] == pytest.approx(1)
        assert [str(number), *(f"{value:.3f}" for value in row)] in shown
    assert len(content["word"]["occurrences"]) == 8
    of_pairs = np.array(content["word"]["cosines"]["layer_3"])[np.triu_indices(8, 1)]
    assert ["3", *(f"{value:.3f}" for value in (of_pairs.min(), of_pairs.mean(), of_pairs.max()))] in shown


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
    ("given", "message"),
    [
        (["ana", "met washs" + "ing" * 30], r"text:2, word 2 .*\b32\b.*\b22\b"),
        (["ana met smith", "--word", "smit"], r"smit\b.*smith\b"),
        (["ana met smith", "--word", "ana"], r"--word ana\b.*\b1\b"),
        (["ana", "layers=majority_tag"], r"layers=majority_tag\b.*layers=last"),
        (["ana", "layers.normalize=scale"], r"layers.normalize\b.*data=NAME"),
        (["caf\udce9"], r"text 1\b.*UTF-8"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(given: list[str], message: str, tiny_settings: list[str]):
    with pytest.raises(UserError, match=message) as caught:
        dispatch(["inspect", *given, *tiny_settings])
    assert len(str(caught.value).splitlines()) <= 2


def test_from_python_a_text_gives_its_words_and_their_vectors(tiny_settings: list[str], tiny: TextEncoder):
    words, vectors = word_vectors("Ana met smith.", *tiny_settings)
    assert words == ["Ana", "met", "smith", "."]
    assert vectors.shape == (4, 6, 16)
    assert vectors.dtype == torch.float32
    states = plain(tiny.encoder.folder, "Ana met smith.")[:, 1:5]
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
    try:
        return TextEncoder(
            config_of(["encoder=bert_base_uncased", "layers=sum_last_four", f"features.cache_dir={tmp_path}"])
        )
    except UserError as error:
        pytest.skip(str(error))


def has_ends(states: torch.Tensor, *golden: list[float]) -> None:
    for vector, values in zip(states, golden, strict=True):
        assert [*vector[:3].tolist(), *vector[-3:].tolist()] == pytest.approx(values, abs=1e-3)


@pytest.mark.hub
def test_golden_i_love_paris(base: TextEncoder):
    reading = base.read("I love Paris")
    assert reading.ids == [101, 1045, 2293, 3000, 102]
    assert reading.states.shape == (13, 5, 768)
    has_ends(
        reading.states[9, :3],
        [0.073670, 0.27802, -0.46532, -0.68014, 0.12422, 0.68809],
        [0.83667, 0.57842, -0.43332, -0.29113, 0.15483, 0.00072985],
        [1.4993, 0.66219, 0.46924, -0.15683, 0.13537, -0.049741],
    )


@pytest.mark.hub
def test_golden_machine_learning_engineer(base: TextEncoder):
    reading = base.read(ENGINEER)
    assert reading.ids == [101, 2016, 2003, 1037, 3698, 19738, 6826, 2075, 3992, 1998, 2573, 1999, 2662, 102]
    of_fourth = [piece for piece, word in zip(reading.pieces, reading.word_of_piece, strict=True) if word == 3]
    assert of_fourth == ["machine", "##lea", "##rn", "##ing"]
    has_ends(
        reading.states[12, :2],
        [-0.1925, 0.1684, -0.4252, -0.2599, 0.3736, 0.0529],
        [0.2417, -0.2748, -0.4909, 0.1372, 0.3408, -0.4655],
    )


@pytest.mark.hub
def test_golden_banks(base: TextEncoder):
    special = replace(base.encoder.special, prefix_types=[1], text_type=1, suffix_types=[1])  # as in the tutorial
    base.encoder = replace(base.encoder, special=special)
    reading = base.read(BANK)
    occurrences, by_layer = compare([reading], "bank", base)  # the vault's, the robber's, the river's
    assert by_layer["sum_last_four"][1, [0, 2]] == pytest.approx([0.94567525, 0.6797334], abs=1e-4)
    vectors = combine(reading.vectors[:, [at for _, at, _ in occurrences]], base.selection)
    golden = [
        [2.1319, -2.1413, -1.6260, 0.8638],
        [1.1868, -1.5298, -1.3770, 1.0648],
        [1.1295, -1.4725, -0.7296, -0.0901],
    ]
    np.testing.assert_allclose(vectors[:, :4], golden, atol=1e-3)
