"""The recommendation is the cheapest row within the margin, the best where there is none, and nothing of test."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import BETTER, WORSE, expect, make_record

from probe.runs.identity import RecordedCondition
from probe.runs.samples import OVER_SEEDS
from probe.runs.sweep_plan import write_expected
from probe.scoring.significance import IF_INDEPENDENT, ON_THIS_TEXT
from probe.tables.columns import COLUMNS
from probe.tables.formats import render
from probe.tables.labels import cheapest_within
from probe.tables.recommendation import _effort, recommend, sentence
from probe.tables.rows import build_rows

MOST = [(3, 3, 2), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 3 + BETTER[12:]


def made(folder: Path, seeds: int = 5) -> Path:
    """concat of 3..6 best; layer 3 and the sum near it, the embeddings and layer 6 worse."""
    for seed in range(1, seeds + 1):
        wobble = 0.01 * (seed % 3)
        cells = [
            ("concat_last_four", (3, 4, 5, 6), "concat", 0.90, BETTER),
            ("sum_all", (1, 2, 3, 4, 5, 6), "sum", 0.897, MOST),
            ("layer_3", (3,), "concat", 0.896, MOST),
            ("last", (6,), "concat", 0.70, WORSE),
            ("embeddings", (0,), "concat", 0.60, WORSE),
        ]
        for row, indices, combine, dev, sentences in cells:
            make_record(folder, row, seed, dev + wobble, dev - 0.05, indices, combine, sentences=sentences)
    return folder


def margin_of(folder: Path, name: str, more: float) -> float:
    """Points by which the row may truly lie behind, and so many more."""
    row = next(row for row in build_rows(folder) if row.name == name and not row.condition)
    assert row.behind is not None
    return -100 * row.behind[0] + more


def test_the_cheapest_row_within_the_margin_is_recommended(tmp_path: Path):
    made(tmp_path)
    near = margin_of(tmp_path, "layer_3", 0.01)
    rows = build_rows(tmp_path, near)
    given = recommend(rows)
    assert given.within
    assert given.best is not None
    assert given.use is not None
    assert (given.best.name, *given.best.cost) == ("concat_last_four", 6 * 24 * 16**2, 64)
    assert (given.use.name, *given.use.cost) == ("layer_3", 3 * 24 * 16**2, 16)
    assert given.use.behind is not None
    assert given.use.behind[0] == pytest.approx(-near / 100 + 0.0001)
    assert given.undecided == [], "the embeddings, though cheaper, are worse"
    assert "3 instead of 6 of the encoder's 6 blocks and 16 instead of 64 features" in given.text
    rows = [replace(row, width=32) if row.name == "sum_all" else row for row in rows if row.name != "layer_3"]
    narrower = recommend(rows)
    assert "6 of the encoder's 6 blocks and 32 instead of 64 features" in narrower.text
    assert "6 instead of 6" not in narrower.text
    assert all(render(rows, form).splitlines()[0] == str(narrower) for form in ("md", "text"))


def test_a_margin_that_no_cheaper_row_is_within_leaves_the_best(tmp_path: Path):
    made(tmp_path)
    own = margin_of(tmp_path, "concat_last_four", 0.01)
    assert own < margin_of(tmp_path, "sum_all", 0.0) < margin_of(tmp_path, "layer_3", 0.0)
    given = recommend(build_rows(tmp_path, own))
    assert given.use is not None
    assert (given.use.name, given.within) == ("concat_last_four", True)
    assert [row.name for row in given.undecided] == ["layer_3"], "the sum is wider, though as deep"
    assert {row.name: row.label for row in build_rows(tmp_path, own)}["sum_all"] == "undecided"
    narrow = recommend(build_rows(tmp_path, own - 0.02))
    assert narrow.use is not None
    assert narrow.use == narrow.best
    assert not narrow.within, "the best itself may lie further behind the truly best row"


def test_cheapest_is_by_blocks_width_then_score():
    behind = [[-0.002, 0.0], [-0.004, 0.0], [-0.003, 0.0], [-0.02, -0.01]]
    costs = [(6, 64), (3, 32), (3, 16), (0, 16)]
    means = [0.9, 0.89, 0.895, 0.88]
    assert cheapest_within(behind, costs, means, 0.005) == 2
    assert cheapest_within(behind, [costs[0], costs[1], costs[1], costs[3]], means, 0.005) == 2
    assert cheapest_within(behind, costs, means, 0.0025) == 0
    assert cheapest_within(behind, costs, means, 0.002) is None, "the end itself is not within"
    assert cheapest_within(behind, costs, means, 0.03) == 3


def test_single_seeds_give_a_reason_and_no_recommendation(tmp_path: Path):
    rows = build_rows(made(tmp_path, 1))
    given = recommend(rows)
    assert (given.best, given.use) == (None, None)
    assert "seed=" in given.text
    assert {row.label for row in rows} == {None}
    assert recommend(build_rows(made(tmp_path, 2))).best is not None, "two seeds of each are enough"


def test_a_row_of_one_seed_is_not_the_best_by_luck(tmp_path: Path):
    made(tmp_path)
    make_record(tmp_path, "layer_1", 1, 0.9121, 0.99, indices=(1,), sentences=BETTER)
    rows = {row.name: row for row in build_rows(tmp_path)}
    given = recommend(list(rows.values()))
    assert given.best is not None
    assert rows["layer_1"].dev_mean > rows["concat_last_four"].dev_mean
    assert (given.best.name, rows["layer_1"].label) == ("concat_last_four", "undecided")
    assert rows["layer_1"] in given.undecided


def test_controls_and_what_cannot_be_trained_are_nothing_to_use(tmp_path: Path):
    made(tmp_path)
    control = RecordedCondition(["control"], base={"features": "features-sentence-a"})
    for seed in range(1, 6):
        wobble = 0.01 * (seed % 3)
        make_record(tmp_path, "embeddings", seed, 0.999 + wobble, 0.84, (0,), sentences=MOST, condition=control)
    given = recommend(build_rows(tmp_path, margin_of(tmp_path, "layer_3", 0.01)))
    assert given.best is not None
    assert given.use is not None
    assert (given.best.name, given.use.name) == ("concat_last_four", "layer_3")


def test_without_counts_the_seeds_alone_decide_the_recommendation(tmp_path: Path):
    made(tmp_path)
    shutil.rmtree(tmp_path / "counts")
    rows = build_rows(tmp_path, margin_of(tmp_path, "layer_3", 0.01))
    given = recommend(rows)
    assert given.use is not None
    assert (given.use.name, given.use.over_text) == ("layer_3", False)
    worse = next(row for row in rows if row.name == "embeddings")
    assert COLUMNS["label"].text(worse) == COLUMNS["label"].values(worse)["label"] == f"worse {ON_THIS_TEXT}"


def test_seeds_are_named_where_they_would_do_and_text_where_they_would_not(tmp_path: Path):
    row = next(row for row in build_rows(made(tmp_path)) if row.name == "layer_3")
    row = replace(row, margin=0.1, difference=-0.0009)
    assert re.findall(r"\d+", _effort(replace(row, seeds_needed=40))) == ["40"]
    assert _effort(row) != _effort(replace(row, cover=OVER_SEEDS)), "over the text, more of it may help"
    assert re.findall(r"\d+", _effort(replace(row, difference=-0.0011))) == [], "beyond the margin"


def test_nothing_to_recommend_has_its_own_reason(tmp_path: Path):
    record = make_record(tmp_path / "elsewhere", "last", 1, 0.8, 0.7)
    write_expected(tmp_path / "none", [expect(record)])
    for seed in (1, 2, 3):
        make_record(tmp_path / "one", "last", seed, 0.8, 0.7)
        make_record(tmp_path / "cut", "last", seed, 0.9, 0.7, (6,), outcome="hit_epoch_limit")
        make_record(tmp_path / "cut", "embeddings", seed, 0.5, 0.7, (0,), outcome="hit_epoch_limit")
    given = [recommend(build_rows(tmp_path / name)) for name in ("none", "one", "cut")]
    assert {(one.best, one.use) for one in given} == {(None, None)}
    assert len({one.text for one in given}) == 3


def first_line(folder: Path) -> str:
    return str(recommend(build_rows(folder))).partition(". ")[0]


def test_a_row_that_is_ahead_and_not_ranked_stands_in_the_first_line_with_what_to_type(tmp_path: Path):
    made(tmp_path)
    for seed in (1, 2):
        make_record(tmp_path, "layer_2", seed, 0.95, 0.8, (2,), sentences=BETTER, outcome="hit_epoch_limit")
    said = str(recommend(build_rows(tmp_path)))
    assert said.startswith("layer_2")
    assert "probe.max_epochs=" in said.partition("Use ")[0]
    assert sentence(build_rows(tmp_path)).startswith("Of 6 choices"), "all rows of the table"
    shutil.rmtree(tmp_path / "records")
    made(tmp_path)
    make_record(tmp_path, "layer_2", 1, 0.65, 0.8, (2,), sentences=BETTER, outcome="hit_epoch_limit")
    assert "layer_2" not in str(recommend(build_rows(tmp_path))), "behind the others it changes nothing"


def test_a_text_without_marks_has_labels_under_a_condition_until_its_order_is_stated(tmp_path: Path):
    records = []
    for seed in (1, 2, 3):
        for name, layer, dev, found in (("last", 6, 0.9, BETTER), ("embeddings", 0, 0.5, WORSE)):
            dev, many = dev + seed / 1000, found * 3
            records.append(make_record(tmp_path, name, seed, dev, 0.5, (layer,), sentences=many, documents=[]))
    rows = {row.name: row for row in build_rows(tmp_path)}
    assert rows["embeddings"].cover.condition == IF_INDEPENDENT
    assert COLUMNS["label"].text(rows["embeddings"]) == f"worse {IF_INDEPENDENT}"
    assert "data.order=independent" in str(recommend([*rows.values()]))
    write_expected(
        tmp_path, [replace(run, setting=replace(run.setting, order="independent")) for run in map(expect, records)]
    )
    stated = {row.name: row for row in build_rows(tmp_path)}
    assert (stated["embeddings"].label, stated["embeddings"].cover.condition) == ("worse", "")
    assert stated["embeddings"].behind[0] > rows["embeddings"].behind[0], "without the factor"  # type: ignore[index]


def test_a_single_document_shows_nothing_and_the_first_line_says_so(tmp_path: Path):
    for seed in (1, 2, 3):
        for name, layer, dev, found in (("last", 6, 0.9, BETTER), ("embeddings", 0, 0.5, WORSE)):
            make_record(
                tmp_path, name, seed, dev + seed / 1000, 0.5, (layer,), sentences=found, documents=[1] * len(found)
            )
    rows = build_rows(tmp_path)
    assert [row.label for row in rows] == ["undecided", "best"]
    assert all(row.behind == [-1.0, 0.0] for row in rows)
    assert "2 sentences" in first_line(tmp_path), "of the record"
    assert "embeddings" not in str(recommend(rows)), "nothing is said of what a cheaper row would lose"


def test_an_undecided_row_says_how_likely_it_is_within_the_margin(tmp_path: Path):
    row = next(row for row in build_rows(made(tmp_path), 0.2) if row.name == "layer_3")
    assert row.label == "undecided"
    assert row.chance is not None
    assert 0.02 < row.chance < 0.98
    assert f"{100 * row.chance:.0f} %" in COLUMNS["label"].text(row)
    assert COLUMNS["label"].values(row)["chance"] == row.chance
