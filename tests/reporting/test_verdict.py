"""The verdict names what the table's tests allow and nothing else, and what it asks for suffices."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats
from matplotlib.figure import Figure
from support.records import expect, make_record

from probe.config import UserError
from probe.data.task import TAGS
from probe.probing.schedule import Outcome
from probe.racing.rule import Left
from probe.reporting.figures import about, by_cost, by_layer, draw_all, draw_by_cost, draw_by_layer
from probe.reporting.formats import render
from probe.reporting.order import in_order
from probe.reporting.row import groups_of
from probe.reporting.rows import build_rows
from probe.reporting.verdict import MOST_SEEDS, POWER, verdict
from probe.runs.expected import write_expected
from probe.runs.identity import Treatment
from probe.scoring.significance import ALPHA, lowest_p, permutation_test, sample_size

ALL = [(3, 3, 3), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 10
MOST = [(3, 3, 2), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 3 + ALL[12:]
FEW = [(3, 3, 1), (2, 2, 1), (1, 1, 0), (4, 4, 1)] * 10


def made(folder: Path, seeds: int = 5) -> Path:
    """concat of 3..6 best; layer 3 and the sum not told apart from it, the embeddings and layer 6 worse."""
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


def test_the_verdict_names_the_best_row_and_the_cheapest_not_told_apart(tmp_path: Path):
    rows = build_rows(made(tmp_path))
    given = verdict(rows)
    assert given.none is None
    assert given.best is not None
    assert given.cheapest is not None
    assert (given.best.row, given.best.blocks, given.best.of_blocks, given.best.width) == ("concat_last_four", 6, 6, 64)
    assert (given.cheapest.row, given.cheapest.blocks, given.cheapest.parameters) == ("layer_3", 3, 2000)
    assert given.cheapest.encoder_flops * 2 == given.best.encoder_flops == 6 * 24 * 16**2
    assert (given.cheapest.probe_flops, given.best.probe_flops) == (4000, 10_000)
    text = render(rows, "text")
    assert text.rstrip().splitlines()[-1] == given.as_text()
    assert "The cheapest row tied with it is layer_3, 90.80 (3 of 6 blocks, width 16" in text
    assert [row.row for row in given.open] == ["sum_all", "layer_3"], "what is worse is not open"
    assert all(f"verdict: {given.best.row}" in render(rows, form) for form in ("md", "text"))
    assert "verdict: concat\\_last\\_four" in render(rows, "tex")


def test_the_verdict_is_in_json_beside_every_row_of_its_table(tmp_path: Path):
    made(tmp_path)
    make_record(tmp_path, "last", 1, 0.5, 0.5, context="document")
    content = json.loads(render(build_rows(tmp_path), "json"))
    by_context = {row["setting"]["features"]["context"]: row["verdict"] for row in content}
    assert by_context["sentence"]["cheapest"]["row"] == "layer_3"
    assert "one seed" in by_context["document"]["none"]
    assert len({json.dumps(row["verdict"]) for row in content}) == 2


@pytest.mark.parametrize(
    ("seeds", "told"), [(1, "one seed a row allows no test"), (3, "below p 0.100"), (2, "p 0.333")]
)
def test_too_few_seeds_give_no_verdict_and_the_table_says_so(tmp_path: Path, seeds: int, told: str):
    rows = build_rows(made(tmp_path, seeds))
    given = verdict(rows)
    assert given.cheapest is None
    assert f"verdict: none, for {given.none}." in render(rows, "text")
    assert given.none is not None
    assert told in given.none
    if seeds > 1:
        assert {row.row for row in given.open} == {"sum_all", "layer_3", "last", "embeddings"}
        assert all(row.seeds is not None and row.seeds >= 4 for row in given.open), "three against three never do"


def test_a_row_of_too_few_seeds_is_open_but_no_candidate(tmp_path: Path):
    made(tmp_path)
    for seed in (1, 2):
        make_record(tmp_path, "layer_1", seed, 0.89 + seed / 100, 0.84, indices=(1,), sentences=ALL)
    given = verdict(build_rows(tmp_path))
    assert given.cheapest is not None
    assert given.cheapest.row == "layer_3", "two seeds against five cannot go below p 0.095"
    assert {row.row: row.order for row in given.open} == {"layer_1": "untested", "layer_3": "tied", "sum_all": "tied"}
    assert "To tell the tied and untested rows from it" in given.as_text()


def test_where_counts_are_lost_the_seeds_are_not_blamed(tmp_path: Path):
    for seed in range(1, 6):
        for name, k in (("last", 6), ("layer_3", 3), ("layer_2", 2)):
            make_record(tmp_path, name, seed, k / 10 + seed / 100, 0.5, indices=(k,), sentences=ALL)
    make_record(tmp_path, "layer_1", 1, 0.21, 0.5, indices=(1,), sentences=ALL)
    make_record(tmp_path, "layer_1", 2, 0.22, 0.5, indices=(1,), sentences=ALL)
    for file in (tmp_path / "counts").glob("layer_[23]-*"):
        file.unlink()
    rows = build_rows(tmp_path)
    assert {row.name: row.order for row in rows if row.order != "best"} == dict.fromkeys(
        ("layer_1", "layer_2", "layer_3"), "untested"
    )
    assert verdict(rows).none == "2 or 5 seeds a row cannot tell any two apart (their test cannot go below p 0.095)"


def test_without_counts_a_row_of_few_seeds_is_tested_where_holm_leaves_it_enough(tmp_path: Path):
    """scipy: three against five cannot go below p 0.036, five against five below 0.008; the larger is not doubled."""
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.7 + seed / 100, 0.7)
        make_record(tmp_path, "embeddings", seed, 0.5 + seed / 100, 0.5, indices=(0,))
        if seed <= 3:
            make_record(tmp_path, "layer_1", seed, 0.72 + seed / 1000, 0.69, indices=(1,))
    orders = {row.name: row.order for row in build_rows(tmp_path)}
    assert orders == {"last": "best", "embeddings": "below", "layer_1": "tied"}


def test_a_row_that_is_ahead_on_test_is_not_settled_by_more_of_anything(tmp_path: Path):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.9 + seed / 1000, 0.7, sentences=FEW)
        make_record(tmp_path, "embeddings", seed, 0.8 + seed / 1000, 0.8, indices=(0,), sentences=ALL)
    given = verdict(build_rows(tmp_path))
    assert [(row.row, row.reversed, row.seeds) for row in given.open] == [("embeddings", True, None)]
    assert "embeddings: none will, ahead on test" in given.as_text()
    assert given.cheapest is not None
    assert given.cheapest.row == "embeddings"


def test_the_best_row_may_be_the_cheapest(tmp_path: Path):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.6 + seed / 1000, 0.5, sentences=FEW)
        make_record(tmp_path, "embeddings", seed, 0.8 + seed / 1000, 0.8, indices=(0,), sentences=ALL)
    assert verdict(build_rows(tmp_path)).as_text().startswith("verdict: embeddings, none of 6 blocks, width 16")


def test_of_rows_as_cheap_the_verdict_names_the_better(tmp_path: Path):
    for name, dev in (("sum_last_four", 0.895), ("mean_last_four", 0.896)):
        for seed in range(1, 6):
            f1, combine = dev + 0.01 * (seed % 3), name.split("_")[0]
            make_record(tmp_path, name, seed, f1, 0.84, (3, 4, 5, 6), combine, sentences=MOST, parameters=2000)
    made(tmp_path)
    for record in (tmp_path / "records").glob("layer_3-*"):
        record.unlink()
    given = verdict(build_rows(tmp_path))
    assert given.cheapest is not None
    assert given.cheapest.row == "mean_last_four"


def test_a_control_is_nothing_to_use(tmp_path: Path):
    made(tmp_path)
    control = Treatment("control", base={"features": "features-sentence-a"})
    for seed in range(1, 6):
        wobble = 0.01 * (seed % 3)
        make_record(tmp_path, "embeddings", seed, 0.899 + wobble, 0.84, (0,), sentences=MOST, treatment=control)
    given = verdict(build_rows(tmp_path))
    assert given.cheapest is not None
    assert given.cheapest.row == "layer_3"


def test_nothing_done_or_one_row_alone_has_no_verdict(tmp_path: Path):
    record = make_record(tmp_path / "elsewhere", "last", 1, 0.8, 0.7)
    write_expected(tmp_path / "a", [expect(record)])
    rows = build_rows(tmp_path / "a")
    assert verdict(rows).none == "no run is done"
    assert "verdict" not in render(rows, "text")
    for seed in (1, 2, 3, 4):
        make_record(tmp_path / "b", "last", seed, 0.8, 0.7)
    assert verdict(build_rows(tmp_path / "b")).none == "one row alone is the best of nothing"


def test_where_a_race_left_one_row_the_verdict_does_not_say_that_none_converged(tmp_path: Path):
    for row, layer in (("last", 6), ("embeddings", 0)):
        for seed in (1, 2, 3):
            make_record(tmp_path, row, seed, 0.5 + layer / 10, 0.7, indices=(layer,))
    left = {"embeddings": Left(3, "told apart from last")}
    rows = [replace(row, order=None, left=left.get(row.name)) for row in build_rows(tmp_path)]
    assert verdict(in_order(rows)).none == "the race has left no two rows to compare"


def test_rows_that_left_a_race_are_drawn_hollow_and_without_their_test_scores(tmp_path: Path):
    for row, layers in (("embeddings", (0,)), ("layer_1", (1,)), ("last", (6,)), ("sum_all", tuple(range(1, 7)))):
        make_record(tmp_path, row, 1, 0.8, 0.7, indices=layers)
    left = {name: Left(1, "told apart from last") for name in ("embeddings", "sum_all")}
    rows = in_order([replace(row, order=None, left=left.get(row.name)) for row in build_rows(tmp_path)])
    drawn = Figure().add_subplot()
    draw_by_layer(drawn, by_layer(rows))
    points = {line.get_label(): list(line[0].get_xdata()) for line in drawn.containers}
    assert points == {"dev, single": [0, 1, 6], "test, single": [1, 6]}
    assert drawn.lines[-1].get_label() == "dev, sum_all 80.00, left the race"
    drawn = Figure().add_subplot()
    draw_by_cost(drawn, by_cost(rows))
    assert drawn.get_xlabel() == "blocks of the encoder (size of a point: width; hollow: left the race)"


def test_a_row_that_did_not_converge_is_drawn_hollow_and_stands_on_no_front(tmp_path: Path):
    for row, layer, dev in (("embeddings", 0, 0.7), ("layer_1", 1, 0.9), ("last", 6, 0.8)):
        outcome: Outcome = "cut_short" if row == "layer_1" else "converged"
        make_record(tmp_path, row, 1, dev, 0.7, indices=(layer,), outcome=outcome)
    drawn = Figure().add_subplot()
    draw_by_cost(drawn, by_cost(build_rows(tmp_path)))
    front = next(line for line in drawn.lines if str(line.get_label()).startswith("front"))
    assert np.allclose(front.get_xydata(), [[0, 70], [6, 80], [6, 80]])
    assert drawn.get_xlabel().endswith("hollow: not converged)")
    assert b"not converged: layer_1 -->" in draw_all(build_rows(tmp_path))["f1_by_cost.svg"]


def test_rows_of_which_none_converged_are_drawn_without_a_front(tmp_path: Path):
    for row, layer, dev in (("embeddings", 0, 0.7), ("layer_1", 1, 0.9), ("last", 6, 0.8)):
        make_record(tmp_path, row, 1, dev, 0.7, indices=(layer,), outcome="cut_short")
    rows = build_rows(tmp_path)
    drawn = Figure().add_subplot()
    draw_by_cost(drawn, by_cost(rows))
    assert not any(str(line.get_label()).startswith("front") for line in drawn.lines)
    pictures = draw_all(rows)
    assert {"f1_by_cost.png", "f1_by_layer.png"} <= pictures.keys()
    assert b"not converged: embeddings; last; layer_1 -->" in pictures["f1_by_layer.svg"]


def test_a_long_list_of_rows_that_did_not_converge_is_cut_and_wrapped():
    names = [f"second_to_last, {share} % of train" for share in range(9)]
    setting, *lines = about("demo", names).split("\n")
    assert (setting, len(lines)) == ("demo", 2)
    assert max(map(len, lines)) <= 110
    assert lines[-1].endswith("5 % of train and 3 more")


def test_equal_rows_need_more_seeds_than_anybody_has(tmp_path: Path):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.8 + seed / 100, 0.69, sentences=ALL)
        make_record(tmp_path, "embeddings", seed, 0.8 + seed / 100, 0.7, indices=(0,), sentences=ALL)
    (row,) = verdict(build_rows(tmp_path)).open
    assert row.seeds == MOST_SEEDS + 1
    assert row.text is None
    assert f"more than {MOST_SEEDS} seeds" in verdict(build_rows(tmp_path)).as_text()


def test_without_counts_the_seeds_alone_decide_the_verdict(tmp_path: Path):
    for file in (made(tmp_path) / "counts").iterdir():
        file.unlink()
    given = verdict(build_rows(tmp_path))
    assert given.cheapest is not None
    assert given.cheapest.row == "layer_3"
    assert all(row.text is None and row.seeds is not None for row in given.open)


@pytest.mark.parametrize(("a", "b"), [(2, 2), (3, 3), (4, 4), (3, 5), (1, 9)])
def test_the_lowest_p_is_what_the_test_gives_for_values_that_lie_apart(a: int, b: int):
    given = permutation_test(list(range(a)), list(range(100, 100 + b)))
    assert lowest_p(a, b) == pytest.approx(given if given is not None else 1)


@pytest.mark.parametrize("distance", [4.0, 2.5, 2.0])
def test_the_seeds_asked_for_find_the_difference_about_as_often_as_promised(distance: float):
    """Simulated with the very test that the table makes."""
    needed = sample_size(distance, 1.0, ALPHA, POWER, MOST_SEEDS)
    draw = np.random.default_rng(1)

    def share(n: int) -> float:
        found = 0
        for _ in range(300):
            p = permutation_test(list(draw.normal(0, 1, n)), list(draw.normal(distance, 1, n)))
            found += p is not None and p < ALPHA
        return found / 300

    assert share(needed) > POWER - 0.08
    if needed > 4:
        assert share(needed - 1) < POWER + 0.05


@pytest.mark.parametrize("distance", [1.5, 1.0, 0.8, 0.5])
def test_many_seeds_are_those_of_a_t_test(distance: float):
    needed = sample_size(distance, 1.0, ALPHA, POWER, MOST_SEEDS)

    def power(n: int) -> float:
        critical = scipy.stats.t.ppf(1 - ALPHA / 2, 2 * n - 2)
        return float(1 - scipy.stats.nct.cdf(critical, 2 * n - 2, distance * math.sqrt(n / 2)))

    assert power(needed + 1) >= POWER > power(needed - 1)
    assert sample_size(0.0, 1.0, ALPHA, POWER, MOST_SEEDS) == MOST_SEEDS + 1
    assert sample_size(0.1, 0.0, ALPHA, POWER, MOST_SEEDS) == 4


def test_the_text_asked_for_makes_the_difference_significant(tmp_path: Path):
    """A paired test on as many times the sentences finds it; its z grows with the root of the text."""
    rows = build_rows(made(tmp_path))
    (row,) = [row for row in rows if row.name == "layer_3"]
    p, corrected = row.against["best"].p_text, row.against["best"].p_text_holm
    assert p is not None
    assert corrected is not None
    (opened,) = [one for one in verdict(rows).open if one.row == "layer_3"]
    assert opened.text is not None
    z = NormalDist().inv_cdf(1 - p / 2) * math.sqrt(opened.text)
    assert z - NormalDist().inv_cdf(POWER) == pytest.approx(
        NormalDist().inv_cdf(1 - ALPHA * p / corrected / 2), rel=0.02
    )


def test_a_corrected_p_of_one_is_taken_as_corrected_for_all_comparisons(tmp_path: Path):
    """Holm's p is cut off at 1, where it says no longer how often it was multiplied."""
    rows = build_rows(made(tmp_path))
    place = [row.name for row in rows].index("layer_3")
    odd = replace(rows[place].against["best"], p_text=0.6, p_text_holm=1.0)
    rows[place] = replace(rows[place], against={**rows[place].against, "best": odd})
    (opened,) = [one for one in verdict(rows).open if one.row == "layer_3"]
    assert opened.text is not None
    others = sum("best" in row.against for row in rows)
    needed = NormalDist().inv_cdf(1 - ALPHA / others / 2) + NormalDist().inv_cdf(POWER)
    assert NormalDist().inv_cdf(0.7) * math.sqrt(opened.text) == pytest.approx(needed, rel=0.02)
    assert others == 4


def test_the_figure_of_cost_has_every_row_once_and_none_where_all_cost_the_same(tmp_path: Path, drawn: dict):
    rows = build_rows(made(tmp_path))
    numbers = by_cost(rows)
    assert {name: row["blocks"] for name, row in numbers["rows"].items()} == {
        "embeddings": 0, "layer_3": 3, "last": 6, "sum_all": 6, "concat_last_four": 6,
    }  # fmt: skip
    assert numbers["rows"]["concat_last_four"]["width"] == 64
    pictures = draw_all(rows)
    assert {"f1_by_cost.png", "f1_by_cost.svg"} <= pictures.keys()
    drawn.clear()
    assert draw_all(rows) == pictures, "the same bytes when they are drawn again"
    assert by_cost([row for row in rows if row.name == "last"]) == {}
    assert len(groups_of(rows)) == 1
    assert rows[0].task is not TAGS


def test_a_damaged_bench_is_named_with_the_remedy(tmp_path: Path):
    made(tmp_path)
    (tmp_path / "bench.json").write_text('[{"features": 1}]')
    with pytest.raises(UserError, match=r"bench\.json is damaged .*probe bench"):
        build_rows(tmp_path)
