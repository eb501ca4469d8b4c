"""Stores of some layers: the same vectors, and a key of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.facts import names
from support.inputs import ensure_features, features_config

from probe.commands.cache import entries
from probe.config import UserError
from probe.data.corpus import Corpus
from probe.encoders import model as encoder_module
from probe.encoders.encoder import Encoder
from probe.vectors.store import MANIFEST, FeatureStore


def store_of(corpus: Corpus, encoder: Encoder, cache: Path, layers: Any) -> FeatureStore:
    return FeatureStore.of(corpus, encoder, features_config(cache, layers=layers))


def made(corpus: Corpus, encoder: Encoder, cache: Path, layers: Any) -> FeatureStore:
    return ensure_features(corpus, encoder, features_config(cache, layers=layers), "cpu")


def same_vectors(one: FeatureStore, other: FeatureStore, layers: list[int]) -> bool:
    pairs = (
        (a, b)
        for split in one.shards
        for (_, ours), (_, theirs) in zip(one.read(split, layers), other.read(split, layers), strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    return all(torch.equal(a, b) for a, b in pairs)


def test_the_store_key_names_layers_the_vectors_key_does_not(tiny_corpus: Corpus, tiny_encoder: Encoder):
    every = store_of(tiny_corpus, tiny_encoder, Path("x"), None)
    assert every.key == every.vectors_key
    for same in ("0:", [5, 4, 3, 2, 1, 0], list(range(6))):
        assert store_of(tiny_corpus, tiny_encoder, Path("x"), same).key == every.key
    some = [store_of(tiny_corpus, tiny_encoder, Path("x"), layers) for layers in ([3, 4], [-3, 4], "3:5", [4, 3])]
    assert len({store.key for store in some}) == 1
    other = store_of(tiny_corpus, tiny_encoder, Path("x"), [3])
    assert len({every.key, some[0].key, other.key}) == 3
    assert {store.vectors_key for store in [every, *some, other]} == {every.key}
    shards = every.shards["train"]
    assert 3 * some[0].bytes_of(shards) == every.bytes_of(shards) == 6 * other.bytes_of(shards)


@pytest.mark.parametrize("layers", [[6], [-7], [1, 1], [], "7:", "x", 1.5, [True]])
def test_layers_that_are_not_are_refused(layers: Any, tiny_corpus: Corpus, tiny_encoder: Encoder):
    with pytest.raises(UserError, match=r"^features\.layers=.*\b0\b.*\b5\b.*-1\b.*-6\b"):
        store_of(tiny_corpus, tiny_encoder, Path("x"), layers)


def test_only_the_layers_named_are_on_disk(tiny_corpus: Corpus, tiny_encoder: Encoder, tmp_path: Path):
    store = made(tiny_corpus, tiny_encoder, tmp_path, [4, 1])
    files = list(store.directory.glob("*.safetensors"))
    assert len(files) == 3
    assert all(load_file(file).keys() == {"1", "4"} for file in files)
    manifest = json.loads((store.directory / MANIFEST).read_text())
    assert manifest["identity"]["layers"] == [1, 4]
    (entry,) = entries(tmp_path)
    assert "layers [1,4] of 16" in entry.line()


def test_an_encoder_that_cannot_be_stopped_runs_whole(
    tiny_corpus: Corpus, tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    every = made(tiny_corpus, tiny_encoder, tmp_path / "all", None)
    assert "cannot be stopped" not in capsys.readouterr().err
    honest = encoder_module._end_at

    def one_off(layer: int, *rest: Any) -> list[Any]:
        return honest(layer + 1, *rest)

    monkeypatch.setattr(encoder_module, "_end_at", one_off)
    some = made(tiny_corpus, tiny_encoder, tmp_path / "some", [0, 2])
    names(capsys.readouterr().err, "layer 2", "5 blocks")
    assert same_vectors(some, every, [0, 2])


@pytest.mark.usefixtures("short_epochs")
def test_a_run_is_the_same_run_whichever_store_it_reads(inputs: list[str], tmp_path: Path, typed):
    choice = ["layers.indices=[2,4]", "layers.combine=mix"]
    narrow = typed(*choice, "features.layers=[4,2]", "results_dir=narrow", *inputs)
    assert narrow.returncode == 0, narrow.stderr
    assert all(load_file(file).keys() == {"2", "4"} for file in (tmp_path / "cache").glob("*/*.safetensors"))
    every = typed(*choice, "results_dir=every", *inputs)
    assert every.returncode == 0, every.stderr
    assert len(list((tmp_path / "cache").glob("*/manifest.json"))) == 2
    records = [json.loads(next((tmp_path / name / "records").iterdir()).read_text()) for name in ("narrow", "every")]
    for part in ("key", "identity", "config", "features", "scores", "sha256", "best_epoch", "mix"):
        assert records[0][part] == records[1][part], part
    assert records[0]["features"]["key"] in {path.name for path in (tmp_path / "cache").iterdir()}
    record = next((tmp_path / "every/records").iterdir())
    written = record.stat().st_mtime_ns
    assert typed(*choice, "features.layers=[2,3,4]", "results_dir=every", *inputs).returncode == 0
    assert record.stat().st_mtime_ns == written, "the run was done already"
    assert typed("verify", "narrow").returncode == 0


def test_layers_missing_from_the_store_are_named(inputs: list[str], tmp_path: Path, typed):
    for command in ([], ["doctor"]):
        done = typed(*command, "layers=last", "features.layers=[1]", *inputs)
        told = done.stderr + done.stdout
        assert done.returncode == (1 if command == ["doctor"] else 2), told
        names(told, "features.layers=[1]", "layer 5", "'features.layers=[1,5]'", "features.layers=null")
    assert not list((tmp_path / "cache").glob("*/*.safetensors"))


def test_the_forecast_counts_the_layers_that_are_stored(inputs: list[str], typed, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    monkeypatch.setattr("probe.doctor.cost.why_not_writable", lambda _, needed: asked.append(needed))
    for layers in ("null", "[5]"):
        done = typed("doctor", "layers=last", f"features.layers={layers}", *inputs)
        assert "to extract: 1 store, 0.00 GB, about" in done.stdout, done.stdout + done.stderr
    assert asked[0] == 6 * asked[1] == 595 * 6 * 16 * 2
    done = typed("extract", "layers=last", "features.layers=[5]", *inputs)
    names(done.stdout, "595 words", "layers 5", "16 values")
