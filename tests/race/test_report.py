"""What a race has answered names the rows of the table, and what the race found of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from support.records import make_record

from probe.config import LayersConfig
from probe.race.report import answer
from probe.race.rule import VERSION, Cell, Round, Rules
from probe.race.spec import DECISIONS, RACE, Decisions, Entry, RaceSpec
from probe.system.files import to_jsonable
from probe.tables.decisions import BEST, WORSE
from probe.tables.rows import build_rows


def raced(
    folder: Path,
    scores: dict[str, list[float]],
    leader: str,
    needed: dict[str, int | None],
    replaced: Sequence[Cell] = (),
) -> list[str]:
    """The answer of a race between rows with these dev scores by seed, whose records call layer 5 by its number."""
    entries = []
    for layer, (row, dev) in enumerate(scores.items(), 5):
        name = "layer_5" if layer == 5 else row
        records = [make_record(folder, name, seed, f1, 0.5, (layer,)) for seed, f1 in enumerate(dev, 1)]
        entries.append(Entry(row, 16, LayersConfig([layer], "concat", row), records[0].identity))
    terms = RaceSpec({}, entries, Rules(0.05, [1, 2, 3], 2, [3.0, 3.0], 2, version=VERSION))
    rounds = [Round(2, [], leader, {}, 0.01, 2)]
    decisions = Decisions(rounds, {}, list(scores), "the budget is spent", needed, {}, list(replaced))
    (folder / RACE).write_text(json.dumps(to_jsonable(terms)))
    (folder / DECISIONS).write_text(decisions.text())
    return answer(folder, build_rows(folder))


def test_the_best_row_stands_first_with_its_seeds(tmp_path: Path):
    told = raced(tmp_path, {"second_to_last": [0.7, 0.71], "last": [0.705, 0.715]}, "last", {"second_to_last": 7})
    assert told[0].startswith("last ")
    assert "71.00" in told[0]
    assert any("layer_5" in line and "-0.50" in line for line in told)
    assert any("layer_5" in line and " 7 " in line for line in told)


def test_a_row_far_behind_is_worse_and_needs_no_seeds(tmp_path: Path):
    scores = [0.80, 0.81, 0.82]
    told = raced(tmp_path, {"last": scores, "other": [f1 - 0.3 for f1 in scores]}, "last", {"other": 99})
    rows = {row.name: row for row in build_rows(tmp_path)}
    assert rows["other"].label == WORSE
    assert any("other" in line for line in told)
    assert not any("99" in line or "-30" in line for line in told)


def test_who_waited_with_one_lucky_seed_is_not_the_best(tmp_path: Path):
    """Both others fell behind it with their second seeds, but nothing is known of its own."""
    scores = {"second_to_last": [0.80], "last": [0.81, 0.70], "other": [0.82, 0.77]}
    told = raced(tmp_path, scores, "other", {"last": 4, "second_to_last": None})
    assert told[0].startswith("other ")
    assert any("last" in line and " 4 " in line for line in told)
    assert any("layer_5" in line and "last (" in line for line in told)
    assert {row.name: row.label for row in build_rows(tmp_path)}["other"] == BEST


def test_a_run_that_was_replaced_is_no_seed_of_its_row(tmp_path: Path):
    raced(tmp_path, {"last": [0.80, 0.0, 0.82], "other": [0.7, 0.71, 0.72]}, "last", {}, [("last", 2)])
    row = next(row for row in build_rows(tmp_path) if row.name == "layer_5")
    assert (row.seeds, row.missing) == ([1, 3], 0)
    assert row.cells["dev_f1"].mean == 0.81
