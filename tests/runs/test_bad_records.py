"""A record that cannot be read stops nothing: it is named, its run counts as missing, and the exit code is 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import probe
from support.records import expect, make_record

from probe.cli.main import dispatch
from probe.reporting.rows import build_rows
from probe.runs.expected import write_expected
from probe.runs.progress import lines


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """Two rows of two seeds that a sweep asked for, the second record without its scores; returns that file."""
    runs = [
        make_record(tmp_path, row, seed, 0.8, 0.7, (layer,))
        for row, layer in (("last", 6), ("x", 2))
        for seed in (1, 2)
    ]
    write_expected(tmp_path, [expect(run) for run in runs])
    file = next((tmp_path / "records").glob("last-seed2*"))
    content = json.loads(file.read_text())
    del content["scores"]
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("command", ["table", "report"])
def test_table_and_report_name_it_in_one_line_and_show_the_rest(spoilt: Path, command: str, capsys):
    folder = spoilt.parent.parent
    assert [(row.n, row.missing) for row in build_rows(folder)] == [(1, 1), (2, 0)]
    assert dispatch([command, str(folder)]) == 1
    said = capsys.readouterr()
    assert said.err == f"probe: not counted: {spoilt}: scores is missing. Move it away and run again.\n"
    if command == "table":
        assert "1 of 2" in said.out
    else:
        assert "scores is missing" in (folder / "report.html").read_text()


def test_tables_side_by_side_and_compared_name_it_too(spoilt: Path, tmp_path: Path, capsys):
    for option in ([], ["--compare"]):
        assert dispatch(["table", *option, str(tmp_path), str(tmp_path)]) == 1
        assert "scores is missing" in capsys.readouterr().err


def test_where_a_sweep_stands_is_told_without_it(spoilt: Path, tmp_path: Path):
    odd = next((tmp_path / "records").glob("x-seed1*"))
    odd.write_text(odd.read_text().replace("2026-01-01T10:00:00+00:00", "soon"))
    told = list(lines(tmp_path))
    assert "4 runs: 3 done, 0 running, 0 failed, 0 waiting, 1 with a record that cannot be read" in told[0]
    assert told[1] == f"no record  last seed 2: {spoilt}: scores is missing. Move it away and run again."


@pytest.mark.slow
def test_at_the_end_of_a_sweep_it_is_named_and_once_it_is_moved_the_run_is_made_again(
    inputs: list[str], tmp_path: Path
):
    sweep = ["-m", "layers=last", "seed=1,2", "results_dir=out", "jobs=1", *inputs]
    assert probe(*sweep, cwd=tmp_path).returncode == 0
    file = next((tmp_path / "out/records").glob("last-seed1*"))
    file.write_text("{")
    (tmp_path / "out/sweep.json").write_text("{")
    again = probe(*sweep, cwd=tmp_path)
    assert again.returncode == 1
    assert "Set aside as sweep.json.damaged-" in again.stdout
    assert "1 of 2" in again.stdout, "the table stands"
    assert again.stderr.startswith(f"probe: not counted: out/records/{file.name} is not a record:")
    assert len(again.stderr.splitlines()) == 1
    file.unlink()
    assert probe(*sweep, cwd=tmp_path).returncode == 0
    assert json.loads(file.read_text())["identity"]["seed"] == 1
