"""Runs that differ in their encoder alone stand in one table: one statistic, one recommendation, one kind of cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import TINY
from support.inputs import make_bert, overrides
from support.records import expect, make_record

from probe.runs.records import RecordedEncoder, RunRecord
from probe.runs.samples import run_counts, samples_of
from probe.runs.sweep_plan import write_expected
from probe.scoring.compare import Comparison
from probe.tables.columns import choose_columns
from probe.tables.figures import pictures
from probe.tables.formats import render
from probe.tables.recommendation import recommend
from probe.tables.row import tables_of
from probe.tables.rows import build_rows
from probe.verify.checks import check_table

SMALL = RecordedEncoder("our/small", "folder x", {}, True, 2, 8)
LARGE = RecordedEncoder("their/large", "folder y", {}, False, 12, 768)
SENTENCES = [(3, 3, 2), (2, 2, 1), (4, 4, 4), (1, 1, 0)] * 5


def record(folder: Path, encoder: RecordedEncoder, row: str, seed: int, dev: float, layer: int, **more) -> RunRecord:
    weights = encoder.name.rpartition("/")[2]
    return make_record(folder, row, seed, dev, dev, (layer,), weights=weights, encoder=encoder, **more)


def fill(folder: Path, gap: float = 0.0) -> Path:
    for seed in (1, 2, 3):
        for encoder, top, dev in ((SMALL, 2, 0.80), (LARGE, 12, 0.80 + gap)):
            for row, layer, lower in (("last", top, 0.0), ("embeddings", 0, 0.3)):
                record(folder, encoder, row, seed, dev - lower + seed / 1000, layer, sentences=SENTENCES)
    return folder


def test_one_table_has_the_rows_of_all_encoders_and_the_labels_of_one_comparison(tmp_path: Path):
    rows = build_rows(fill(tmp_path, gap=0.002))
    assert len(tables_of(rows)) == 1
    assert [(row.encoder, row.name) for row in rows] == [
        (encoder, name) for encoder in ("large", "small") for name in ("embeddings", "last")
    ]
    samples, _ = samples_of([row.records for row in rows], "dev", run_counts)
    by_hand = Comparison([replace(one, looks=(1, 2, 3)) for one in samples])  # no sweep asked for these runs
    assert [row.behind for row in rows] == by_hand.behind()
    assert [row.label == "best" for row in rows] == [place == by_hand.best for place in range(4)]
    assert rows[by_hand.best].title == "last of large"
    assert choose_columns(None, rows)[:2] == ["encoder", "row"]
    assert json.loads(render(rows, "json"))[3]["encoder"] == "our/small"


def test_the_cheapest_row_is_that_of_fewest_operations_not_of_fewest_blocks(tmp_path: Path):
    deep = replace(SMALL, name="our/deep", num_layers=20)
    for seed in (1, 2, 3):
        record(tmp_path, deep, "last", seed, 0.8 + seed / 1e5, 20, sentences=SENTENCES)
        record(tmp_path, LARGE, "last", seed, 0.8001 + seed / 1e5, 12, sentences=SENTENCES)
    rows = build_rows(tmp_path, margin=50)
    found = recommend(rows)
    assert found.use is not None
    assert found.best is not None
    assert (found.best.title, found.use.title, found.within) == ("last of large", "last of deep", True)
    assert found.use.num_blocks > found.best.num_blocks
    assert found.use.cost[0] == 24 * 8**2 * 20 < found.best.cost[0] == 24 * 768**2 * 12
    assert "last of deep" in found.text


@pytest.mark.parametrize(
    "change",
    [{"context": "document"}, {"corpus": "other"}, {"task": "tags"}],
    ids=str,
)
def test_tables_that_differ_in_more_than_the_encoder_stay_apart(tmp_path: Path, change: dict):
    record(tmp_path, SMALL, "last", 1, 0.8, 2)
    record(tmp_path, LARGE, "last", 1, 0.8, 12, **change)
    rows = build_rows(tmp_path)
    assert len(tables_of(rows)) == 2
    assert {row.encoder for row in rows} == {None}
    assert all("encoder" not in choose_columns(None, group) for group in tables_of(rows))


def test_encoders_that_only_their_owners_distinguish_are_called_in_full_and_equal_names_by_their_features(
    tmp_path: Path,
):
    for encoder in (SMALL, replace(SMALL, name="your/small")):
        make_record(tmp_path / "a", "last", 1, 0.8, 0.8, (2,), weights=encoder.name, encoder=encoder)
        make_record(tmp_path / "b", "last", 1, 0.8, 0.8, (2,), weights=encoder.name[:3], encoder=SMALL)
    assert [row.encoder for row in build_rows(tmp_path / "a")] == ["our/small", "your/small"]
    assert len({row.encoder for row in build_rows(tmp_path / "b")}) == 2
    assert all(str(row.encoder).startswith("our/small ") for row in build_rows(tmp_path / "b"))


def test_missing_runs_of_a_second_encoder_stand_in_the_same_table(tmp_path: Path):
    record(tmp_path, SMALL, "last", 1, 0.8, 2)
    write_expected(tmp_path, [expect(record(tmp_path / "elsewhere", LARGE, "last", 1, 0.8, 12))])
    rows = build_rows(tmp_path)
    assert [(row.encoder, row.n, row.missing) for row in rows] == [("large", 0, 1), ("small", 1, 0)]
    assert len(tables_of(rows)) == 1
    assert "last" in render(rows, "text")


def test_pictures_and_table_json_know_the_encoders(tmp_path: Path):
    rows = build_rows(fill(tmp_path))
    assert {picture.name for picture in pictures(rows)} >= {"scores"}
    for form in ("text", "md", "csv", "tex", "json"):
        assert "small" in render(rows, form)
    made = json.loads(render(rows, "json"))
    (tmp_path / "table.json").write_text(json.dumps(made))
    assert check_table(tmp_path)[0]


@pytest.mark.usefixtures("short_epochs")
def test_a_sweep_over_two_encoders_ends_in_one_table(typed: Callable, tiny_data: Path, tmp_path: Path):
    for name, num_layers, hidden_size in (("small", 1, 8), ("large", 2, 16)):
        (tmp_path / name).mkdir()
        make_bert(tmp_path / name, num_layers, 24, hidden_size)
    settings = [*overrides(Path("small,large"), tiny_data), *TINY, "jobs=1"]
    done = typed("+sweep=each_layer", *settings, "seed=1,2", "results_dir=each")
    assert done.returncode == 0, done.stderr
    rows = build_rows(tmp_path / "each")
    assert [(row.encoder, row.name) for row in rows] == [
        *(("large", f"layer_{k}") for k in range(3)),
        *(("small", f"layer_{k}") for k in range(2)),
    ]
    assert typed("verify", "each").returncode == 0
