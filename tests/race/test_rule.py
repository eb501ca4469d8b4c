"""The rule of a race: how often it wrongs the best row, who is dropped when, how it ends, and the committed records."""

from __future__ import annotations

import functools
import itertools
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from probe.conditions import MAIN
from probe.race.race import dev_run
from probe.race.rule import (
    MOST_REPLACED,
    NEVER_LEARNED,
    VERSION,
    Cell,
    DevRun,
    Race,
    Rules,
    _samples,
    num_ahead,
    replay,
    seeds_to_cross,
    thresholds,
)
from probe.runs.outputs import counts_path
from probe.runs.records import load_records
from probe.runs.samples import run_counts, samples_of
from probe.scoring.compare import Comparison
from probe.tables.labels import BEST, UNDECIDED, WITHIN, WORSE
from probe.tables.row import tables_of
from probe.tables.rows import build_rows

RESULTS = Path(__file__).parents[2] / "results"
SPREADS = [0.15, 0.28, 0.13, 0.14, 0.36, 0.28, 0.50, 0.33, 0.16]  # of the nine rows on CoNLL-2003, points of dev F1
MEANS = [89.89, 89.51, 89.41, 89.35, 88.51, 88.49, 87.97, 87.11, 85.92]


limits = functools.cache(thresholds)


def rules(num_rows: int, num_seeds: int = 5, **changes: object) -> Rules:
    ahead = num_ahead(num_rows)
    values = {
        "alpha": 0.05,
        "margin": 0.0,
        "seeds": list(range(1, num_seeds + 1)),
        "ahead": ahead,
        "thresholds": limits(num_rows, ahead, num_seeds, 0.05),
        "min_seeds": 4,
        "version": VERSION,
    }
    return Rules(**{**values, **changes})  # type: ignore[arg-type]


def race_of(scores: Mapping[str, Sequence[float]], num_seeds: int = 5, **changes: object) -> Race:
    """A race whose runs have these dev scores, in percent, by row and seed."""
    law = rules(len(scores), num_seeds, **changes)
    return replay(law, equal(scores), lambda cell: DevRun(scores[cell[0]][cell[1] - 1] / 100))


def equal(rows: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The rows, with one cost for all."""
    return dict.fromkeys(rows, (0,))


def with_scores(rows: Sequence[str], scores: np.ndarray) -> Callable[[Cell], DevRun]:
    """scores: (rows, seeds)."""
    known = {
        (row, seed): DevRun(float(x)) for row, at in zip(rows, scores, strict=True) for seed, x in enumerate(at, 1)
    }
    return known.__getitem__


def simulated(means: Sequence[float], spreads: Sequence[float], races: int, num_seeds: int = 5) -> list[Race]:
    """Races of rows with these true means and spreads, the spreads dealt anew each time, on a text that is known."""
    draw = np.random.default_rng(77)
    rows, law = [f"row {i}" for i in range(len(means))], rules(len(means), num_seeds)

    def one() -> Race:
        own = draw.permutation(spreads)[: len(rows)]
        scores = np.asarray(means)[:, None] + own[:, None] * draw.standard_normal((len(rows), num_seeds))
        return replay(law, equal(rows), with_scores(rows, scores / 100))

    return [one() for _ in range(races)]


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_unlike_spreads_drop_the_best_row_in_under_ten_percent(num_seeds: int):
    """Thresholds are for one spread, of which the next test has the share; unlike spreads, dealt anew, cost more."""
    equal = simulated([0.0] * 9, SPREADS, races=200, num_seeds=num_seeds)
    assert np.mean([len(race.eliminated) / 9 for race in equal]) < 0.1, "any row is the best where all are equal"
    close = simulated([89.9, 89.9, *MEANS[1:]], [*SPREADS, 0.28], races=150, num_seeds=num_seeds)
    assert np.mean(["row 0" in race.eliminated for race in close]) < 0.1


def test_a_race_like_conll_takes_half_the_runs():
    races = simulated(MEANS, SPREADS, races=200)
    assert all("row 0" not in race.eliminated for race in races)
    assert np.mean([race.remaining[0] == "row 0" for race in races]) > 0.95
    assert np.mean([len(race.runs) for race in races]) < 0.6 * 45
    assert np.mean(["row 8" in race.eliminated for race in races]) > 0.95


def test_thresholds_of_two_rows_are_those_of_a_simulation_by_hand():
    """One look: each of two rows leaves with probability 0.05, so |t| is too large in a tenth of races."""
    [threshold] = thresholds(2, 2, 2, alpha=0.05)
    draw = np.random.default_rng(31).standard_normal((200_000, 2, 2))
    own = draw.var(2, ddof=1)
    errors = np.sqrt(np.maximum(own, own.mean(1, keepdims=True)).sum(1) / 2)
    t = np.abs(draw.mean(2) @ [1, -1]) / errors
    assert threshold == pytest.approx(np.quantile(t, 0.9), rel=0.03)
    assert threshold < scipy.stats.t.isf(0.05, 2), "the larger of two variances"


def test_thresholds_spend_alpha_look_by_look_without_text():
    """Over fresh draws, rows of one spread: the share that has left after each look is that look's share of alpha."""
    law, draw, races = rules(6, num_seeds=4), np.random.default_rng(123), 1000
    gone = np.zeros(5)
    for _ in range(races):
        scores = draw.standard_normal((6, 4))
        race = replay(law, equal("abcdef"), with_scores(list("abcdef"), scores))
        for left in race.eliminated.values():
            gone[left.round :] += 1 / 6 / races
    for look, share in ((2, 0.025), (3, 0.0375), (4, 0.05)):
        assert gone[look] == pytest.approx(share, abs=4 * math.sqrt(share / 6 / races))


def test_rounds_go_seed_by_seed_better_half_first():
    race = race_of(
        {"a": [90, 90.1, 90], "b": [89.8, 89.9, 90], "c": [89.7, 89.5, 89.6], "d": [80, 80, 80]}, num_seeds=3
    )
    assert [done.runs for done in race.rounds] == [
        [("a", 1), ("b", 1), ("c", 1), ("d", 1)],
        [("a", 2), ("b", 2)],
        [("c", 2), ("a", 3), ("b", 3), ("c", 3)],
    ]
    assert race.eliminated["d"].round == 2
    assert race.eliminated["d"].behind == pytest.approx(0.1005)
    assert race.rounds[1].spread == pytest.approx(0.1 / math.sqrt(2) / 100)
    assert race.rounds[1].df == 2


def with_text(scores: Mapping[str, Sequence[float]], moves: Mapping[str, np.ndarray]) -> Callable[[Cell], DevRun]:
    """moves: how much each unit of the text moves every run of a row."""
    return lambda cell: DevRun(scores[cell[0]][cell[1] - 1] / 100, influence=moves[cell[0]])


def test_t_is_the_difference_over_its_error_of_seeds_and_text():
    scores: dict[str, list[float]] = {"a": [90, 91, 92.5], "b": [88, 87, 86]}
    own = [np.var(row, ddof=1) for row in scores.values()]
    over_seeds = sum(max(one, np.mean(own)) for one in own) / 3
    behind = np.mean(scores["a"]) - np.mean(scores["b"])
    signs = np.array([1.0, -1.0] * 20)
    for sd in (0.0, 0.6):  # percent, of the difference over the text
        moves = {"a": signs * sd / 100 / math.sqrt(40), "b": np.zeros(40)}
        law = rules(2, 3, thresholds=[99.0, 1.0])
        left = replay(law, equal(["a", "b"]), with_text(scores, moves)).eliminated["b"]
        assert left.t == pytest.approx(behind / math.sqrt(over_seeds + sd**2 * 39 / 40))
        assert (left.round, left.threshold, left.behind) == (3, 1, pytest.approx(behind / 100))


@pytest.mark.parametrize("name", ["corpora-minilm", "conll2003-minilm-sentence"])
def test_a_race_has_the_errors_of_a_table(name: str):
    """The first has no marked documents, so what neighbouring blocks have in common counts."""
    load = functools.cache(run_counts)
    for table in tables_of(build_rows(RESULTS / name)):
        rows = [row for row in table if row.section == MAIN][:4]
        in_table = Comparison(samples_of([row.records for row in rows], "dev", load)[0])
        in_race = Comparison(_samples([[dev_run(file) for file in row.records] for row in rows]))
        assert in_race.over_text
        for a, b in itertools.combinations(range(4), 2):
            assert in_race.error_parts(a, b) == pytest.approx(in_table.error_parts(a, b))


def test_a_text_on_which_the_difference_could_turn_keeps_a_row():
    scores = {"a": [90, 90.1, 90.2], "b": [88, 88.1, 88.2]}
    assert "b" in race_of(scores, num_seeds=3).eliminated
    paired = {row: np.array([1.0, -1.0] * 20) * 0.01 for row in "ab"}
    assert "b" in replay(rules(2, 3), equal(["a", "b"]), with_text(scores, paired)).eliminated, "both move alike"
    apart = {"a": paired["a"], "b": -paired["b"]}
    race = replay(rules(2, 3), equal(["a", "b"]), with_text(scores, apart))
    assert race.eliminated == {}
    assert race.needed == {"b": None}, "no number of seeds, as the text alone could turn it"


def test_rows_that_are_all_tied_stay_all():
    draw = np.random.default_rng(3)
    race = race_of({row: list(90 + 0.3 * draw.standard_normal(5)) for row in "abcdef"}, num_seeds=5)
    assert race.eliminated == {}
    assert race.ended is not None
    assert len(race.rounds) == 4, "min_seeds"
    whole = race_of({row: [90] * 5 for row in "abc"}, min_seeds=9)
    assert (len(whole.rounds), whole.eliminated) == (5, {})


def test_a_row_that_did_not_converge_leaves_without_its_spread():
    scores = {"a": [90, 90.1, 90], "b": [89.9, 60, 60], "c": [89.8, 89.9, 90]}

    def run_of(cell: Cell) -> DevRun:
        dev = scores[cell[0]][cell[1] - 1] / 100
        return DevRun(dev, "converged" if dev > 0.7 else "hit_epoch_limit")

    race = replay(rules(3, 3), equal("abc"), run_of)
    assert race.eliminated["b"].round == 2
    assert race.eliminated["b"].t is None
    assert race.rounds[1].leader == "a"
    assert race.rounds[1].spread == pytest.approx(0.05 * math.sqrt(2) / 100)
    nothing = replay(rules(3, 3), equal("abc"), lambda cell: DevRun(0.9, "hit_epoch_limit"))
    assert nothing.ended is not None
    assert nothing.remaining == []


def silent_where(lost: set[Cell], scores: Mapping[str, float]) -> Callable[[Cell], DevRun]:
    """Runs of which these never learned; the others of a row differ by seed alone."""

    def run_of(cell: Cell) -> DevRun:
        row, seed = cell
        return DevRun(0.0, NEVER_LEARNED) if cell in lost else DevRun(scores[row] + 0.0001 * (seed % 3))

    return run_of


def test_a_run_that_never_learned_is_replaced_by_another_seed():
    law, scores = rules(3, 3), {"a": 0.9, "b": 0.9, "c": 0.9}
    race = replay(law, equal("abc"), silent_where({("a", 1), ("a", 3)}, scores))
    assert law.spare_seeds == [4, 5]
    assert race.replaced == [("a", 1), ("a", 3)]
    assert race.eliminated == {}
    assert [seed for row, seed in race.runs if row == "a"] == [1, 4, 2, 3, 5]
    assert [seed for row, seed in race.runs if row == "b"] == [1, 2, 3]
    assert race.rounds[-1].means["a"] == pytest.approx(0.9 + 0.0001 * (1 + 2 + 2) / 3), "of seeds 2, 4 and 5"


def test_a_row_whose_runs_never_learn_again_and_again_leaves():
    lost = {("a", seed) for seed in (1, 2, 4)}
    race = replay(rules(3, 3), equal("abc"), silent_where(lost, {"a": 0.9, "b": 0.8, "c": 0.8}))
    assert len(race.replaced) == MOST_REPLACED == 2
    assert race.eliminated["a"].t is None
    assert race.eliminated["a"].round == 1 or race.eliminated["a"].round == 2
    assert [cell for cell in race.runs if cell[0] == "a" and cell not in lost] == [("a", 5)]
    assert race.rounds[-1].leader in ("b", "c")
    assert set(race.remaining) == {"b", "c"}


def test_a_replacing_seed_belongs_to_the_same_round():
    made: dict[Cell, DevRun] = {}
    run_of = silent_where({("b", 1)}, {"a": 0.9, "b": 0.9})
    asked = []
    while todo := replay(rules(2, 2), equal(["a", "b"]), made.get).todo:
        asked.append(todo)
        made |= {cell: run_of(cell) for cell in todo}
    assert asked == [[("a", 1), ("b", 1)], [("b", 3)], [("a", 2), ("b", 2)]]


def test_who_waited_goes_on_where_all_that_went_ahead_have_failed():
    def run_of(cell: Cell) -> DevRun | str:
        return "out of memory" if cell in (("a", 2), ("b", 2)) else DevRun(0.9 - 0.01 * "abcd".index(cell[0]))

    race = replay(rules(4, 3), equal("abcd"), run_of)
    assert {"a", "b"} <= set(race.eliminated)
    assert all("out of memory" in race.eliminated[row].why for row in "ab")
    assert race.rounds[-1].leader == "c"
    assert {("c", 2), ("d", 2)} <= set(race.runs)


def test_a_race_asks_for_missing_runs_alone():
    made: dict[Cell, DevRun] = {}
    asked: list[Cell] = []
    scores: dict[str, list[float]] = {
        "a": [90, 90.1, 90],
        "b": [89.9, 90, 89.9],
        "c": [89, 89.9, 90],
        "d": [70, 70, 70],
    }
    while todo := replay(rules(4, 3), equal(scores), made.get).todo:
        asked += todo
        made |= {cell: DevRun(scores[cell[0]][cell[1] - 1] / 100) for cell in todo}
    assert len(asked) == len(set(asked)), "nothing twice"
    whole = race_of(scores, num_seeds=3)
    assert replay(rules(4, 3), equal(scores), made.get) == whole, "the same as with all at once"
    assert sorted(asked) == sorted(whole.runs)


def test_seeds_to_cross_are_the_fewest_that_reach_the_threshold():
    for behind, over_text in itertools.product((0.002, 0.004, 0.01), (0.0, 0.0005**2)):
        needed = seeds_to_cross(behind, 2 * 0.003**2, over_text, 3.0)
        assert needed is not None

        def t(seeds: int, behind: float = behind, over_text: float = over_text) -> float:
            return behind / math.sqrt(0.003**2 * 2 / seeds + over_text)

        assert t(needed) > 3
        assert needed == 2 or t(needed - 1) <= 3
    assert seeds_to_cross(0.002, 2 * 0.003**2, 0.001**2, 3.0) is None
    assert seeds_to_cross(-0.001, 2 * 0.003**2, 0.0, 3.0) is None


@pytest.mark.parametrize(
    ("costs", "gone"),
    [
        ({"a": (6, 4), "b": (6, 4), "c": (6, 4), "d": (6, 4)}, "bcd"),  # all are worse than a, and save nothing
        ({"a": (6, 4), "b": (6, 1), "c": (4, 4), "d": (3, 4)}, "d"),  # d is farther behind than the margin
        ({"a": (6, 4), "b": (4, 4), "c": (6, 1), "d": (3, 4)}, "cd"),  # b costs less than c, and is better
        ({"a": (6, 4), "b": (7, 1), "c": (7, 1), "d": (7, 1)}, "bcd"),
    ],
    ids=["equal", "cheaper", "cheaper-and-better", "dearer"],
)
def test_a_row_that_a_table_could_recommend_stays(costs: dict[str, tuple[int, ...]], gone: str):
    scores = {"a": [90, 90.1, 90.2], "b": [89.6, 89.5, 89.7], "c": [89.1, 89.2, 89.3], "d": [87.0, 87.2, 87.1]}
    law = rules(4, 3, margin=0.01)
    race = replay(law, costs, lambda cell: DevRun(scores[cell[0]][cell[1] - 1] / 100))
    assert "".join(sorted(race.eliminated)) == gone
    assert "".join(sorted(race_of(scores, 3).eliminated)) == "bcd", "with rows of one cost"


def test_a_replayed_race_gives_the_table_with_fewer_epochs(tmp_path: Path):
    every = load_records(RESULTS / "conll2003-minilm-sentence")
    paths = {(one.row, one.seed): path for path, one in every.items() if one.curve and not one.identity.condition}
    rows = list(dict.fromkeys(row for row, _ in paths))
    race = replay(rules(len(rows)), equal(rows), lambda cell: dev_run(paths[cell]))
    epochs = {cell: len(every[path].curve) for cell, path in paths.items()}
    assert sum(epochs[cell] for cell in race.runs) <= sum(epochs.values()) * 0.65
    for folder in ("records", "counts"):
        (tmp_path / folder).mkdir()
    for cell in race.runs:
        shutil.copy(paths[cell], tmp_path / "records")
        shutil.copy(counts_path(paths[cell]), tmp_path / "counts")
    whole = {row.name: row for row in build_rows(RESULTS / "conll2003-minilm-sentence") if not row.condition}
    stand = {row.name: row for row in build_rows(tmp_path) if row.name in race.remaining}
    assert {name for name, row in stand.items() if row.label == BEST} == {"concat_last_four"}
    assert {name for name, row in whole.items() if row.label == BEST} == {"concat_last_four"}
    assert race.eliminated, "and so the next line says something"
    assert WORSE in {whole[name].label for name in race.eliminated} <= {WORSE, UNDECIDED, WITHIN}
    assert min(whole["concat_last_four"].dev_mean - whole[name].dev_mean for name in race.eliminated) > 0.004
