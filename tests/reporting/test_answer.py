"""What a race has answered names the rows of the table, and what the race found of each."""

from __future__ import annotations

import json
from pathlib import Path

from support.records import make_record

from probe.config import LayersConfig
from probe.racing.rule import Round, Rules
from probe.racing.terms import DECISIONS, RACE, Decisions, Entry, Terms
from probe.reporting.answer import answer
from probe.reporting.rows import build_rows
from probe.system.files import plain


def raced(folder: Path, scores: dict[str, list[float]], leader: str, needed: dict[str, int | None]) -> list[str]:
    """The answer of a race between rows with these dev scores by seed, whose records call layer 5 by its number."""
    entries = []
    for layer, (row, dev) in enumerate(scores.items(), 5):
        name = "layer_5" if layer == 5 else row
        records = [make_record(folder, name, seed, f1, 0.5, (layer,)) for seed, f1 in enumerate(dev, 1)]
        entries.append(Entry(row, 16, LayersConfig([layer], "concat", row), records[0].identity))
    terms = Terms({}, entries, Rules(0.05, [1, 2, 3], 2, [3.0, 3.0], 2))
    rounds = [Round(2, [], leader, {}, 0.01, 2)]
    decisions = Decisions(rounds, {}, list(scores), "the budget is spent", needed, {})
    (folder / RACE).write_text(json.dumps(plain(terms)))
    (folder / DECISIONS).write_text(decisions.text())
    return answer(folder, build_rows(folder))


def test_a_row_that_its_records_call_otherwise_has_the_seeds_that_the_race_found(tmp_path: Path):
    told = raced(tmp_path, {"second_to_last": [0.7, 0.71], "last": [0.8, 0.81]}, "last", {"second_to_last": 7})
    assert told[0].startswith("last (layers 6")
    assert "To tell them apart from it, should the differences stay: layer_5 about 7 seeds of each." in told
    assert not any("More seeds" in line for line in told)
    assert "Not tested against it, mostly for too few seeds: layer_5 (-10.00)." in told


def test_a_row_that_the_tests_could_have_told_apart_and_did_not_is_tied(tmp_path: Path):
    scores = [0.80, 0.81, 0.82, 0.83, 0.84]
    told = raced(tmp_path, {"last": scores, "other": [f1 - 0.001 for f1 in scores]}, "last", {})
    assert "Tied with it: other (-0.10)." in told
    assert not any("too few" in line for line in told)


def test_who_waited_with_one_lucky_seed_is_not_the_best(tmp_path: Path):
    """Both others fell behind it with their second seeds, but nothing is known of its own."""
    scores = {"second_to_last": [0.80], "last": [0.81, 0.70], "other": [0.82, 0.77]}
    told = raced(tmp_path, scores, "other", {"last": 4, "second_to_last": None})
    assert told[0].startswith("other (layers 7")
    assert any("last about 4 seeds of each" in line for line in told)
    assert any(line.startswith("Not tested") and "last (" in line and "layer_5 (" in line for line in told)
