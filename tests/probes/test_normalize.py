"""What normalizing does to features, computed again with NumPy, and that a run without it stays the run it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.inputs import random_store
from support.records import PROBE

from probe.config import LayersConfig, ProbeConfig
from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed, bytes_needed, combine_stored, read_selection
from probe.probes.normalization import input_factor, normalization_of, restored_normalization
from probe.probes.selection import Selection, select
from probe.probes.tagger import Tagger
from probe.runs.identity import Layers, RunIdentity
from probe.system.files import key_of, to_jsonable
from probe.vectors.store import FeatureStore

HOW = ("train", "scale")
COMBINES = ("sum", "mean", "concat", "mix")
LAYERS = [4, 0, -1]
WIDTH = 16


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    """Layers that differ in scale and mean, with features that differ in both too, and one that never varies."""
    store = random_store(tmp_path / "store", {"train": 333, "dev": 40})
    shutil.rmtree(store.directory)
    store.directory.mkdir()
    draw = np.random.default_rng(0)
    for shard in (shard for shards in store.shards.values() for shard in shards):
        x = draw.normal(size=(6, shard.last - shard.first, WIDTH))
        x = x * (1 + np.arange(6))[:, None, None] * np.linspace(0.1, 2, WIDTH) + np.linspace(-3, 5, WIDTH)
        x += 0.5 * x[:1]  # layers are correlated
        x[:, :, 3] = 7.0
        store.write(shard, torch.from_numpy(x).half())
    return store


def layers_of(store: FeatureStore, split: str) -> np.ndarray:
    """(L, W, H) of the layers chosen, in float64."""
    indices = [4, 0, 5]
    return np.concatenate(
        [np.stack([np.asarray(t, np.float64) for t in ts]) for _, ts in store.read(split, indices)], 1
    )


def chosen(combine: str, how: str | None) -> Selection:
    return select(LayersConfig(LAYERS, combine, normalize=how), 5, WIDTH)


def divided(x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    return x / np.where(deviation > 0, deviation, 1)


def expected(how: str, combine: str, train: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the words x, (L, W, H), become: (W, H) of a sum or mean, (W, L * H) of a concat, (W, L, H) of a mix."""

    def combined(z: np.ndarray) -> np.ndarray:
        return z.sum(0) if combine == "sum" else z.mean(0)

    if how == "train":
        if combine in ("sum", "mean"):
            return divided(combined(x) - combined(train).mean(0), combined(train).std(0))
        z = divided(x - train.mean(1)[:, None], train.std(1)[:, None])
        return np.concatenate(z, 1) if combine == "concat" else z.swapaxes(0, 1)

    def alike(z: np.ndarray) -> np.ndarray:
        return np.stack([(a - b.mean(0)) / np.sqrt(b.var(0).mean()) for a, b in zip(z, train, strict=True)])

    def deviation(rows: np.ndarray) -> float:
        return float(np.sqrt(rows.var(0).mean()))

    if combine == "concat":
        return np.concatenate(alike(x), 1) / deviation(np.concatenate(alike(train), 1))
    if combine == "mix":  # at the weights that it starts from it is the mean
        return alike(x).swapaxes(0, 1) / deviation(alike(train).mean(0))
    return combined(alike(x)) / deviation(combined(alike(train)))


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("how", HOW)
def test_features_are_what_numpy_makes_of_them(store: FeatureStore, how: str, combine: str):
    selection = chosen(combine, how)
    normalization = normalization_of(store, selection)
    for split in ("train", "dev"):
        found = read_selection(store, split, selection, normalization=normalization)
        wanted = expected(how, combine, layers_of(store, "train"), layers_of(store, split))
        assert found.shape == wanted.shape
        assert np.allclose(found.double().numpy(), wanted, rtol=2e-3, atol=4e-3)  # a concat or a mix is in float16
        if combine in ("sum", "mean"):
            assert np.allclose(found.double().numpy(), wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("how", HOW)
def test_streamed_features_are_the_bits_of_those_in_memory(store: FeatureStore, how: str, combine: str):
    selection = chosen(combine, how)
    normalization = normalization_of(store, selection)
    held = read_selection(store, "train", selection, normalization=normalization)
    streamed = Streamed(store, "train", selection, normalization=normalization)
    some = torch.tensor([[0, 332], [50, 51]])
    assert torch.equal(streamed[some], held[some])
    assert torch.equal(streamed.between(40, 120), held[40:120])
    by_shard = [combine_stored(layers, selection, normalization) for _, layers in store.read("train", (4, 0, 5))]
    assert torch.equal(torch.cat(by_shard), held)
    assert bytes_needed(store, selection) == (333 + 40) * held[0].numel() * held.element_size()


@pytest.mark.parametrize("how", HOW)
def test_normalized_sum_and_mean_are_one_row(store: FeatureStore, how: str):
    rows = {}
    for combine in ("sum", "mean", "concat"):
        selection = chosen(combine, how)
        rows[combine] = read_selection(store, "train", selection, normalization=normalization_of(store, selection))
    assert torch.allclose(rows["sum"], rows["mean"], atol=1e-5)
    varying = (WIDTH - 1) / WIDTH if how == "train" else 1  # the feature that never varies stays 0
    for row in rows.values():
        assert row.double().var(0, unbiased=False).mean().item() == pytest.approx(varying, abs=2e-3)


def test_one_scale_for_each_layer_keeps_the_relative_variance_of_features(store: FeatureStore):
    selection = select(LayersConfig([2], "concat", normalize="scale"), 5, WIDTH)
    raw = np.concatenate([np.asarray(t[0], np.float64) for _, t in store.read("train", [2])])
    found = read_selection(store, "train", selection, normalization=normalization_of(store, selection)).double().numpy()
    assert np.allclose(found.var(0) / found.var(0).sum(), raw.var(0) / raw.var(0).sum(), atol=1e-4)
    assert np.allclose(found.mean(0), 0, atol=1e-3)


def test_without_normalizing_nothing_is_read_or_changed(store: FeatureStore, monkeypatch: pytest.MonkeyPatch):
    selection = chosen("sum", None)
    raw = read_selection(store, "train", selection)
    assert np.allclose(raw.double().numpy(), layers_of(store, "train").sum(0), rtol=1e-5, atol=1e-4)
    monkeypatch.setattr(FeatureStore, "read", None)
    assert normalization_of(store, selection) is None
    assert LayersConfig(LAYERS, "sum", normalize="none") == LayersConfig(LAYERS, "sum")


def test_a_run_without_normalizing_has_a_key_that_does_not_change():
    identity = RunIdentity("text", "spans", "features", Layers([1, 2], "sum"), PROBE, 3)
    stated = {
        "corpus": "text",
        "task": "spans",
        "features": "features",
        "layers": {"indices": [1, 2], "combine": "sum"},
        "probe": PROBE,
        "seed": 3,
        "version": 1,
    }
    assert identity.key == key_of(stated)
    assert identity.key == "91b33e0f20a599b8c47e2a590d45dac6e82aa61f7092bad88f8bdba9d87ebbc5"
    normalized = [replace(identity, layers=Layers([1, 2], "sum", how)) for how in HOW]
    assert len({one.key for one in (identity, *normalized)}) == 3


def test_records_state_only_a_normalization_that_there_is():
    assert to_jsonable(LayersConfig([1], "concat", "", "none")) == {"indices": [1], "combine": "concat", "name": ""}
    assert to_jsonable(LayersConfig([1], "concat", "", "scale"))["normalize"] == "scale"


def of_probe(num_layers: int, selection: Selection) -> Tagger:
    probe = ProbeConfig(num_layers, 4 * num_layers, 0.0, 0.01, 1, 1, 1, 1, 1.0, "float32")
    torch.manual_seed(0)
    return Tagger(probe, selection, ["O", "B-X"]).eval()


@pytest.mark.parametrize(("num_layers", "how", "factor"), [(1, "scale", 0.6 / 2**0.5), (1, None, 1), (0, "scale", 1)])
def test_an_lstm_reads_a_normalized_row_smaller_the_wider_it_is(num_layers: int, how: str | None, factor: float):
    one = of_probe(num_layers, Selection("row", (1, 2), "concat", 2 * WIDTH, how))
    plain = of_probe(num_layers, Selection("row", (1, 2), "concat", 2 * WIDTH))
    features = torch.randn(3, 2 * WIDTH)
    splits = (TaggedWords(given, [["O", "O", "O"]], {"O": 0}) for given in (features, features * factor))
    batch, smaller = (split.batch(torch.tensor([0])) for split in splits)
    assert torch.allclose(one(batch), plain(smaller))
    assert input_factor(2 * WIDTH, 4) == pytest.approx(0.6 / 2**0.5)


@pytest.mark.parametrize("how", HOW)
def test_kept_tensors_give_the_normalization_back(store: FeatureStore, how: str):
    selection = chosen("concat", how)
    normalization = normalization_of(store, selection)
    assert normalization is not None
    weights = {"classifier.bias": torch.zeros(2), **normalization.tensors}
    again = restored_normalization(selection, weights)
    assert again is not None
    assert list(weights) == ["classifier.bias"]
    layers = next(tensors for _, tensors in store.read("dev", selection.indices))
    assert all(torch.equal(a, b) for a, b in zip(normalization(layers), again(layers), strict=True))
    with pytest.raises(KeyError):
        restored_normalization(selection, weights)
