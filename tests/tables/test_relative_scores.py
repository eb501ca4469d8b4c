"""Floors, rows and ceiling in one table, and what a row comes to beside them."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from support.records import expect, make_record

from probe.report.page import page
from probe.runs.identity import RecordedCondition
from probe.tables.figures import draw, draw_by_layer
from probe.tables.formats import render, write_tables
from probe.tables.relative_scores import difference
from probe.tables.rows import build_rows
from probe.verify.checks import check_files

SEEDS = (1, 2, 3)
RANDOM = RecordedCondition(["random"], {"weights_seed": 0}, {"features": "features-sentence-a"})
CONTROL = RecordedCondition(["control"], {"control": 1}, {"corpus": "corpus"})
TUNED = RecordedCondition(["fine_tuned"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_record(tmp_path, "majority_tag", 0, 0.5, 0.4, indices=(), combine="none", curve=[], best_epoch=0)
    for seed in SEEDS:
        for layer, name, dev in ((0, "embeddings", 0.6), (5, "second_to_last", 0.8), (6, "last", 0.7)):
            f1 = dev + seed / 1000
            make_record(tmp_path, name, seed, f1, f1, indices=(layer,))
            low = 0.3 + seed / 1000
            make_record(tmp_path, name, seed, low, low, indices=(layer,), weights="r", condition=RANDOM)
            make_record(tmp_path, name, seed, low / 3, 0.1, indices=(layer,), corpus="c", condition=CONTROL)
        make_record(tmp_path, "fine_tuned", seed, 0.9 + seed / 1000, 0.9, indices=(6,), combine="mean", condition=TUNED)
    return tmp_path


def test_floors_stand_above_and_the_ceiling_below(folder: Path):
    rows = build_rows(folder)
    assert [(row.name, row.condition) for row in rows] == [
        ("majority_tag", None),
        *((name, "random weights") for name in ("embeddings", "second_to_last", "last")),
        *((name, "control") for name in ("embeddings", "second_to_last", "last")),
        *((name, None) for name in ("embeddings", "second_to_last", "last")),
        ("fine_tuned", "fine-tuned"),  # without a number of epochs in its key
    ]
    assert [row.label for row in rows] == [None] * 7 + ["worse", "best", "worse"] + [None], "floors are not ranked"
    text = render(rows, "text").splitlines()
    rules = [i for i, line in enumerate(text) if line.startswith("---")]
    assert [after - before - 1 for before, after in itertools.pairwise(rules)] == [7, 3]
    assert render(rows, "tex").count("\\midrule") == 3
    assert page(folder, rows, [], {}).count('class="ruled"') >= 2 * 2, "in the tables of the page"
    assert "n = 1" not in render(rows, "text"), "the majority tag has no seeds"
    best = next(row for row in rows if row.label == "best")
    for row in rows:
        if row.condition in ("random weights", "fine-tuned"):
            assert row.to_best is not None
            assert row.to_best.row == best.name
            assert row.to_best.dev.difference == pytest.approx(row.dev_mean - best.dev_mean)
    assert not any(row.to_best for row in rows if row.condition == "control"), "scores of another task"


def test_a_ceiling_that_may_lie_higher_says_so(folder: Path):
    text = render(build_rows(folder), "text")
    assert "probe.max_epochs" not in text, "of two epochs the first is best"
    assert "2 epochs" in text
    for seed in SEEDS[1:]:
        make_record(folder, "fine_tuned", seed, 0.9, 0.9, indices=(6,), combine="mean", condition=TUNED, best_epoch=2)
    (told,) = (line for line in render(build_rows(folder), "text").splitlines() if "probe.max_epochs" in line)
    assert "2 of 3 runs" in told


def test_selectivity_is_the_distance_to_the_control(folder: Path):
    rows = {(row.name, row.condition): row for row in build_rows(folder)}
    row = rows["last", None]
    own, control = [0.7 + s / 1000 for s in SEEDS], [(0.3 + s / 1000) / 3 for s in SEEDS]
    cell = row.relative["selectivity"]
    assert cell.mean is not None
    assert cell.mean == pytest.approx(statistics.fmean(own) - statistics.fmean(control))
    assert cell.std == pytest.approx(math.sqrt(statistics.variance(own) + statistics.variance(control)))
    assert cell.interval is not None
    assert cell.interval[0] <= cell.mean <= cell.interval[1]
    assert "selectivity" not in rows["last", "control"].relative
    text = render(list(rows.values()), "text", "default,floors")
    assert "60.13 ± 0.11" in text
    assert json.loads(render(list(rows.values()), "json"))[9]["selectivity"]["mean"] == cell.mean
    assert "selectivity_mean" in render(list(rows.values()), "csv").splitlines()[0]


def test_without_floors_a_table_is_unchanged(tmp_path: Path):
    for seed in SEEDS:
        make_record(tmp_path, "last", seed, 0.7, 0.7)
    rows = build_rows(tmp_path)
    assert not rows[0].relative
    assert "selectivity" not in json.loads(render(rows, "json"))[0]
    for form in ("text", "csv", "tex", "md"):
        assert all(word not in render(rows, form) for word in ("condition", "selectivity"))


def test_floors_and_ceiling_lie_behind_the_curve_by_layer(folder: Path):
    pytest.importorskip("matplotlib")
    from probe.tables.figures import by_layer

    rows = build_rows(folder)
    assert by_layer(rows) == {}, "three of seven layers are no curve"
    numbers = by_layer(rows, fewest=3)
    assert numbers["layers"] == [0, 5, 6]
    assert {name: band["layers"] for name, band in numbers["bands"].items()} == {
        "majority_tag": [],
        "random weights": [0, 5, 6],
        "control": [0, 5, 6],
        "fine-tuned": [],
    }
    assert numbers["bands"]["random weights"]["dev"][0]["mean"] == pytest.approx(0.302)
    assert numbers["n"] == [3], "a majority tag has no spread"
    make_record(folder, "fine_tuned", 4, 0.9, 0.9, indices=(6,), combine="mean", condition=TUNED)
    rows = build_rows(folder)
    assert by_layer(rows, fewest=3)["n"] == [3, 4]
    draw(by_layer(rows, fewest=3), draw_by_layer, "", "png")


def test_a_control_is_that_of_the_same_random_weights(tmp_path: Path):
    base = {"corpus": "corpus", "features": "features-sentence-a"}
    for weights_seed, dev in ((1, 0.4), (0, 0.3)):
        settings = {"weights_seed": weights_seed}
        made = RecordedCondition(["random"], settings, {"features": base["features"]})
        make_record(tmp_path, "last", 1, dev, 0.1, weights=f"r{weights_seed}", condition=made)
        made = RecordedCondition(["random", "control"], {**settings, "control": 1}, base)
        make_record(tmp_path, "last", 1, dev / 2, 0.1, corpus="c", weights=f"r{weights_seed}", condition=made)
    found = [row.relative["selectivity"].mean for row in build_rows(tmp_path) if "control" not in (row.condition or "")]
    assert found == [pytest.approx(0.15), pytest.approx(0.2)]


def test_where_a_task_has_two_controls_both_count(tmp_path: Path):
    for seed in SEEDS:
        make_record(tmp_path, "last", seed, 0.7, 0.7)
        for control, dev in ((1, 0.2), (2, 0.4)):
            condition = RecordedCondition(["control"], {"control": control}, {"corpus": "corpus"})
            make_record(tmp_path, "last", seed, dev + seed / 100, 0.1, corpus=f"c{control}", condition=condition)
    (cell,) = [row.relative["selectivity"] for row in build_rows(tmp_path) if not row.condition]
    assert cell.mean == pytest.approx(0.7 - (0.3 + 0.02))
    assert cell.std == pytest.approx(statistics.stdev([0.21, 0.22, 0.23, 0.41, 0.42, 0.43]))


def test_two_seeds_of_random_weights_are_two_rows_and_tell_which(tmp_path: Path):
    for weights_seed in (0, 1):
        condition = RecordedCondition(["random"], {"weights_seed": weights_seed}, {"features": "features-sentence-a"})
        make_record(tmp_path, "last", 1, 0.7, 0.7, weights=f"r{weights_seed}", condition=condition)
    shown = [row.condition for row in build_rows(tmp_path)]
    assert shown == ["random weights (weights_seed 0)", "random weights (weights_seed 1)"]


def test_a_difference_is_numpys(tmp_path: Path):
    cell = difference([0.5, 0.7], [0.1, 0.2, 0.3])
    assert cell.mean == pytest.approx(0.4)
    assert cell.std == pytest.approx(np.sqrt(np.var([0.5, 0.7], ddof=1) + np.var([0.1, 0.2, 0.3], ddof=1)))
    assert difference([0.5], [0.1, 0.3]).std is None


def test_tables_with_floors_are_verified_as_any(folder: Path):
    write_tables(folder, build_rows(folder))
    tables = [check for check in check_files(folder) if check.name.startswith("table")]
    assert [check.ok for check in tables] == [True] * len(tables)
    assert tables
    assert expect(next(iter(build_rows(folder)[1].records.values()))).label == "embeddings, random weights, seed 1"
