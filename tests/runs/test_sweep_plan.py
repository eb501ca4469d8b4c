"""What sweeps have asked for: kept by all of them, whatever happens to the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import SERVER
from support.records import expect, make_record

from probe.config import UserError, default_margin
from probe.runs.sweep_plan import RequestedRun, labels_of, read_asked, write_expected
from probe.tables.rows import build_rows


def _ask_one_by_one(folder: Path, runs: list[RequestedRun]) -> None:
    for run in runs:
        write_expected(folder, [run])


def test_sweeps_started_together_lose_no_requested_run(tmp_path: Path):
    run = expect(make_record(tmp_path / "elsewhere", "last", 1, 0.8, 0.7))
    runs = []
    for seed in range(60):
        identity = replace(run.identity, seed=seed)
        runs.append(replace(run, key=identity.key, identity=identity))
    processes = [SERVER.Process(target=_ask_one_by_one, args=(tmp_path, runs[i::4])) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    assert {run.key for run in read_asked(tmp_path).runs} == {run.key for run in runs}
    assert not list((tmp_path / "logs").iterdir())


def test_a_damaged_sweep_file_is_named(tmp_path: Path):
    there = expect(make_record(tmp_path, "last", 1, 0.8, 0.7))
    write_expected(tmp_path, [there])
    (tmp_path / "sweep.json").write_text('{"runs": [')
    for use in (build_rows, lambda folder: write_expected(folder, [there])):
        with pytest.raises(UserError, match=r"sweep\.json"):
            use(tmp_path)


def test_what_was_typed_first_is_kept(tmp_path: Path):
    runs = [expect(make_record(tmp_path, "last", seed, 0.80, 0.7)) for seed in (1, 2)]
    assert build_rows(tmp_path)[0].margin == default_margin()
    write_expected(tmp_path, runs[:1], margin=2, command="first")
    assert build_rows(tmp_path)[0].margin == 2
    write_expected(tmp_path, runs, margin=0, command="second")
    write_expected(tmp_path, runs, command="third")
    assert [run.command for run in read_asked(tmp_path).runs] == ["first", "second"]
    assert (build_rows(tmp_path)[0].margin, build_rows(tmp_path, 0.5)[0].margin) == (2, 0.5)


def test_runs_that_differ_in_a_setting_are_called_by_it(tmp_path: Path):
    run = expect(make_record(tmp_path, "last", 1, 0.8, 0.7))
    runs = [run]
    for seed, changed in ((2, {}), (1, {"hidden_size": 3}), (2, {"hidden_size": 3}), (3, {"hidden_size": 3})):
        probe = run.identity.probe | changed
        identity = replace(run.identity, seed=seed, probe=probe)
        runs.append(replace(run, key=identity.key, identity=identity, setting=replace(run.setting, probe=probe)))
    labels = list(labels_of(runs).values())
    assert len(set(labels)) == len(runs)
    assert ["probe.hidden_size=3" in label for label in labels] == [False, False, True, True, False]
    assert labels[4] == runs[4].label
