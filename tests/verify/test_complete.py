"""What single records cannot tell: runs left out, and what only training again finds."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from support.facts import names, numbers_in

from probe.cli import dispatch
from probe.config import UserError
from probe.report.page import write_report
from probe.tables.formats import render
from probe.tables.rows import build_rows
from probe.verify.check import Check
from probe.verify.reruns import choose_runs
from probe.verify.results import check_files


def told(folder: Path) -> dict[str, Check]:
    return {check.name: check for check in check_files(folder)}


def remove_run(folder: Path, name: str) -> None:
    for file in list(folder.rglob(f"{name}-*")):
        file.unlink()


def test_a_deleted_seed_is_named_and_counted_in_tables(results: Path):
    remove_run(results, "last-seed1")
    write_report(results)
    checks = told(results)
    assert [check.name for check in checks.values() if check.ok is False] == ["sweep.json: runs asked for"]
    names(checks["sweep.json: runs asked for"].detail, 1, 6, "last seed 1")
    rows = build_rows(results)
    for form in ("text", "md", "tex"):
        names(render(rows, form), "1 of 2")  # a cell
    assert [row["missing"] for row in json.loads(render(rows, "json"))] == [0, 1, 0]
    assert [line["missing"] for line in csv.DictReader(io.StringIO(render(rows, "csv")))] == ["0", "1", "0"]
    names((results / "report.html").read_text(), "1 of 2</td>")


def test_what_was_deleted_is_a_line_and_no_silence(results: Path):
    (results / "table.json").unlink()
    shutil.rmtree(results / "predictions")
    (results / "sweep.json").unlink()
    checks = told(results)
    unmade = ["sweep.json: runs asked for", "predictions", "table.json"]
    assert [checks[name].ok for name in unmade] == [None, None, None]
    names(checks["table.json"].detail, "probe report")
    assert numbers_in(checks["predictions"].detail) == [6]
    assert not [check for check in checks.values() if check.ok is False]


def test_verify_ends_with_what_it_cannot_tell(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results"]) == 0
    names(capsys.readouterr().out, "probe verify results --rerun")


def test_a_sample_is_drawn_from_the_runs_of_row_and_seed(results: Path):
    samples = {tuple(record.label for record in choose_runs(results, None, None, 2)) for _ in range(30)}
    assert len(samples) > 5
    assert {record.row for record in choose_runs(results, "last", None, 1)} == {"last"}
    assert len(choose_runs(results, None, None, 100)) == 6


def test_a_sample_without_a_rerun_is_refused(results: Path):
    for arguments in (["--sample", "2"], ["--rerun", "--sample", "0"]):
        with pytest.raises(UserError, match="--sample"):
            dispatch(["verify", "results", *arguments])


def test_what_is_no_record_fails_a_comparison_too(results: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(results, results.parent / "other")
    file = next((results.parent / "other/records").glob("last-seed1*"))
    file.write_text("{")
    assert dispatch(["verify", "results", "--against", "other", "--format", "json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks[file.name]["ok"] is False
    names(checks[file.name]["detail"], f"other/records/{file.name}")
