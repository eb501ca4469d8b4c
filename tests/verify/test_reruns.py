"""Committed runs of the real encoder, made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probe.config import UserError
from probe.encoders.encoder import Encoder
from probe.runs.config_from_record import config_from_record
from probe.runs.records import load_record
from probe.runs.run import run
from probe.settings import config_of
from probe.verify.reruns import environment

COMMITTED = Path(__file__).parents[2] / "results/demo-minilm/records"
EPOCHS = 4
LOSS, POINTS = 0.02, 0.03  # how far another machine may be off by then


@pytest.mark.parametrize("name", ["cache_dir", "placement", "layers", "nonsense"])
def test_a_record_that_says_where_features_are_read_or_what_is_no_setting_is_refused(name: str):
    record = load_record(next(COMMITTED.glob("last-seed1-*.json")))
    settings = replace(record.config, features=record.config.features | {name: "x"})
    with pytest.raises(UserError, match=rf"last seed 1 .*features\.{name}"):
        config_from_record(replace(record, config=settings), config_of)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("run_name", ["second_to_last-seed1"])
def test_a_committed_run_begins_again_as_recorded(run_name: str, minilm: Encoder, shared: Path, tmp_path: Path):
    record = load_record(next(COMMITTED.glob(f"{run_name}-*.json")))
    cfg = config_from_record(record, config_of, ["device=cpu", f"features.cache_dir={shared / 'features'}"])
    short = replace(cfg, results_dir=str(tmp_path), probe=replace(cfg.probe, max_epochs=EPOCHS))
    again = run(short, log=lambda _: None)
    assert again.features.key == record.features.key
    assert again.parameters == record.parameters
    assert len(again.curve) == EPOCHS
    if environment(again) == environment(record):
        assert [(epoch.loss, epoch.dev) for epoch in again.curve] == [
            (epoch.loss, epoch.dev) for epoch in record.curve[:EPOCHS]
        ]
    for number, (epoch, recorded) in enumerate(zip(again.curve, record.curve, strict=False), 1):
        assert epoch.loss == pytest.approx(recorded.loss, rel=LOSS), number
        assert epoch.dev == pytest.approx(recorded.dev, abs=POINTS), number
