"""What single records cannot tell: runs left out, runs under two seeds, and what only training again finds."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.facts import names, numbers_in
from support.records import made_scores, make_record

from probe.cli import dispatch
from probe.config import UserError
from probe.report.page import write_report
from probe.runs.progress import lines, status_of
from probe.runs.records import Checksums, Epoch, SplitScores, load_records
from probe.scoring.metrics import Totals
from probe.tables.formats import render
from probe.tables.rows import build_rows
from probe.verify.check import Check
from probe.verify.complete import check_complete
from probe.verify.reruns import choose_runs
from probe.verify.results import check_files


def told(folder: Path) -> dict[str, Check]:
    return {check.name: check for check in check_files(folder, folder.parent)}


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


def test_unrequested_runs_and_other_names_are_no_failure(results: Path):
    content = json.loads((results / "sweep.json").read_text())
    content["runs"] = [run for run in content["runs"] if run["row"] != "last"]
    for run in content["runs"]:
        run["row"] = run["row"].replace("embeddings", "layer_0")
    (results / "sweep.json").write_text(json.dumps(content))
    checks = told(results)
    assert not [check for check in checks.values() if check.ok is False]
    assert checks["sweep.json: runs asked for"].ok
    names(checks["sweep.json: runs asked for"].detail, 4)
    assert checks["sweep.json: other runs"].ok is None
    names(checks["sweep.json: other runs"].detail, 2, "last seed 1", "last seed 2")
    names(checks["sweep.json: names of rows"].detail, "layer_0", "embeddings")
    (results / "sweep.json").unlink()
    assert told(results)["sweep.json: runs asked for"].ok is None


def test_what_was_deleted_is_a_line_and_no_silence(results: Path):
    (results / "table.json").unlink()
    shutil.rmtree(results / "predictions")
    checks = told(results)
    assert checks["table.json"].ok is checks["predictions"].ok is None
    names(checks["table.json"].detail, "sha256", "probe report")
    assert numbers_in(checks["predictions"].detail) == [6, 6]
    assert not [check for check in checks.values() if check.ok is False]


@pytest.mark.parametrize(
    ("losses", "counts", "wrong", "ok", "same"),
    [
        ((0.5, 0.5), ("a", "b"), 30, False, "losses"),
        ((0.5, 0.6), ("a", "a"), 30, False, "predictions"),
        ((0.5, 0.6), ("a", "a"), 2, None, "predictions"),
        ((0.5, 0.6), ("a", "b"), 30, True, None),
    ],
)
def test_one_run_under_two_seeds_is_found_out(
    tmp_path: Path, losses, counts, wrong: int, ok: bool | None, same: str | None
):
    scores = replace(made_scores(0.8), counts=Totals(2, 10, 9, 5 + wrong // 2, 5))
    for seed, loss, sha256 in zip((1, 2), losses, counts, strict=True):
        curve, sums = [Epoch(loss, 0.8, 1.0)], Checksums(sha256, {})
        make_record(tmp_path, "last", seed, 0.8, 0.7, curve=curve, sha256=sums, scores=SplitScores(scores, scores))
    (check,) = [check for check in check_complete(tmp_path, load_records(tmp_path)) if check.name == "seeds"]
    assert check.ok is ok
    if same:
        names(check.detail, same, "last seed 1", "last seed 2")


def test_seeds_that_predict_nothing_may_agree_in_that(tmp_path: Path):
    scores = replace(made_scores(0.0), counts=Totals(2, 10, 9, 0, 0))
    for seed in (1, 2):
        curve = [Epoch(seed / 10, 0.0, 1.0)]
        make_record(tmp_path, "last", seed, 0.0, 0.0, curve=curve, scores=SplitScores(scores, scores))
    (check,) = [check for check in check_complete(tmp_path, load_records(tmp_path)) if check.name == "seeds"]
    assert check.ok


def test_where_every_word_gets_one_tag_seeds_may_agree(tmp_path: Path):
    for seed in (1, 2):
        record = make_record(tmp_path, "last", seed, 0.8, 0.7, curve=[Epoch(seed / 10, 0.8, 1.0)])
        file = next((tmp_path / "records").glob(f"*seed{seed}*"))
        content = json.loads(file.read_text())
        content["data"]["task"] = "tags"
        for split in content["scores"].values():
            split["per_type"] = {"N": {"precision": 0.5, "recall": 1.0, "f1": 0.6, "gold": 50}}
            split["counts"] |= {"predicted": 100, "correct": 50}
        file.write_text(json.dumps(content))
        assert record.seed == seed
    (check,) = [check for check in check_complete(tmp_path, load_records(tmp_path)) if check.name == "seeds"]
    assert check.ok is None


def test_verify_ends_with_what_it_cannot_tell(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results"]) == 0
    names(capsys.readouterr().out, "probe verify results --rerun", "--sample N", "sweep.json")


def test_an_emptied_sweep_json_is_not_called_missing(results: Path):
    (results / "sweep.json").write_text('{"runs": []}')
    (check,) = [check for check in check_complete(results, load_records(results)) if check.name.startswith("sweep")]
    assert check.ok is False
    with pytest.raises(UserError, match=r"sweep\.json"):
        list(lines(status_of(results)))


def test_a_sample_of_reruns_can_be_drawn_again(results: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["verify", "results", "--rerun", "--sample", "2", "--sample-seed", "5", "--format", "json"]
    assert dispatch(asked) == 0
    out, said = capsys.readouterr()
    drawn = [record.label for record in choose_runs(results, None, None, 2, 5)]
    names(said, *drawn, "--sample 2 --sample-seed 5")
    assert [(check["name"], check["ok"]) for check in json.loads(out)] == [(label, True) for label in drawn]


def test_a_sample_depends_on_seed_and_row(results: Path):
    samples = {tuple(record.label for record in choose_runs(results, None, None, 2, draw)) for draw in range(30)}
    assert len(samples) > 5
    assert {record.row for record in choose_runs(results, "last", None, 1, 3)} == {"last"}
    assert len(choose_runs(results, None, None, 100, 3)) == 6


def test_a_sample_without_a_rerun_is_refused(results: Path):
    for arguments in (["--sample", "2"], ["--rerun", "--sample-seed", "2"], ["--rerun", "--sample", "0"]):
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
