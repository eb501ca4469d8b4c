"""The whole way of a run on a GPU, on one that is made up (see support/cuda.py), against the same run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cuda import StandIn, gpu
from support.inputs import data_config, encoder_config, features_config

from probe.config import Config, LayersConfig, ProbeConfig
from probe.runs.records import RunRecord
from probe.runs.run import run


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with gpu(monkeypatch) as made:
        yield made


@pytest.fixture
def config(tiny_data: Path, tiny_bert: Path, tmp_path: Path):
    """A run of the tiny corpus and encoder; what is not named as in the other runs."""

    def made(device: str, combine: str = "concat", precision: str = "float32", **features: object) -> Config:
        return Config(
            data_config(tiny_data, name="tiny"),
            encoder_config(tiny_bert),
            features_config(tmp_path / device, **features),
            LayersConfig([0, 2, 5], combine),
            ProbeConfig(2, 8, 0.2, 0.01, 1, 8, 2, 8, 1.0, precision),
            1,
            str(tmp_path / device / "results"),
            1,
            device,
        )

    return made


def losses(record: RunRecord) -> list[float]:
    return [epoch.loss for epoch in record.curve]


def ran(cfg: Config) -> RunRecord:
    return run(cfg, tell=lambda _: None)


@pytest.mark.parametrize(("placement", "combine"), [("device", "concat"), ("memory", "mix"), ("stream", "sum")])
def test_a_run_on_a_gpu_gives_what_it_gives_on_the_cpu(
    config, monkeypatch: pytest.MonkeyPatch, placement: str, combine: str
):
    here = ran(config("cpu", combine))
    with gpu(monkeypatch):
        there = ran(config("cuda", combine, placement=placement))
    assert losses(there) == losses(here)
    assert there.scores == here.scores
    assert there.mix == here.mix
    assert (there.features.placement, there.hardware.device) == (placement, "cuda")
    assert there.hardware.device_name == "Stand-in GPU"
    assert there.hardware.deterministic
