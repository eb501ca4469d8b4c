"""The whole way of a run on a GPU, on one that is made up (see support/cuda.py), against the same run on the CPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.cuda import StandIn, gpu
from support.inputs import data_config, encoder_config, features_config, make_bert, run_config, stored

from probe.config import Config, LayersConfig, ProbeConfig
from probe.data.corpus import Corpus
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.probes import finetune, schedule
from probe.probes.networks import BiLSTM
from probe.runs.run import run
from probe.settings import configs_of
from probe.system import bfloat16, provenance
from probe.system.files import to_jsonable
from probe.vectors import extraction, words
from probe.vectors.extraction import ensure_features
from probe.vectors.store import FeatureStore
from probe.vectors.words import Text, batches, pieces_at_once

GB = 2**30
# What must be waited for: what Python goes on with, once an epoch, a run or a prediction; and transformers, which looks
# at every mask whether it masks anything.
ONCE = {
    "losses",
    "on_train_epoch_end",
    "predict",
    "tags_of",
    "learned_mix",
    "train_tagger",
    "load_model",
    "fit",
    "read_selection",
    "_forward",
    "_try",
    "trial_texts",
}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with gpu(monkeypatch) as made:
        yield made


@pytest.fixture
def config(tiny_data: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """A run of a few updates of the tiny corpus and encoder, on a device."""
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 12)

    def made(device: str, combine: str = "concat", precision: str = "float32", **features: object) -> Config:
        return run_config(
            data=data_config(tiny_data, name="tiny"),
            encoder=encoder_config(tiny_bert),
            features=features_config(tmp_path / device, **features),
            layers=LayersConfig([0, 2, 5], combine),
            probe=ProbeConfig(1, 16, 0.2, 0.05, 1, 8, 2, 8, 1.0, precision),
            results_dir=str(tmp_path / device / "results"),
            device=device,
        )

    return made


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize(("placement", "combine"), [("device", "concat"), ("memory", "mix"), ("stream", "sum")])
def test_a_run_on_a_gpu_equals_one_on_the_cpu(
    config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, placement: str, combine: str
):
    """The loss but for its last bit: it is summed over padding too, which counts nothing."""
    here = run(config("cpu", combine), log=lambda _: None)
    with gpu(monkeypatch) as stand_in:
        there = run(config("cuda", combine, placement=placement), log=lambda _: None)
    assert [epoch.loss for epoch in there.curve] == pytest.approx([epoch.loss for epoch in here.curve], rel=1e-6)
    assert [epoch.dev_loss for epoch in there.curve] == pytest.approx([e.dev_loss for e in here.curve], rel=1e-6)
    assert there.scores == here.scores
    assert there.mix == here.mix
    assert there.scores.dev.headline > 0 or combine != "mix", "or the test shows little"
    hardware = there.hardware
    assert (there.features.placement, hardware.device, hardware.deterministic) == (placement, "cuda", True)
    assert hardware.device_name == "Stand-in GPU"
    waited = {(what, where.rpartition(".")[2]) for what, where in stand_in.waits}
    assert not {(what, where) for what, where in waited if where not in ONCE}


def test_waits_in_training_do_not_grow_with_updates(
    config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What Lightning, the clipping or Adam would wait for at each step is told of as `train_tagger`'s."""
    waits = []
    for updates in (8, 24):
        monkeypatch.setattr(schedule, "EPOCH_UPDATES", updates)
        with gpu(monkeypatch) as stand_in:
            cfg = replace(config("cuda", placement="device"), results_dir=str(tmp_path / f"of {updates}"))
            assert len(run(cfg, log=lambda _: None).curve) == 2
        of_training = [where.rpartition(".")[2] for _, where in stand_in.waits]
        waits.append(Counter(where for where in of_training if where in ("train_tagger", "losses", "fit")))
    assert waits[0] == waits[1]
    assert waits[0]["train_tagger"]


def test_an_update_of_fine_tuning_waits_for_what_transformers_asks_alone(
    config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its losses are looked at once in an epoch, and for each line of progress."""
    monkeypatch.setattr(finetune, "LOG_EVERY_S", math.inf)  # else a slow machine looks more often
    waits = []
    probe = replace(configs_of(["probe=finetune"])[0][0].probe, max_epochs=1, precision="float32")
    for batch_size in (30, 6):
        with gpu(monkeypatch) as stand_in:
            out, cfg = str(tmp_path / f"of {batch_size}"), config("cuda")
            cfg = replace(cfg, features=replace(cfg.features, batch_pieces="auto"))
            run(
                replace(cfg, probe=replace(probe, batch_size=batch_size), results_dir=out),
                log=lambda _: None,
            )
        waits.append(Counter(where.rpartition(".")[2] for _, where in stand_in.waits))
    few, many = waits
    assert many.pop("_forward") - few.pop("_forward") == 60 // 6 - 60 // 30, "one for each batch of train"
    assert few == many
    assert not {"update", "forward"} & set(few)


def test_the_stand_in_sees_what_waits_and_refuses_two_devices(stand_in: StandIn):
    there = torch.arange(6.0).to("cuda")
    assert [what for what, _ in stand_in.waits] == ["copy to the GPU"]
    there[there > 2]
    assert there.sum().item() == 15
    assert [what for what, _ in stand_in.waits[1:]] == ["index", "_local_scalar_dense"]
    here = torch.ones(6)
    with pytest.raises(RuntimeError, match="same device"):
        there + here
    pinned = here.pin_memory()
    pinned.to("cuda", non_blocking=True)
    into = torch.empty_like(there, device="cpu", pin_memory=True).copy_(there, non_blocking=True)
    assert into.isnan().all(), "it has not arrived"
    torch.cuda.Event().synchronize()
    assert into.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(stand_in.waits) == 3
    pinned.to("cuda", non_blocking=True)
    pinned.zero_()
    with pytest.raises(AssertionError, match="changed while"):
        torch.cuda.Event().synchronize()


@pytest.mark.usefixtures("short_epochs")
def test_a_gpu_trains_a_bfloat16_lstm_without_cudnn(config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: False)
    here = run(config("cpu", precision="bfloat16"), log=lambda _: None)
    seen: list[bool] = []
    forward = BiLSTM.forward

    def watched(self: BiLSTM, *inputs: torch.Tensor) -> torch.Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return forward(self, *inputs)

    monkeypatch.setattr(BiLSTM, "forward", watched)
    with gpu(monkeypatch):
        there = run(config("cuda", precision="bfloat16"), log=lambda _: None)
    assert there.key == here.key
    assert there.hardware.bfloat16 == here.hardware.bfloat16 == "pytorch"
    assert set(seen) == {False}


def test_a_record_keeps_the_versions_of_cuda_cudnn_and_the_driver(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92000)
    for text, expected in {
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC": "535.104.05",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\nGCC": "580.95.05",
        "something else": None,
    }.items():
        (tmp_path / "version").write_text(text)
        monkeypatch.setattr(provenance, "DRIVER", tmp_path / "version")
        kept = to_jsonable(provenance.hardware("cuda", 1))
        assert (kept["cuda"], kept["cudnn"], kept.get("driver")) == ("13.0", "92000", expected)
    assert not to_jsonable(provenance.hardware("cpu", 1)).keys() & {"cuda", "cudnn", "driver"}


@pytest.mark.parametrize("subword", ["first", "mean"])
def test_shards_from_a_gpu_hold_the_same_bits(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subword: str
):
    """Cut into batches as on a CPU; the shards are many and come late."""
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 16)
    monkeypatch.setitem(words.BATCH_COST, "cuda", words.BATCH_COST["cpu"])
    monkeypatch.setitem(extraction.TOGETHER, "cuda", 1)
    here = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cpu", subword=subword), "cpu")
    with gpu(monkeypatch) as stand_in:
        there = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "gpu", subword=subword), "cuda")
    assert len(here.shards["train"]) > 2 * extraction.WRITERS["cuda"]
    for shard in (shard for shards in here.shards.values() for shard in shards):
        assert here.path(shard).read_bytes() == there.path(shard).read_bytes()
    assert {where.rpartition(".")[2] for _, where in stand_in.waits} <= {
        "_forward",
        "load_model",
        "_try",
        "trial_texts",
    }


def test_shards_computed_together_equal_those_computed_alone(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 40)
    cfg = features_config(tmp_path / "gpu", batch_pieces=16384, dtype="float32")
    here = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cpu", dtype="float32"), "cpu")
    seen: list[int] = []
    honest = extraction.states_of

    def counted(*arguments):
        seen.append(len(arguments[0]))
        return honest(*arguments)

    monkeypatch.setattr(extraction, "states_of", counted)
    with gpu(monkeypatch):
        there = ensure_features(tiny_corpus, tiny_encoder, cfg, "cuda")
        made, num_batches = {path: path.read_bytes() for path in map(there.path, there.shards["train"])}, len(seen)
        lost = there.path(there.shards["train"][5])
        lost.unlink()
        ensure_features(tiny_corpus, tiny_encoder, cfg, "cuda")
    for split in here.shards:
        torch.testing.assert_close(stored(there, split), stored(here, split), atol=1e-5, rtol=0)
    assert {path: path.read_bytes() for path in made} == made
    assert num_batches == sum(-(-len(shards) // 4) for shards in there.shards.values())
    assert len(seen) == num_batches + 1, "its neighbours with it"


def test_a_gpu_takes_few_large_batches(
    minilm: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cfg = features_config(tmp_path)
    text = Text(tiny_corpus, "train", minilm, cfg)
    (shard,) = FeatureStore.of(tiny_corpus, minilm, cfg).shards["train"]
    assert pieces_at_once("auto", minilm, "cpu") == 1024
    assert pieces_at_once(7, minilm, "cpu") == pieces_at_once(7, minilm, "cuda") == 7
    small, large = (batches(text, shard, minilm, most, device) for device, most in (("cpu", 1024), ("cuda", 16384)))
    assert len(large) == 1 < len(small)
    windows = sorted(text.windows_of(shard))
    assert sorted(window for batch in small for window in batch) == windows == sorted(large[0])


def test_auto_batches_are_powers_of_two_by_gpu_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = open_encoder(encoder_config(make_bert(tmp_path, num_layers=5, limit=24)), tmp_path)
    taken = []
    for free in (0, 300 * 2**20, 600 * 2**20, 80 * GB):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 80 * GB))
        taken.append(pieces_at_once("auto", encoder, "cuda"))
    assert taken[0] == 1024
    assert taken[-1] == 16384
    assert taken == sorted(taken)
    assert all(number.bit_count() == 1 for number in taken)
