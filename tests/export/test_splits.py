"""`probe.features`: rows as NumPy understands them, read when they are asked for."""

from __future__ import annotations

import doctest
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from support.commands import flip_a_bit

import probe
from probe.config import UserError
from probe.encoders.encoder import Encoder
from probe.export.export import Splits
from probe.vectors.store import FeatureStore, Shard


@pytest.fixture
def settings(inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 40)
    return [*inputs, f"features.cache_dir={tmp_path / 'cache'}"]


@pytest.fixture
def splits(settings: list[str]) -> Splits:
    return probe.features(*settings, "layers=concat_last_four")


def expected(cache: Path, split: str, layers: str) -> np.ndarray:
    shards = [load_file(path) for path in sorted(cache.glob(f"*/{split}-*.safetensors"))]
    return torch.cat([torch.cat([shard[k] for k in layers], 1) for shard in shards]).numpy()


def test_rows_words_and_tags_go_together(splits: Splits, tiny_corpus, tmp_path: Path):
    for name, split in splits._asdict().items():
        text = tiny_corpus.splits[name]
        assert [split.words[rows] for rows in split.sentences] == text.words
        assert [split.tags[rows] for rows in split.sentences] == text.tags
        assert split.documents == [document + 1 for document in text.documents]
        assert len(split.words) == len(split.tags) == len(split.vectors)
        assert np.array_equal(np.asarray(split.vectors), expected(tmp_path / "cache", name, "2345"))


def test_rows_are_chosen_as_numpy_chooses_them(splits: Splits, tmp_path: Path):
    vectors, array = splits.train.vectors, expected(tmp_path / "cache", "train", "2345")
    n, choose = len(array), np.random.default_rng(0)
    assert vectors.shape == array.shape
    assert vectors.dtype == torch.float16
    rows: list[Any] = [
        0, -1, n - 1, slice(None), slice(35, 90), slice(-10, None), slice(90, 35), slice(None, None, -7),
        slice(3, 200, 11), [5, 5, -2, 300], choose.integers(-n, n, 50), choose.integers(0, n, (3, 4)),
        choose.random(n) < 0.2,
    ]  # fmt: skip
    for wanted in rows:
        chosen = vectors[wanted]
        assert isinstance(chosen, torch.Tensor)
        assert chosen.shape == array[wanted].shape, wanted
        assert np.array_equal(chosen.numpy(), array[wanted]), wanted
    assert vectors[[]].shape == (0, 64)
    for within in ((slice(8, 60), 3), ([2, 77], slice(4, 9)), (5, 6), (slice(None), [1, 0])):
        assert np.array_equal(vectors[within].numpy(), array[within])
    assert torch.equal(vectors[torch.tensor([3, 1])], vectors[[3, 1]])
    for outside in (n, -n - 1, [0, n], np.array([True, False]), 1.5, "x"):
        with pytest.raises(IndexError):
            vectors[outside]  # type: ignore[index]


def test_only_the_shards_that_are_asked_for_are_read(splits: Splits, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    honest = FeatureStore.read_shard

    def count(self: FeatureStore, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        read.append(shard.number)
        return honest(self, shard, layers)

    monkeypatch.setattr(FeatureStore, "read_shard", count)
    assert splits.train.vectors.shape[1] == 64
    splits.train.vectors[0]
    splits.train.vectors[1:5]
    assert read == [0]
    splits.train.vectors[-1]
    assert read[1:] == [len(splits.train.vectors._streamed._shards) - 1]


def test_damage_is_mended_when_it_is_met(splits: Splits, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before = splits.train.vectors[:]
    splits.train.vectors.close()
    flip_a_bit(sorted((tmp_path / "cache").glob("*/train-*.safetensors"))[1])
    assert torch.equal(splits.train.vectors[:], before)
    assert "Extracting it again" in capsys.readouterr().out


def test_layers_are_combined_as_the_row_says_or_kept_apart(settings: list[str], tmp_path: Path):
    apart = probe.features(*settings, "layers.indices=[5,0]", "layers.combine=mean", each=True).dev.vectors
    assert apart.shape[1:] == (2, 16)
    assert torch.equal(apart[:, 1], torch.from_numpy(expected(tmp_path / "cache", "dev", "0")))
    mean = probe.features(*settings, "layers.indices=[5,0]", "layers.combine=mean").dev.vectors
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean[:], apart[:].float().mean(1))


def test_bfloat16_is_float32_in_numpy_and_itself_in_torch(settings: list[str]):
    vectors = probe.features(*settings, "layers=last", "features.dtype=bfloat16").dev.vectors
    assert vectors[:2].dtype == torch.bfloat16
    assert np.asarray(vectors).dtype == np.float32
    assert np.array_equal(np.asarray(vectors), vectors[:].float().numpy())
    with pytest.raises(ValueError, match="copy"):
        np.array(vectors, copy=False)


def test_scikit_learn_takes_the_vectors_as_they_are(splits: Splits, tmp_path: Path):
    model = LogisticRegression(max_iter=300).fit(splits.train.vectors, splits.train.tags)
    train, test = (expected(tmp_path / "cache", name, "2345").astype(np.float64) for name in ("train", "test"))
    by_hand = LogisticRegression(max_iter=300).fit(train, splits.train.tags)
    assert model.predict(splits.test.vectors).tolist() == by_hand.predict(test).tolist()


def test_settings_that_cannot_be_are_refused(settings: list[str]):
    with pytest.raises(UserError, match=r"^layers=nope\b.*concat_last_four"):
        probe.features("layers=nope")
    with pytest.raises(UserError, match=r"encoder\b.*\blayers\b"):
        probe.features("-m", *settings, "layers=last,sum_all")
    with pytest.raises(UserError, match=r"layers=majority_tag.*layers=last"):  # nor is nothing a vector of zeros
        probe.features(*settings, "layers=majority_tag")
    with pytest.raises(UserError, match="probe=finetune"):
        probe.features(*(one for one in settings if not one.startswith("probe.")), "layers=last", "probe=finetune")
    with pytest.raises(UserError, match="encoder=minilm_l6"):
        probe.features(settings)  # type: ignore[arg-type]


def test_text_and_encoder_that_changed_between_two_calls_are_read_anew(
    settings: list[str], tiny_data: Path, tiny_bert: Path, tmp_path: Path
):
    copied = [f"encoder.path={shutil.copytree(tiny_bert, tmp_path / 'encoder')}"]
    before = probe.features(*settings, *copied, "layers=last").dev
    (tiny_data / "dev.conll").write_text("acme B-ORG\nwon O\n\n" + (tiny_data / "dev.conll").read_text())
    after = probe.features(*settings, *copied, "layers=last").dev
    assert after.words == ["acme", "won", *before.words]
    weights = load_file(tmp_path / "encoder/model.safetensors")
    save_file({name: 1.3 * value for name, value in weights.items()}, tmp_path / "encoder/model.safetensors")
    scaled = probe.features(*settings, *copied, "layers=last").dev
    assert scaled.words == after.words
    assert not torch.allclose(scaled.vectors[:], after.vectors[:], atol=1e-2)


@pytest.mark.slow
@pytest.mark.real
def test_the_docstring_can_be_run(minilm: Encoder, shared: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(shared / "features"))
    (example,) = doctest.DocTestFinder().find(probe.features, "features", globs={})
    assert len(example.examples) >= 5
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.failures == 0
