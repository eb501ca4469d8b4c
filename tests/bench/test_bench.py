"""`probe bench` measures the depths that rows need, and the table says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.records import make_record

from probe.bench.bench import Bench, bundled_text, measure, read_bench
from probe.config import Config, UserError
from probe.encoders.checkpoint import Encoder
from probe.features import depth
from probe.runs.identity import RecordedCondition
from probe.runs.records import RecordedEncoder, RunRecord
from probe.settings import configs_of
from probe.system.files import to_jsonable
from probe.tables.formats import render
from probe.tables.recommendation import recommend
from probe.tables.rows import build_rows

SENTENCES = [(2, 2, 2), (1, 1, 1)] * 5


def made(folder: Path, encoder: Encoder) -> Path:
    known = RecordedEncoder("tiny", "folder x", encoder.fingerprint, True, 5, 16)
    for seed in range(1, 6):
        make_record(folder, "last", seed, 0.80 + seed / 100, 0.75, sentences=SENTENCES, encoder=known)
        make_record(folder, "layer_2", seed, 0.79 + seed / 100, 0.74, (2,), sentences=SENTENCES, encoder=known)
    make_record(
        folder, "layer_4", 1, 0.5, 0.5, indices=(4,), condition=RecordedCondition(["control"], base={"features": "x"})
    )
    return folder


def test_each_depth_is_measured_once_and_stands_in_the_recommendation(
    tmp_path: Path, inputs: list[str], monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder
):
    entered: list[int] = []
    whole = depth.stop_at

    def counted(deepest: int, *given):
        entered.append(deepest)
        return whole(deepest, *given)

    monkeypatch.setattr(depth, "stop_at", counted)
    cfg = configs_of([*inputs, f"features.cache_dir={tmp_path / 'cache'}"])[0][0]

    def config_of(_: RunRecord) -> Config:
        return cfg

    results = made(tmp_path / "results", tiny_encoder)
    before = recommend(build_rows(results, margin=5)).as_text()
    (bench,) = measure(results, config_of, log=lambda _: None, words=200)
    assert list(bench.words_per_second) == ["2", "5"], "what a control reads is nobody's use"
    assert set(entered) == {2, 5}
    assert all(speed > 0 for speed in bench.words_per_second.values())
    assert read_bench(results) == {"features-sentence-a": bench}
    rows = build_rows(results, margin=5)
    after = recommend(rows)
    assert after.use is not None
    assert after.use.row == "layer_2"
    assert after.use.words_per_second == bench.words_per_second["2"]
    assert f"{bench.words_per_second['2']:,}" in after.as_text()
    assert bench.machine in after.as_text()
    assert f"{bench.words_per_second['5']:,}" in render(rows, "text", "row,words_s")
    assert bench.machine not in before
    assert (
        next(row for row in json.loads(render(rows, "json")) if row["row"] == "last")["cost"]["measured_on"]
        == bench.machine
    )


def test_what_was_measured_for_other_features_stays(tmp_path: Path, inputs: list[str], tiny_encoder: Encoder):
    results = made(tmp_path / "results", tiny_encoder)
    other = Bench("other", "x", "cpu", "y", 1, {}, 1, 1, {"3": 5}, "then")
    (results / "bench.json").write_text(json.dumps([to_jsonable(other)]))
    cfg = configs_of([*inputs, f"features.cache_dir={tmp_path / 'cache'}"])[0][0]
    measure(results, lambda _: cfg, log=lambda _: None, words=20, rounds=1)
    make_record(results, "last", 1, 0.8, 0.7, weights="of another")
    with pytest.raises(UserError, match="last seed 1.*some/encoder"):
        measure(results, lambda _: cfg, log=lambda _: None, words=20, rounds=1)
    assert read_bench(results)["other"] == other
    assert len(read_bench(results)) == 2


def test_the_text_is_whole_documents():
    dev = bundled_text().splits["dev"]
    assert 2000 <= dev.num_words < 3000
    assert dev.documents is not None
    assert len(dev.documents) == len(dev.words) == len(dev.tags)
