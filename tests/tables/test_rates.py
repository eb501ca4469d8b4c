"""Rows tried at several learning rates stand in one table, each at its best by dev; and rows that differ in scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.records import expect, make_record

from probe.runs.identity import RecordedCondition
from probe.runs.sweep_plan import write_expected
from probe.tables.columns import COLUMNS, choose_columns
from probe.tables.formats import render
from probe.tables.row import tables_of
from probe.tables.rows import best_rate, build_rows

RATES = (0.001, 0.002, 0.004)
LAST = {0.001: 0.80, 0.002: 0.84, 0.004: 0.82}
EMBEDDINGS = {0.001: 0.60, 0.002: 0.61, 0.004: 0.65}
CONTROL = RecordedCondition(["control"], {"control": 1}, {"corpus": "corpus"})


def sweep(folder: Path, seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    for seed in seeds:
        for rate in RATES:
            for name, layer, dev in (("last", 6, LAST[rate]), ("embeddings", 0, EMBEDDINGS[rate])):
                f1 = dev + seed / 1000
                make_record(folder, name, seed, f1, f1 - 0.1, indices=(layer,), rate=rate)


def test_rates_are_one_table_with_each_row_at_its_best(tmp_path: Path):
    sweep(tmp_path)
    rows = build_rows(tmp_path)
    assert len(tables_of(rows)) == 1
    assert [(row.name, row.n, COLUMNS["rate"].text(row)) for row in rows] == [
        ("embeddings", 3, "0.004"),
        ("last", 3, "0.002"),
    ]
    assert [row.cell("dev").mean for row in rows] == pytest.approx([0.652, 0.842])
    assert [row.cell("test").mean for row in rows] == pytest.approx([0.552, 0.742])
    shown = json.loads(render(rows, "json"))
    assert [row["rate"] for row in shown] == [0.004, 0.002]
    assert list(rows[1].rates) == list(RATES)
    assert "rate" in choose_columns(None, rows)
    for rate, mean in LAST.items():
        assert f"{rate:g}: {100 * mean + 0.2:.2f}" in COLUMNS["rates"].text(rows[1])


@pytest.mark.usefixtures("short_epochs")
def test_rates_and_scales_end_in_one_table(typed: Callable, inputs: list[str], tmp_path: Path):
    grid = ["layers=majority_tag,last", "layers.normalize=none,scale", "probe.learning_rate=0.01,0.02"]
    settings = [one for one in inputs if not one.startswith("probe.learning_rate")]
    done = typed("-m", *settings, *grid, "save_probe=true", "jobs=1", "results_dir=out")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out/records").iterdir())) == 2 + 4
    shown = {one["row"]: one for one in json.loads((tmp_path / "out/table.json").read_text())}
    assert list(shown) == ["majority_tag", "last", "last:scale"]
    assert len({one["table"] for one in shown.values()}) == 1
    for name, how in (("last", None), ("last:scale", "scale")):
        assert shown[name]["normalize"] == how
        row = next(row for row in build_rows(tmp_path / "out") if row.name == name)
        means = {rate: next(iter(of.values())).scores.dev.headline for rate, of in row.rates.items()}
        assert list(means) == [0.01, 0.02]
        assert shown[name]["dev_mean"] == means[shown[name]["rate"]] == max(means.values())
    assert typed("verify", "out").returncode == 0
    tagged = typed("tag", "out", "--row", "last:scale", "ana met smith")
    assert tagged.returncode == 0, tagged.stderr
    assert typed("tag", "out", "--row", "last:train", "ana met smith").returncode == 2


def test_a_rate_with_fewer_seeds_than_another_is_not_chosen(tmp_path: Path):
    sweep(tmp_path)
    make_record(tmp_path, "last", 1, 0.99, 0.99, indices=(6,), rate=0.008)
    missing = make_record(tmp_path / "elsewhere", "last", 2, 0.99, 0.99, indices=(6,), rate=0.008)
    write_expected(tmp_path, [expect(missing)])
    last = build_rows(tmp_path)[1]
    assert (COLUMNS["rate"].text(last), last.n, last.missing) == ("0.002", 3, 0)
    assert len(last.rates[0.008]) == 1
    assert "(n = 1)" in COLUMNS["rates"].text(last)


def test_of_equal_rates_the_lowest_is_chosen(tmp_path: Path):
    tried = {rate: {tmp_path: make_record(tmp_path, "last", 1, 0.5, 0.5, rate=rate)} for rate in (0.001, 0.004)}
    assert best_rate(tried) == 0.001
    assert best_rate({0.004: {}, 0.001: {}}) == 0.001


def test_one_rate_makes_no_column_and_no_note(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7, rate=0.001)
    rows = build_rows(tmp_path)
    assert rows[0].rates == {}
    assert "rate" not in choose_columns(None, rows)


def test_a_control_is_shown_at_its_own_best_rate(tmp_path: Path):
    sweep(tmp_path)
    for rate, dev in ((0.001, 0.30), (0.002, 0.25)):
        make_record(tmp_path, "last", 1, dev, dev, indices=(6,), corpus="c", condition=CONTROL, rate=rate)
    rows = build_rows(tmp_path)
    assert len(tables_of(rows)) == 1
    control = next(row for row in rows if row.condition)
    assert COLUMNS["rate"].text(control) == "0.001"


def test_a_fine_tuned_row_keeps_its_rate(tmp_path: Path):
    sweep(tmp_path)
    make_record(tmp_path, "last", 1, 0.9, 0.9, indices=(6,), condition=RecordedCondition(["fine_tuned"]), rate=0.00002)
    rows = build_rows(tmp_path)
    assert len(tables_of(rows)) == 1
    assert [(row.name, row.rates) for row in rows if row.condition] == [("last", {})]


def test_a_note_names_rows_with_fewer_or_edge_rates(tmp_path: Path):
    sweep(tmp_path)
    make_record(tmp_path, "sum_all", 1, 0.7, 0.7, indices=(1, 2), combine="sum", rate=0.002)
    (note,) = [line for line in render(build_rows(tmp_path), "text").splitlines() if line.startswith("rate:")]
    fewer, edges = note.split("lowest or highest")
    assert "sum_all" in fewer
    assert "embeddings" in edges
    assert "sum_all" not in edges


def test_rows_that_differ_in_scale_have_their_own_names(tmp_path: Path):
    for seed in (1, 2):
        for how, dev in ((None, 0.7), ("scale", 0.8)):
            f1 = dev + seed / 1000
            make_record(tmp_path, "sum_last_four", seed, f1, f1, indices=(3, 4, 5, 6), combine="sum", normalize=how)
            dev = f1 / 2
            make_record(
                tmp_path, "sum_last_four", seed, dev, dev, (3, 4, 5, 6), "sum", corpus="c", condition=CONTROL,
                normalize=how,
            )  # fmt: skip
    rows = build_rows(tmp_path)
    assert len(tables_of(rows)) == 1
    plain = {row.name: row for row in rows if not row.condition}
    assert list(plain) == ["sum_last_four", "sum_last_four:scale"]
    for name, dev in (("sum_last_four", 0.7015), ("sum_last_four:scale", 0.8015)):
        assert plain[name].cell("dev").mean == pytest.approx(dev)


def test_one_normalization_for_all_is_in_the_caption(tmp_path: Path):
    make_record(tmp_path, "majority_tag", 0, 0.5, 0.4, indices=(), combine="none", curve=[], best_epoch=0)
    make_record(tmp_path, "last", 1, 0.8, 0.7, normalize="scale")
    rows = build_rows(tmp_path)
    assert [row.name for row in rows] == ["majority_tag", "last"]
    assert "layers.normalize=scale" in render(rows, "text").splitlines()[0]
    assert [row.get("normalize") for row in json.loads(render(rows, "json"))] == [None, "scale"]
