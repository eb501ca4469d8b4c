"""The recommendation is the cheapest row within the margin, the best where there is none, and nothing of test."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from support.records import expect, make_record

from probe.data.tasks import TAGS
from probe.race.rule import Elimination
from probe.runs.identity import RecordedCondition
from probe.runs.sweep_plan import write_expected
from probe.tables.decisions import cheapest_within, label_rows
from probe.tables.figures import by_layer, draw_by_layer, pictures, scores, title_of
from probe.tables.formats import render
from probe.tables.recommendation import recommend
from probe.tables.row import groups_of
from probe.tables.rows import build_rows

ALL = [(3, 3, 3), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 10
MOST = [(3, 3, 2), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 3 + ALL[12:]
FEW = [(3, 3, 1), (2, 2, 1), (1, 1, 0), (4, 4, 1)] * 10


def made(folder: Path, seeds: int = 5) -> Path:
    """concat of 3..6 best; layer 3 and the sum near it, the embeddings and layer 6 worse."""
    for seed in range(1, seeds + 1):
        wobble = 0.01 * (seed % 3)
        cells = [
            ("concat_last_four", (3, 4, 5, 6), "concat", 0.90, ALL, 5000),
            ("sum_all", (1, 2, 3, 4, 5, 6), "sum", 0.897, MOST, 2000),
            ("layer_3", (3,), "concat", 0.896, MOST, 2000),
            ("last", (6,), "concat", 0.70, FEW, 2000),
            ("embeddings", (0,), "concat", 0.60, FEW, 2000),
        ]
        for row, indices, combine, dev, sentences, parameters in cells:
            make_record(
                folder,
                row,
                seed,
                dev + wobble,
                dev - 0.05,
                indices,
                combine,
                sentences=sentences,
                parameters=parameters,
            )
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
    assert (given.none, given.within, given.over_text, given.margin, given.score) == (None, True, True, near, "F1")
    assert given.best is not None
    assert given.use is not None
    best = given.best
    assert (best.row, best.num_blocks, best.encoder_blocks, best.width) == ("concat_last_four", 6, 6, 64)
    assert (given.use.row, given.use.num_blocks, given.use.width, given.use.parameters) == ("layer_3", 3, 16, 2000)
    assert given.use.encoder_flops * 2 == given.best.encoder_flops == 6 * 24 * 16**2
    assert (given.use.probe_flops, given.best.probe_flops) == (4000, 10_000)
    assert given.use.dev == pytest.approx(0.896 + 0.01 * (1 + 2 + 0 + 1 + 2) / 5)
    assert given.use.behind[0] == pytest.approx(-near / 100 + 0.0001)
    assert (given.undecided, given.effort) == ((), None), "the embeddings, though cheaper, are worse"
    assert all(render(rows, form).splitlines()[0] == given.as_text() for form in ("md", "text"))


def test_a_margin_that_no_cheaper_row_is_within_leaves_the_best(tmp_path: Path):
    made(tmp_path)
    own = margin_of(tmp_path, "concat_last_four", 0.01)
    assert own < margin_of(tmp_path, "sum_all", 0.0) < margin_of(tmp_path, "layer_3", 0.0)
    given = recommend(build_rows(tmp_path, own))
    assert given.use is not None
    assert (given.use.row, given.within) == ("concat_last_four", True)
    assert given.undecided == ("layer_3",), "the sum is wider, though as deep"
    assert {row.name: row.label for row in build_rows(tmp_path, own)}["sum_all"] == "undecided"
    narrow = recommend(build_rows(tmp_path, own - 0.02))
    assert narrow.use is not None
    assert narrow.use == narrow.best
    assert not narrow.within, "the best itself may lie further behind the truly best row"


def test_cheapest_is_by_blocks_width_parameters_then_score():
    behind = [[-0.002, 0.0], [-0.004, 0.0], [-0.003, 0.0], [-0.02, -0.01]]
    costs = [(6, 64, 5000), (3, 32, 900), (3, 16, 1000), (0, 16, 10)]
    means = [0.9, 0.89, 0.895, 0.88]
    assert cheapest_within(behind, costs, means, 0.005) == 2
    assert cheapest_within(behind, [*costs[:2], (3, 32, 800), costs[3]], means, 0.005) == 2
    assert cheapest_within(behind, [costs[0], costs[1], costs[1], costs[3]], means, 0.005) == 2
    assert cheapest_within(behind, costs, means, 0.0025) == 0
    assert cheapest_within(behind, costs, means, 0.002) is None, "the end itself is not within"
    assert cheapest_within(behind, costs, means, 0.03) == 3


def test_the_recommendation_is_in_json_beside_every_row_of_its_table(tmp_path: Path):
    made(tmp_path)
    make_record(tmp_path, "last", 1, 0.5, 0.5, context="document")
    content = json.loads(render(build_rows(tmp_path, margin_of(tmp_path, "layer_3", 0.1)), "json"))
    by_context = {row["setting"]["features"]["context"]: row["recommendation"] for row in content}
    assert by_context["sentence"]["use"]["row"] == "layer_3"
    assert by_context["document"].get("use") is by_context["document"].get("best") is None
    assert by_context["document"]["none"]
    assert len({json.dumps(row["recommendation"]) for row in content}) == 2


def test_single_seeds_give_a_reason_and_no_recommendation(tmp_path: Path):
    rows = build_rows(made(tmp_path, 1))
    given = recommend(rows)
    assert (given.best, given.use) == (None, None)
    assert given.none is not None
    assert "seed=" in given.none
    assert {row.label for row in rows} == {None}
    assert recommend(build_rows(made(tmp_path, 2))).best is not None, "two seeds of each are enough"


def test_a_row_of_one_seed_is_not_the_best_by_luck(tmp_path: Path):
    made(tmp_path)
    make_record(tmp_path, "layer_1", 1, 0.9121, 0.99, indices=(1,), sentences=ALL)
    rows = {row.name: row for row in build_rows(tmp_path)}
    given = recommend(list(rows.values()))
    assert given.best is not None
    assert rows["layer_1"].dev_mean > rows["concat_last_four"].dev_mean
    assert (given.best.row, rows["layer_1"].label) == ("concat_last_four", "undecided")
    assert "layer_1" in given.undecided
    one, five = rows["layer_1"].error, rows["layer_3"].error
    assert one is not None
    assert five is not None
    assert one[0] == pytest.approx(five[0] * (1 + 1 / 5) / (2 / 5)), "of one seed and of five"


def test_test_scores_do_not_change_the_recommendation(tmp_path: Path):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.9 + seed / 1000, 0.2, sentences=FEW)
        make_record(tmp_path, "embeddings", seed, 0.5 + seed / 1000, 0.9, indices=(0,), sentences=ALL)
    given = recommend(build_rows(tmp_path))
    assert given.use is not None
    assert given.use.row == "last"
    assert given.undecided == ()


def test_the_best_row_may_be_the_cheapest(tmp_path: Path):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.6 + seed / 1000, 0.5, sentences=FEW)
        make_record(tmp_path, "embeddings", seed, 0.8 + seed / 1000, 0.8, indices=(0,), sentences=ALL)
    given = recommend(build_rows(tmp_path))
    assert given.use is not None
    assert (given.use, given.within, given.undecided) == (given.best, True, ())
    assert (given.use.row, given.use.num_blocks) == ("embeddings", 0)


def test_controls_and_what_cannot_be_trained_are_nothing_to_use(tmp_path: Path):
    made(tmp_path)
    control = RecordedCondition(["control"], base={"features": "features-sentence-a"})
    for seed in range(1, 6):
        wobble = 0.01 * (seed % 3)
        make_record(tmp_path, "embeddings", seed, 0.999 + wobble, 0.84, (0,), sentences=MOST, condition=control)
    given = recommend(build_rows(tmp_path, margin_of(tmp_path, "layer_3", 0.01)))
    assert given.best is not None
    assert given.use is not None
    assert (given.best.row, given.use.row) == ("concat_last_four", "layer_3")


def test_no_run_or_one_row_has_no_recommendation(tmp_path: Path):
    record = make_record(tmp_path / "elsewhere", "last", 1, 0.8, 0.7)
    write_expected(tmp_path / "a", [expect(record)])
    rows = build_rows(tmp_path / "a")
    nothing = recommend(rows).none
    assert nothing
    assert nothing not in render(rows, "text")
    for seed in (1, 2, 3, 4):
        make_record(tmp_path / "b", "last", seed, 0.8, 0.7)
    alone = recommend(build_rows(tmp_path / "b"))
    assert alone.best is None
    assert alone.none not in (None, nothing)


def test_eliminated_or_unconverged_rows_are_not_recommended(tmp_path: Path):
    for seed in (1, 2, 3):
        make_record(tmp_path, "last", seed, 0.9 + seed / 1000, 0.7, (6,))
        make_record(tmp_path, "embeddings", seed, 0.5 + seed / 1000, 0.7, (0,))
        make_record(tmp_path / "cut", "last", seed, 0.9, 0.7, (6,), outcome="hit_epoch_limit")
        make_record(tmp_path / "cut", "embeddings", seed, 0.5, 0.7, (0,), outcome="hit_epoch_limit")
    rows = [
        replace(
            row, behind=None, to_best=None, eliminated=Elimination(3, "worse") if row.name == "embeddings" else None
        )
        for row in build_rows(tmp_path)
    ]
    raced = recommend(label_rows(rows, 0.5))
    cut = recommend(build_rows(tmp_path / "cut"))
    assert (raced.best, cut.best) == (None, None)
    assert raced.none
    assert cut.none
    assert raced.none != cut.none


def test_the_seeds_asked_for_reach_the_margin(tmp_path: Path):
    """By the error's two parts: at the ends of the range its low end lies on the margin."""
    made(tmp_path)
    margin = margin_of(tmp_path, "layer_3", -1.0)
    rows = build_rows(tmp_path, margin)
    given = recommend(rows)
    name = given.undecided[0]
    row = next(row for row in rows if row.name == name)
    assert given.effort is not None
    assert given.effort.row == name
    assert row.error is not None
    assert row.behind is not None
    assert row.to_best is not None
    over_seeds, over_text = row.error
    error, difference = math.sqrt(over_seeds + over_text), row.to_best.dev.difference
    critical = (difference - row.behind[0]) / error
    for end, truth in enumerate((difference + error, difference - error)):
        both, seeds = given.effort.seeds_and_text[end], given.effort.seeds[end]
        if both is not None:
            assert truth - critical * error / math.sqrt(both) == pytest.approx(-margin / 100)
        if seeds is not None:
            assert truth - critical * math.sqrt(over_seeds / seeds + over_text) == pytest.approx(-margin / 100)
    least = given.effort.seeds_and_text[0]
    assert least is not None
    most = given.effort.seeds_and_text[1]
    assert most is None or most > least
    assert least < 1 or given.effort.seeds[0] is None or given.effort.seeds[0] >= least


def test_a_truth_beyond_the_margin_is_reached_by_no_effort(tmp_path: Path):
    for seed in range(1, 4):
        make_record(tmp_path, "last", seed, 0.80 + seed / 1000, 0.7, indices=(6,))
        make_record(tmp_path, "embeddings", seed, 0.799 + seed / 1000, 0.7, indices=(0,))
    rows = build_rows(tmp_path, 0.0)
    given = recommend(rows)
    assert given.undecided == ("embeddings",)
    assert given.effort is not None
    assert given.effort.seeds_and_text[1] is None, "one error lower it is truly behind"
    assert given.effort.seeds[1] is None


def test_without_counts_the_seeds_alone_decide_the_recommendation(tmp_path: Path):
    made(tmp_path)
    shutil.rmtree(tmp_path / "counts")
    given = recommend(build_rows(tmp_path, margin_of(tmp_path, "layer_3", 0.01)))
    assert given.use is not None
    assert (given.use.row, given.over_text) == ("layer_3", False)


def test_eliminated_rows_are_drawn_hollow_without_test_scores(tmp_path: Path):
    for row, layers in (("embeddings", (0,)), ("layer_1", (1,)), ("last", (6,)), ("sum_all", tuple(range(1, 7)))):
        make_record(tmp_path, row, 1, 0.8, 0.7, indices=layers)
    left = {name: Elimination(1, "worse than last") for name in ("embeddings", "sum_all")}
    rows = label_rows([replace(row, eliminated=left.get(row.name)) for row in build_rows(tmp_path)], 0.5)
    figure = Figure()
    draw_by_layer(figure, by_layer(rows, fewest=3))
    points = {line.get_label(): list(line[0].get_xdata()) for line in figure.axes[0].containers}
    assert points == {"dev": [0, 1, 6], "test": [1, 6]}
    assert "combination" not in by_layer(rows, fewest=3), "the only one was eliminated"
    plot = scores(rows, "")
    assert {line.name: line.test is None for line in plot.lines} == {
        "embeddings": True, "layer_1": False, "last": False, "sum_all": True,
    }  # fmt: skip


def test_a_long_list_of_unconverged_rows_is_cut():
    names = [f"second_to_last, {share} % of train" for share in range(9)]
    setting, *lines = title_of("demo", names).split("\n")
    assert (setting, len(lines)) == ("demo", 2)
    assert max(map(len, lines)) <= 110
    assert lines[-1].endswith("5 % of train and 3 more")


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, drawn: dict):
    rows = build_rows(made(tmp_path))
    before = [picture.render() for picture in pictures(rows)]
    vector = pictures(rows)[0].render("svg")
    drawn.clear()
    assert [picture.render() for picture in pictures(rows)] == before, "the same bytes when they are drawn again"
    assert pictures(rows)[0].render("svg") == vector
    assert len(groups_of(rows)) == 1
    assert rows[0].task is not TAGS
