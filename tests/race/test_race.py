"""A race in a folder: its runs are ordinary ones, and it comes to the same however it was made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import RUN_PROBE, Started, finish, wait_for
from support.facts import names
from support.records import make_record, results

from probe.commands.race import choose_candidates
from probe.config import Config, LayersConfig, UserError
from probe.probes import schedule
from probe.probes.candidates import Candidate
from probe.race.rule import VERSION, Race, Rules
from probe.race.spec import RACE, Entrant, RaceSpec, read_decisions, read_outcome, read_spec, write_decisions
from probe.runs.plan import Plan, plan
from probe.runs.run import make
from probe.runs.screens import load_screens
from probe.runs.sweep_plan import read_asked, write_expected
from probe.system.files import write_json
from probe.tables.rows import build_rows

Typed = Callable[..., subprocess.CompletedProcess[str]]

QUICK = {
    "EPOCH_UPDATES": 1,
    "WARM_UP_UPDATES": 40,
    "FULL_UPDATES": 8,
}  # trainings that end by themselves, within seconds
PROBE = ["probe=linear", "probe.batch_size=8", "probe.learning_rate=0.1", "probe.patience=4", "probe.max_epochs=60"]
HERE = ["jobs=1", "results_dir=out"]
ROWS = ["layer_0", "concat_0_1", "concat_0_5"]


@pytest.fixture
def settings(inputs: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of runs that converge soon; processes of their own need `a_process`."""
    for name, value in QUICK.items():
        monkeypatch.setattr(schedule, name, value)
    return [*(text for text in inputs if not text.startswith("probe.")), *PROBE, *HERE]


def race(*rows: str) -> list[str]:
    return [
        "race",
        f"race.rows=[{','.join(rows or ROWS)}]",
        "race.candidates=0",
        "race.max_seeds=3",
    ]


def a_process(*arguments: str, cwd: Path) -> Started:
    """`probe` in a process of its own, with the quick schedule."""
    patch = "; ".join(f"schedule.{name} = {value}" for name, value in QUICK.items())
    return Started(arguments, cwd, {}, f"from probe.probes import schedule; {patch}; {RUN_PROBE}")


def num_records(folder: Path) -> int:
    return len([*(folder / "out/records").glob("*.json")])


def asked(home: Path) -> RaceSpec:
    spec = read_spec(home / "out")
    assert spec is not None
    return spec


def decided(home: Path) -> Race:
    decisions = read_decisions(home / "out")
    assert decisions is not None
    return decisions


def made_at(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "records").glob("*.json")}


@pytest.mark.slow
def test_runs_of_a_race_have_the_bits_of_a_sweep(typed: Typed, settings: list[str], tmp_path: Path):
    done = typed(*race(), *settings)
    assert done.returncode == 0, done.stderr
    decisions = decided(tmp_path)
    assert decisions.ended is not None
    assert not decisions.failed
    terms = asked(tmp_path)
    assert terms.rules.version == VERSION
    assert len(decisions.rounds) > 1
    margin, runs = read_asked(tmp_path / "out").margin, read_asked(tmp_path / "out").runs
    assert margin == 100 * terms.rules.margin
    assert {run.asked for run in runs} == {terms.started}, "all rounds are one look"
    assert all(run.command.startswith("probe race") for run in runs)
    after = done.stdout.index(decisions.ended)
    assert "dev F1" in done.stdout[:after]
    assert done.stdout.index("test F1") > after
    raced = results(tmp_path / "out")
    assert num_records(tmp_path) == sum(len(done.runs) for done in decisions.rounds)
    layers = ["layers=single", "layers.indices=[0],[0,5]", "seed=1"]
    assert typed("-m", *layers, *settings, "results_dir=swept").returncode == 0
    swept = results(tmp_path / "swept")
    assert len(swept) == 8, "of two runs a record, counts, and predictions of two splits"
    assert {name: raced[name] for name in swept} == swept


@pytest.mark.slow
def test_a_race_continues_with_its_rules_and_existing_runs(typed: Typed, settings: list[str], tmp_path: Path):
    before = ["-m", "layers=single", "layers.indices=[0],[0,5]", "seed=2,1"]
    assert typed(*before, *settings).returncode == 0
    first = made_at(tmp_path / "out")
    assert typed(*race(), *settings).returncode == 0
    whole, decisions = made_at(tmp_path / "out"), (tmp_path / "out/decisions.json").read_text()
    assert whole.items() >= first.items()
    terms = (tmp_path / "out/race.json").read_text()
    (tmp_path / "out/sweep.json").unlink()  # as where all runs come from elsewhere
    again = typed(*race(), *settings)
    assert again.returncode == 0
    made = decided(tmp_path)
    asked_for = {(run.row, run.identity.seed) for run in read_asked(tmp_path / "out").runs}
    assert asked_for == {tuple(cell) for done in made.rounds for cell in done.runs}
    assert made_at(tmp_path / "out") == whole
    assert (tmp_path / "out/decisions.json").read_text() == decisions
    for change, said in (
        ("race.max_seeds=2", ("[1, 2, 3]", "[1, 2]")),
        ("race.rows=[layer_0]", ("concat_0_1", "layer_0")),
        ("race.candidates=2", ("2",)),
        ("probe.dropout=0.3", ("probe",)),
    ):
        refused = typed(*race(), *settings, change)
        assert refused.returncode == 2
        assert all(value in refused.stderr for value in said)
        assert "results_dir" in refused.stderr
    assert (tmp_path / "out/race.json").read_text() == terms
    assert made_at(tmp_path / "out") == whole


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_is_tried_again(
    typed: Typed, settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(planned: Plan, *arguments: Any) -> object:
        if planned.cfg.seed == 1 and planned.cfg.layers.indices == [0, 1]:
            raise MemoryError("not enough")
        return make(planned, *arguments)

    monkeypatch.setattr("probe.runs.sweep.make", fails)
    done = typed(*race(), *settings)
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    decisions = decided(tmp_path)
    assert decisions.eliminated["concat_0_1"].round == 1
    assert "MemoryError: not enough" in decisions.eliminated["concat_0_1"].why
    assert decisions.rounds[-1].number > 1
    assert typed("verify", "out").stdout.count("FAILED") == 1, "the run that is missing"
    monkeypatch.setattr("probe.runs.sweep.make", make)
    assert typed(*race(), *settings).returncode == 0
    decisions = decided(tmp_path)
    assert not decisions.failed
    assert ("concat_0_1", 1) in decisions.rounds[0].runs
    assert typed("verify", "out").returncode == 0


@pytest.mark.parametrize("told", [True, False])
def test_a_round_of_which_nothing_comes_is_not_run_without_end(
    told: bool, typed: Typed, settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also of a control, whose runs have longer names; and where nobody says why."""
    rounds: list[int] = []

    def fails(configs: list[Config], *_arguments: object, **_settings: object) -> list[tuple[str, str]]:
        assert not rounds, "the same round again"
        rounds.append(len(configs))
        return [(plan(cfg).label, "no memory") for cfg in configs] if told else []

    monkeypatch.setattr("probe.race.race.make_runs", fails)
    typed(*race("layer_0", "concat_0_5"), *settings, "condition=control")
    decisions = decided(tmp_path)
    assert [*decisions.failed] == ["layer_0 seed 1", "concat_0_5 seed 1"]
    assert all(("no memory" in why) == told for why in decisions.failed.values())
    assert decisions.ended is not None
    assert decisions.remaining == []


def test_table_page_and_verify_know_of_the_race(typed: Typed, settings: list[str], tmp_path: Path):
    assert typed(*race("layer_0", "layer_1"), *settings).returncode == 0
    decisions = decided(tmp_path)
    assert list(decisions.eliminated) == ["layer_1"], "of a random encoder"
    [row] = [row for row in json.loads(typed("table", "out", "--format", "json").stdout) if row["row"] == "layer_1"]
    assert row["label"] == "eliminated"
    assert typed("report", "out").returncode == 0
    sound = typed("verify", "out")
    assert sound.returncode == 0, sound.stdout
    (tmp_path / "out/race.json").write_text("{")
    for command in ("table", "report"):
        refused = typed(command, "out")
        assert refused.returncode == 2
        assert "race.json" in refused.stderr
    failed = [line for line in typed("verify", "out").stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 2, "the race itself, and the table that rests on it"
    for line in failed:
        names(line, "race.json")


def test_what_cannot_be_raced_is_refused_before_anything_is_computed(typed: Typed, settings: list[str], tmp_path: Path):
    for change, said in (
        ("race.rows=[last,layer_77]", "0 (embeddings) to 5"),
        ("race.rows=[concat_last_for]", "concat_last_four"),
        ("race.rows=[mid]", "mid"),
        ("race.max_seeds=1", "race.max_seeds"),
        ("probe.dropout=0.1,0.2", "probe"),
        ("encoder.path=a,b", "probe screen"),
        ("race.max_seed=2", "race.max_seeds"),
        ("layers=last,majority_tag", "seed"),
    ):
        refused = typed(*race(), *settings, change)
        assert refused.returncode == 2, change
        assert said in refused.stderr
        assert not (tmp_path / "out/race.json").exists()
    write_expected(tmp_path / "out", [], margin=2)
    refused = typed(*race(), *settings)
    assert refused.returncode == 2
    assert "margin=2" in refused.stderr
    assert not (tmp_path / "out/race.json").exists()


def test_one_row_alone_and_seeds_of_ones_own(typed: Typed, settings: list[str], tmp_path: Path):
    done = typed(*race("layer_0"), *settings, "seed=7")
    assert done.returncode == 0
    terms = asked(tmp_path)
    assert terms.rules.seeds == [7, 8, 9]
    assert num_records(tmp_path) == 1


def test_the_screens_best_race_with_the_rows_named(typed: Typed, settings: list[str], tmp_path: Path):
    wanted = ["race", "race.candidates=2", "race.rows=[layer_0]", "race.max_seeds=2", "screen.sentences=40"]
    done = typed(*wanted, *settings)
    assert done.returncode == 0, done.stderr
    terms = asked(tmp_path)
    (screen,) = load_screens(tmp_path / "out").values()
    best = [one.name for one in choose_candidates(screen.ranked, 2)]
    assert list(terms.costs) == ["layer_0", *(name for name in best if name != "embeddings")], (
        "the name that was asked for"
    )
    assert {row.screened for row in build_rows(tmp_path / "out")} == {None, len(screen.ranked)}
    (tmp_path / "out/screen.json").unlink()
    again = typed(*wanted, *settings)
    assert again.returncode == 0
    assert not (tmp_path / "out/screen.json").exists(), "a race that continues has its rows"
    assert asked(tmp_path) == terms


@pytest.mark.parametrize(
    ("number", "names"),
    [(1, "a"), (2, "ac"), (3, "ace"), (4, "acef"), (5, "abcef"), (9, "abcdefg")],
    ids=lambda value: str(value),
)
def test_candidates_are_the_best_of_each_width_the_best_layer_then_the_next(number: int, names: str):
    widths = {"a": 4, "b": 4, "c": 2, "d": 3, "e": 1, "f": 1, "g": 1}  # best first; d, f and g lose to narrower ones
    layers = {name: [0] if name in "fg" else [0, 1] for name in widths}
    ranked = [
        Candidate(LayersConfig(layers[name], "concat", name), width, 1, [0.5], [0.5]) for name, width in widths.items()
    ]
    assert "".join(one.name for one in choose_candidates(ranked, number)) == names


def test_a_run_that_was_replaced_is_no_seed_of_its_row(tmp_path: Path):
    records = [make_record(tmp_path, "last", seed, f1, 0.5, (5,)) for seed, f1 in enumerate([0.80, 0.0, 0.82], 1)]
    entry = Entrant("last", (5, 16), LayersConfig([5], "concat", "last"), records[0].identity)
    write_json(tmp_path / RACE, RaceSpec({}, [entry], Rules(0.05, 0.01, [1, 2, 3], 2, [], 2, VERSION)))
    write_decisions(tmp_path, Race(replaced=[("last", 2)]))
    assert read_outcome(tmp_path) == ({}, {records[1].key})
    (row,) = build_rows(tmp_path)
    assert ([record.seed for record in row.records.values()], row.missing) == ([1, 3], 0)


@pytest.mark.slow
def test_a_killed_or_doubled_race_gives_the_same(settings: list[str], tmp_path: Path):
    alone, killed, twice = (tmp_path / name for name in ("alone", "killed", "twice"))
    for folder in (alone, killed, twice):
        folder.mkdir()
    _, errors = finish(a_process(*race(), *settings, cwd=alone))
    assert read_decisions(alone / "out") is not None, errors
    for seen in (1, 4):
        process = a_process(*race(), *settings, cwd=killed)
        wait_for(lambda seen=seen: num_records(killed) >= seen, 300, f"{seen} records", process)  # type: ignore[misc]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert num_records(killed) < num_records(alone)
    both = [a_process(*race(), *settings, cwd=twice) for _ in range(2)]
    for process in (a_process(*race(), *settings, cwd=killed), *both):
        _, errors = finish(process)
        assert process.returncode == 0, errors
    for folder in (killed, twice):
        assert results(folder / "out") == results(alone / "out")
        assert (folder / "out/decisions.json").read_text() == (alone / "out/decisions.json").read_text()
        assert replace(asked(folder), started="") == replace(asked(alone), started="")


def test_rows_named_and_rows_screened_are_normalized_as_the_settings_say(
    typed: Typed, settings: list[str], monkeypatch: pytest.MonkeyPatch
):
    seen: list[list[str | None]] = []

    def stop(named, seeds, base, candidates, *rest):
        seen.append([cfg.layers.normalize for cfg in named] + [cfg.layers.normalize for cfg in candidates()[0]])
        raise UserError("seen")

    monkeypatch.setattr("probe.race.race.run_race", stop)
    candidates = ["race.candidates=2", "screen.sentences=40", "screen.samples=2"]
    for how in ("layers.normalize=scale", "layers.normalize=none"):
        assert typed("race", *settings, *candidates, "race.rows=[layer_0]", how).returncode == 2
        assert typed("race", *settings, "race.candidates=0", how).returncode == 2
    assert seen[0] == ["scale"] * 3
    assert set(seen[1]) == {"scale"}
    assert len(seen[1]) > 5, "all presets, as no row is named"
    assert [set(one) for one in seen[2:]] == [{None}, {None}]
