"""Encoders of the Hub, from a stand-in on this machine: the files that are needed, whole, and of the right commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.facts import names
from support.hub import Hub, forget, offline, old_layout

from probe.config import EncoderConfig, UserError
from probe.encoders.encoder import Encoder, open_encoder, weights_of
from probe.encoders.model import load_model
from probe.system import hub

NEEDED = {"config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"}


def opened(tmp_path: Path, name: str = "some/bert", revision: str | None = None) -> Encoder:
    return open_encoder(EncoderConfig(name, None, revision, None, "pretrained", 0), tmp_path / "store")


def sharded(bert: Path) -> dict[str, bytes]:
    """The same weights in two files with an index."""
    files = {file.name: file.read_bytes() for file in bert.iterdir() if file.name != "model.safetensors"}
    weights = load_file(bert / "model.safetensors")
    names = sorted(weights)
    index: dict[str, str] = {}
    for number, mine in enumerate((names[::2], names[1::2]), start=1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({key: weights[key] for key in mine}, bert.parent / name, {"format": "pt"})
        files[name] = (bert.parent / name).read_bytes()
        index |= dict.fromkeys(mine, name)
    return {**files, "model.safetensors.index.json": json.dumps({"metadata": {}, "weight_map": index}).encode()}


@pytest.fixture
def bert(tiny_bert: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_bert, tmp_path / "bert" / "files")


def hidden_states(encoder: Encoder) -> torch.Tensor:
    inputs = encoder.tokenizer("ana met smith in paris", return_tensors="pt")
    with torch.no_grad():
        states = load_model(encoder, "cpu", "float32")(**inputs, output_hidden_states=True).hidden_states
    return torch.stack(states)


def test_a_checkpoint_in_berts_own_layout_gives_its_hidden_states(stand_in: Hub, bert: Path, tmp_path: Path):
    commit = stand_in.put("model", "some/bert", old_layout(bert))
    encoder = opened(tmp_path)
    assert (encoder.commit, encoder.num_layers, encoder.source) == (commit, 5, "Hub some/bert")
    asked = stand_in.files_asked()
    assert (len(asked), set(asked), asked[-1]) == (len(NEEDED), NEEDED, "model.safetensors"), "no file of others"
    model = transformers.BertModel.from_pretrained(bert).eval()
    tokenizer = transformers.BertTokenizer(str(bert / "vocab.txt"), model_max_length=24)
    with torch.no_grad():
        inputs = tokenizer("ana met smith in paris", return_tensors="pt")
        expected = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)
    assert expected.shape == (6, 1, 7, 16)
    assert torch.equal(hidden_states(encoder), expected)
    stand_in.broken = "/api/"
    forget()
    names(opened(tmp_path).source, "Hub some/bert", "cache")


def test_a_checkpoint_in_several_files_is_the_same_encoder(stand_in: Hub, bert: Path, tmp_path: Path):
    stand_in.put("model", "some/bert", {**sharded(bert), "model.fp16.safetensors": b"not to be fetched"})
    encoder = opened(tmp_path)
    assert not [file for file in stand_in.files_asked() if "fp16" in file]
    whole = open_encoder(EncoderConfig("", str(bert), None, None, "pretrained", 0), tmp_path / "store")
    assert torch.equal(hidden_states(encoder), hidden_states(whole))


def test_the_cache_serves_each_commit_without_the_hub(
    stand_in: Hub, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old = stand_in.put("model", "some/bert", bert)
    first = opened(tmp_path)
    weights = {name: 2 * part for name, part in load_file(bert / "model.safetensors").items()}
    save_file(weights, bert / "model.safetensors", {"format": "pt"})
    forget()
    new = stand_in.put("model", "some/bert", bert)
    second = opened(tmp_path)
    assert first.fingerprint != second.fingerprint
    offline(monkeypatch)
    for revision, commit, encoder in ((None, new, second), ("main", new, second), (old, old, first)):
        again = opened(tmp_path, revision=revision)
        assert (again.commit, again.fingerprint) == (commit, encoder.fingerprint)
    with pytest.raises(UserError, match=r"some/bert at other\b"):
        opened(tmp_path, revision="other")


@pytest.mark.parametrize(
    ("name", "revision", "facts"),
    [
        ("some/bertt", None, ["encoder.name=some/bertt", "private", "hf auth login"]),
        ("some/bert", "mian", ["encoder.revision=mian", "some/bert"]),
        ("some/gated", None, ["encoder.name=some/gated", "http://", "/some/gated", "hf auth login"]),
        ("no/config", None, ["no/config", "config.json", "encoder.name=OWNER"]),
        ("odd/index", None, ["model.safetensors.index.json", "'../model.safetensors'", "encoder.path=DIR"]),
        ("no/shard", None, ["encoder.name=no/shard", "model-00002-of-00002.safetensors", "encoder.revision=NAME"]),
        ("only/tf", None, ["tf_model.h5", "encoder.name=OWNER/NAME"]),
        ("./here/there/x", None, ["encoder.name=./here/there/x", "OWNER/NAME", "encoder.path=DIR"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_type(
    stand_in: Hub, bert: Path, tmp_path: Path, name: str, revision: str | None, facts: list[str]
):
    for there in ("some/bert", "some/gated"):
        stand_in.put("model", there, bert)
    stand_in.gated.add("some/gated")
    stand_in.put("model", "no/config", {"model.safetensors": b"..."})
    stand_in.put("model", "only/tf", {"config.json": "{}", "tf_model.h5": b"...", "training_args.bin": b"..."})
    index: dict[str, bytes | str] = {"config.json": "{}", "model-1.safetensors": b"..."}
    index["model.safetensors.index.json"] = '{"weight_map": {"a": "../model.safetensors"}}'
    stand_in.put("model", "odd/index", index)
    stand_in.put("model", "no/shard", {k: v for k, v in sharded(bert).items() if not k.startswith("model-00002")})
    with pytest.raises(UserError) as error:
        opened(tmp_path, name, revision)
    names(error.value, *facts)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    asked = [file for file in stand_in.files_asked() if file.endswith((".bin", ".safetensors"))]
    assert asked == ["model-00001-of-00002.safetensors"] * (name == "no/shard")


def test_weights_in_bin_form_are_fetched_where_the_commit_has_no_others(
    stand_in: Hub, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = {file.name: file.read_bytes() for file in bert.iterdir()}
    torch.save(load_file(bert / "model.safetensors"), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    stand_in.put("model", "only/bin", bert)
    encoder = opened(tmp_path, "only/bin")
    assert stand_in.files_asked()[-1] == "pytorch_model.bin"
    with monkeypatch.context() as patched:
        offline(patched)
        assert opened(tmp_path, "only/bin").fingerprint == encoder.fingerprint
    forget()
    commit = stand_in.put("model", "both/forms", {**before, "pytorch_model.bin": b"not to be read"})
    fetched_by_others = hub.fetch(hub.Repo("model", "both/forms"), ["pytorch_model.bin"])
    assert (fetched_by_others.name, weights_of(fetched_by_others)[0].name) == (commit, "pytorch_model.bin")
    assert torch.equal(hidden_states(opened(tmp_path, "both/forms")), hidden_states(encoder))


def test_an_index_with_a_missing_file_is_refused(bert: Path, tmp_path: Path):
    folder = tmp_path / "half"
    folder.mkdir()
    for name, content in sharded(bert).items():
        (folder / name).write_bytes(content)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors.*index\.json"):
        open_encoder(EncoderConfig("", str(folder), None, None, "pretrained", 0), tmp_path / "store")
    (folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(UserError, match=r"index\.json"):
        open_encoder(EncoderConfig("", str(folder), None, None, "pretrained", 0), tmp_path / "store")
