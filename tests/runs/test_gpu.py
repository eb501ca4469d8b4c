"""What must hold on a GPU, on a real one (pytest -m gpu) and on the stand-in (support/cuda.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cuda import gpu
from support.inputs import data_config, encoder_config, ensure_features, features_config, make_bert, run_config, stored

from probe.config import Config, LayersConfig, ProbeConfig
from probe.data.corpus import Corpus
from probe.data.tasks.spans import span_f1
from probe.encoders.encoder import Encoder, open_encoder
from probe.probes import schedule
from probe.probes.finetune import FineTuned, TaggedText, fine_tune
from probe.probes.networks import BiLSTM
from probe.probes.training import classifier_labels, make_deterministic
from probe.runs.records import RunRecord
from probe.runs.run import run
from probe.settings import configs_of
from probe.system import bfloat16
from probe.system.machine import resolve_device
from probe.vectors import extraction
from probe.vectors.words import Text


def _nothing(_: str) -> None:
    pass


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A GPU: the stand-in, on which the tests themselves are tested, or a real one."""
    if request.param == "stand-in":
        with gpu(monkeypatch):
            yield request.param
        return
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    yield request.param
    torch.use_deterministic_algorithms(False)


def config(tiny_data: Path, tiny_bert: Path, folder: Path, device: str, **changes: Any) -> Config:
    probe = ProbeConfig(1, 16, 0.2, 0.05, 1, 8, 2, 8, 1.0, "float32")
    features = {name: changes.pop(name) for name in ("placement", "precision", "dtype") if name in changes}
    parts: dict[str, Any] = {
        "data": data_config(tiny_data, name="tiny"),
        "encoder": encoder_config(tiny_bert),
        "features": features_config(folder / "store", **features),
        "layers": LayersConfig([0, 2, 5], "concat"),
        "probe": probe,
        "results_dir": str(folder / "results"),
        "device": device,
    }
    return run_config(**{**parts, **changes})


def facts(record: RunRecord) -> tuple:
    return record.scores, record.mix, [replace(epoch, train_s=0.0) for epoch in record.curve], record.sha256.predictions


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "combine"), [("device", "concat"), ("memory", "mix"), ("stream", "sum")])
def test_the_same_run_twice_has_the_same_bits_wherever_its_features_lie(
    card: str,
    tiny_data: Path,
    tiny_bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    placement: str,
    combine: str,
):
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 12)
    layers = LayersConfig([0, 2, 5], combine)
    made = [
        run(config(tiny_data, tiny_bert, tmp_path / name, "cuda", placement=where, layers=layers), log=_nothing)
        for name, where in (("one", placement), ("two", placement), ("three", "device"))
    ]
    assert facts(made[0]) == facts(made[1]) == facts(made[2])
    assert made[0].features.placement == placement
    assert (made[0].hardware.device, made[0].hardware.deterministic) == ("cuda", True)


def test_without_dropout_losses_are_those_of_the_cpu(
    card: str, tiny_data: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Dropout draws other numbers on a GPU. Few updates, since differences by rounding grow with training."""
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 4)
    probe = ProbeConfig(1, 16, 0.0, 0.01, 1, 8, 1, 8, 1.0, "float32")
    here, there = (
        run(config(tiny_data, tiny_bert, tmp_path / device, device, probe=probe), log=_nothing)
        for device in ("cpu", "cuda")
    )
    assert [epoch.loss for epoch in there.curve] == pytest.approx([epoch.loss for epoch in here.curve], rel=1e-3)
    assert [epoch.dev_loss for epoch in there.curve] == pytest.approx([e.dev_loss for e in here.curve], rel=1e-3)


@pytest.mark.usefixtures("short_epochs")
def test_a_gpu_trains_a_bfloat16_lstm_without_cudnn(
    tiny_data: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: False)
    probe = ProbeConfig(1, 16, 0.2, 0.05, 1, 8, 2, 8, 1.0, "bfloat16")
    here = run(config(tiny_data, tiny_bert, tmp_path / "here", "cpu", probe=probe), log=_nothing)
    seen: list[bool] = []
    forward = BiLSTM.forward

    def watched(self: BiLSTM, *inputs: torch.Tensor) -> torch.Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return forward(self, *inputs)

    monkeypatch.setattr(BiLSTM, "forward", watched)
    with gpu(monkeypatch):
        there = run(config(tiny_data, tiny_bert, tmp_path / "there", "cuda", probe=probe), log=_nothing)
    assert there.key == here.key
    assert there.hardware.bfloat16 == here.hardware.bfloat16 == "pytorch"
    assert set(seen) == {False}


@pytest.mark.parametrize("subword", ["first", "mean"])
def test_features_are_those_of_the_cpu_but_for_rounding(
    card: str, tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, subword: str
):
    resolve_device("cuda")
    made = [
        stored(ensure_features(tiny_corpus, tiny_encoder, cfg, device), "train")
        for device, precision in (("cpu", "float32"), ("cuda", "float32"), ("cuda", "bfloat16"))
        for cfg in [
            features_config(tmp_path / (device + precision), subword=subword, dtype="float32", precision=precision)
        ]
    ]
    here, there, rough = made
    torch.testing.assert_close(there, here, atol=1e-4, rtol=1e-4)
    assert 0 < float((rough - here).norm() / here.norm()) < 0.05


def test_a_shard_that_is_made_again_has_the_same_bits(
    card: str, tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 40)
    resolve_device("cuda")
    cfg = features_config(tmp_path)
    store = ensure_features(tiny_corpus, tiny_encoder, cfg, "cuda")
    assert len(store.shards["train"]) > extraction.TOGETHER["cuda"]
    path = store.path(store.shards["train"][2])
    before = path.read_bytes()
    path.unlink()
    ensure_features(tiny_corpus, tiny_encoder, cfg, "cuda")
    assert path.read_bytes() == before


def tuned(corpus: Corpus, encoder: Encoder, folder: Path, device: str, subword: str) -> FineTuned:
    """An encoder fine-tuned on the tiny corpus for two epochs, with no dropout in its head."""
    resolve_device(device)
    make_deterministic(device)
    folder.mkdir()
    cfg = configs_of(["probe=finetune", "seed=1", f"features.subword={subword}"])[0][0]
    probe = replace(cfg.probe, max_epochs=2, batch_size=16, dropout=0.0, learning_rate=1e-3, precision="float32")
    labels, label_ids = classifier_labels(corpus.splits["train"].tags)
    features = features_config(folder, subword=subword)
    data = {
        name: TaggedText(Text(corpus, name, encoder, features), split.tags, label_ids)
        for name, split in corpus.splits.items()
    }
    texts, kept = (data["train"], data["dev"]), folder / "kept.pt"
    return fine_tune(replace(cfg, probe=probe), *texts, labels, span_f1, device, kept, "here", _nothing)


@pytest.fixture
def without_dropout(tmp_path: Path) -> Encoder:
    folder = tmp_path / "encoder"
    folder.mkdir()
    make_bert(folder, num_layers=2, limit=24)
    settings = json.loads((folder / "config.json").read_text())
    zero = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps({**settings, **zero}))
    return open_encoder(encoder_config(folder), tmp_path)


@pytest.mark.parametrize("subword", ["first", "mean"])
def test_fine_tuning_gives_what_it_gives_on_the_cpu_and_the_same_bits_twice(
    card: str, without_dropout: Encoder, tiny_corpus: Corpus, tmp_path: Path, subword: str
):
    here, there, again = (
        tuned(tiny_corpus, without_dropout, tmp_path / name, device, subword)
        for name, device in (("here", "cpu"), ("there", "cuda"), ("again", "cuda"))
    )
    for name in ("loss", "dev_loss"):
        ours = [point[name] for point in here.progress.curve]
        assert [point[name] for point in there.progress.curve] == pytest.approx(ours, rel=0.02)
    assert [{**point, "train_s": 0} for point in again.progress.curve] == [
        {**point, "train_s": 0} for point in there.progress.curve
    ]
