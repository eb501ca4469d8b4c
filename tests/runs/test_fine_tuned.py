"""Runs that train the encoder itself: a record like any other, no store, the ceiling of the tables it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.inputs import data_config, encoder_config, features_config, run_config

from probe.checks.results import check_files
from probe.config import Config, LayersConfig, ProbeConfig
from probe.reporting.formats import render, write_tables
from probe.reporting.row import CEILING
from probe.reporting.rows import build_rows
from probe.runs.plan import prepare_results
from probe.runs.run import run

LINEAR = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 2, 2, 1.0, "float32")
TUNED = ProbeConfig(0, 0, 0.0, 0.01, 1.0, 4, 6, 1, 1.0, "auto", train_encoder=True)
Make = Callable[..., Config]


@pytest.fixture
def make(tiny_bert: Path, tiny_data: Path, tmp_path: Path) -> Make:
    """Settings of a run on the tiny encoder and corpus."""

    def config(probe: ProbeConfig = TUNED, **changes: Any) -> Config:
        parts = {
            "data": data_config(tiny_data),
            "encoder": encoder_config(tiny_bert),
            "features": features_config(tmp_path / "cache", batch_pieces="auto"),
            "layers": LayersConfig([1], "concat"),
            "probe": probe,
            "seed": 1,
            "results_dir": str(tmp_path / "out"),
        }
        prepare_results(tmp_path / "out")
        return run_config(**{**parts, **changes})

    return config


def quiet(_: str) -> None:
    pass


def test_a_fine_tuned_run_is_a_record_that_is_verified_and_reads_and_writes_no_store(make: Make, tmp_path: Path):
    record = run(make(), quiet)
    assert not list((tmp_path / "cache").glob("*/*.safetensors")), "no features"
    assert (record.row, record.layers.indices, record.features.placement, record.features.bytes_read) == (
        "last",
        [5],
        "none",
        0,
    )
    assert record.outcome == "converged"
    assert record.hardware.threads == 1
    assert not list((tmp_path / "out/logs").iterdir()), "what training would have gone on from"
    write_tables(tmp_path / "out", build_rows(tmp_path / "out"))
    assert [check.line() for check in check_files(tmp_path / "out", tmp_path / "cache") if check.ok is False] == []
    assert run(make(), quiet) == record, "done already"


def test_its_row_is_the_ceiling_of_every_table_of_frozen_rows_on_the_same_text(make: Make, tmp_path: Path):
    for probe in (LINEAR, replace(LINEAR, learning_rate=0.01), TUNED, replace(TUNED, learning_rate=0.02)):
        run(make(probe), quiet)
    rows = build_rows(tmp_path / "out")
    groups = {row.group: [other for other in rows if other.group == row.group] for row in rows}
    assert len(groups) == 2
    for group in groups.values():
        assert [row.name for row in group] == ["layer_1", "last", "last"]
        assert [row.place == CEILING for row in group] == [False, True, True]
        assert [row.treatment for row in group[1:]] == [
            "fine-tuned (learning_rate 0.01)",
            "fine-tuned (learning_rate 0.02)",
        ]
    assert "linear probe" in render(rows, "text")
