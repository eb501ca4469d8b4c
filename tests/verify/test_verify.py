"""`probe verify` lets pass what is true, and names the place of whatever was changed."""

from __future__ import annotations

import copy
import csv
import io
import json
import lzma
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.facts import names, numbers_in
from support.records import committed_sets

from probe.cli import dispatch
from probe.config import UserError
from probe.report.page import write_report
from probe.runs.records import RunRecord, SplitScores, load_record
from probe.settings import config_of
from probe.tables.formats import render
from probe.tables.rows import build_rows
from probe.verify.checks import Check, check_files
from probe.verify.reruns import check_against, choose_runs, compare_runs, rerun


def failed(folder: Path) -> list[Check]:
    return [check for check in check_files(folder) if check.ok is False]


def first_record(folder: Path) -> Path:
    return min((folder / "records").iterdir())


def edit(record: Path, change) -> None:
    content = json.loads(record.read_text())
    change(content)
    record.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("committed", committed_sets(), ids=lambda folder: folder.name)
def test_the_results_that_come_with_the_project_hold(committed: Path, tmp_path: Path):
    checks = list(check_files(committed))
    assert sum(check.ok is True for check in checks) > 15
    assert [check.line() for check in checks if check.ok is False] == []


def test_an_untouched_folder_holds(results: Path):
    checks = {check.name: check.ok for check in check_files(results)}
    records = [path.name for path in (results / "records").iterdir()]
    assert checks == dict.fromkeys([*records, "sweep.json", "table.json"], True)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda r: r["scores"]["test"]["span"].update(f1=0.5), ["scores.test.span.f1", 0.5]),
        (lambda r: r["scores"]["dev"]["per_type"]["PER"].update(gold=3), ["scores.dev.per_type.PER.gold", 3]),
        (lambda r: r["identity"].update(seed=9), ["key", "identity"]),
        (lambda r: r["config"].update(seed=9), ["config.seed", 9, 1]),
        (lambda r: r["config"]["probe"].update(dropout=0.1), ["config.probe.dropout", 0.1]),
        (lambda r: r["layers"].update(indices=[3]), ["layers.indices[0]", 3, 0]),
        (lambda r: r["features"]["identity"].update(text="0" * 64), ["features.identity"]),
        (lambda r: r["encoder"]["fingerprint"].update(weights="0" * 64), ["encoder.fingerprint"]),
        (lambda r: r.pop("scores"), ["scores"]),
        (lambda r: r.pop("curve"), ["curve"]),
        (lambda r: r["data"].pop("splits"), ["data.splits"]),
        (lambda r: r["scores"].update(dev=[]), ["scores.dev", "object", "array"]),
        (lambda r: r["encoder"]["fingerprint"].pop("weights"), ["encoder.fingerprint"]),
        (lambda r: r["layers"].update(width=1), ["layers.width", 1, 16]),
        (lambda r: r["data"].update(task="spansx"), ["data.task", "spansx", "spans"]),
        (lambda r: r["config"]["features"].pop("subword"), ["config.features.subword"]),
        (lambda r: r["config"]["probe"].pop("num_layers"), ["config.probe.num_layers"]),
        (lambda r: r["config"]["layers"].update(indices=[3]), ["identity.layers.indices[0]", 0, 3]),
        (lambda r: r["encoder"].update(name="other"), ["encoder.name", "other"]),
        (lambda r: r.update(row="last"), ["row", "last", "embeddings"]),
        (lambda r: r["config"]["features"].update(stride=0.25), ["config.features.stride", 0.25, 0.5]),
        (lambda r: r["config"]["encoder"].update(weights="random"), ["config.encoder.weights", "random"]),
        (lambda r: r["config"]["data"].update(control=3), ["config.data.control", 3]),
        (lambda r: r["data"].update(name="conll2003"), ["data.name", "conll2003", "tiny"]),
        (lambda r: r["data"]["splits"]["dev"].update(words=14041), ["data.splits.dev.words", 14041]),
        (lambda r: r["data"]["splits"]["test"].update(documents=7), ["data.splits.test.documents", 7, 10]),
        (lambda r: r["data"]["splits"]["train"].update(words=14041), ["data.splits.train.words", 14041]),
        (lambda r: r["encoder"].update(lower_cases=not r["encoder"]["lower_cases"]), ["encoder"]),
        (lambda r: r.update(best_epoch=99), ["best_epoch", 99]),
        (lambda r: [epoch.update(dev=0.999) for epoch in r["curve"]], ["curve", 0.999]),
    ],
)
def test_whatever_is_changed_in_a_record_is_named(results: Path, change, facts: list):
    record = first_record(results)
    edit(record, change)
    found = [check for check in failed(results) if check.name == record.name]
    assert len(found) == 1
    names(found[0].detail, *facts)


def test_a_changed_fact_in_the_table_is_named_with_its_row(results: Path):
    table = results / "table.json"
    rows = json.loads(table.read_text())
    changes: list[tuple[Callable[[dict], object], str]] = [
        (lambda row: row.update(dev_mean=row["dev_mean"] + 1e-6), "dev_mean"),
        (lambda row: row.update(strict_std=0.5), "strict_std"),
        (lambda row: row.update(n=3), "n"),
        (lambda row: row["seeds"].append(3), "seeds"),
        (lambda row: row.update(width=7), "width"),
        (lambda row: row.update(missing=1), "missing"),
        (lambda row: row["keys"].reverse(), "keys"),
        (lambda row: row.update(parameters=7), "parameters"),
        (lambda row: row.pop("dev_mean"), "dev_mean"),
    ]
    for change, place in changes:
        changed = copy.deepcopy(rows)
        change(changed[1])
        table.write_text(json.dumps(changed))
        check = next(check for check in failed(results) if check.name == "table.json")
        names(check.detail, "last", place)
    for changed in (rows[:2], [*rows, rows[0]]):
        table.write_text(json.dumps(changed))
        (check,) = failed(results)
        assert check.name == "table.json"
        names(check.detail, 3)


def test_words_and_rounding_in_the_table_are_no_facts(results: Path):
    table = results / "table.json"
    rows = json.loads(table.read_text())
    for row in rows:
        row["dev_mean"] += 1e-15
        row["another_field"] = 1
    table.write_text(json.dumps(rows))
    for name in ("table.md", "table.csv", "table.tex", "report.html"):
        (results / name).write_text("said otherwise\n")
    shutil.rmtree(results / "figures")
    assert failed(results) == []


@pytest.mark.parametrize("content", ["{", "{}", "[1]", '[{"n": 1}]', '[{"keys": ["a"], "sha256": []}]', "null", "[]"])
def test_a_table_json_that_is_none_fails_and_is_no_traceback(results: Path, content: str):
    (results / "table.json").write_text(content)
    assert "table.json" in {check.name for check in failed(results)}


@pytest.mark.parametrize("name", ["dev_mean", "n", "margin"])
def test_a_number_in_the_table_beyond_all_floats_is_no_traceback(results: Path, name: str):
    table = results / "table.json"
    rows = json.loads(table.read_text())
    rows[0][name] = 10**400
    table.write_text(json.dumps(rows))
    assert [check.name for check in failed(results)] == ["table.json"]


def test_one_changed_prediction_is_named(results: Path):
    predictions = min((results / "predictions").glob("*.test.conll"))
    text = predictions.read_text()
    word = re.search(r" O\n", text)
    assert word is not None
    predictions.write_text(text[: word.start()] + " B-PER\n" + text[word.end() :])
    (check,) = failed(results)
    names(check.detail, f"sha256 of {predictions.name}", "PER")


def test_changed_lost_and_broken_counts_are_named(results: Path):
    first, second, third = sorted((results / "counts").iterdir())[:3]
    counts = json.loads(lzma.decompress(first.read_bytes()))
    counts["test"]["right_tags"][0] -= 1
    first.write_bytes(lzma.compress(json.dumps(counts).encode()))
    second.unlink()
    third.write_bytes(b"broken")
    details = [check.detail for check in failed(results) if check.name.endswith(".json") and check.name != "table.json"]
    names(details[0], "scores.test.accuracy", first.name, "sha256")
    names(details[1], second.name)
    names(details[2], third.name)
    assert len(details) == 3


def test_a_damaged_sweep_json_is_named(results: Path):
    (results / "sweep.json").write_text("{")
    assert [check.name for check in failed(results)] == ["sweep.json", "table.json"]


def test_a_folder_may_have_any_name(results: Path, typed: Callable):
    assert typed("verify", str(results.rename(results.parent / "seed=1"))).returncode == 0


def test_a_run_made_again_has_the_same_bits(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results", "--rerun", "mix_all", "--seed", "2"]) == 0
    names(capsys.readouterr().out, "ok           mix_all seed 2", "text data", "/swept/cache")


def test_a_row_that_was_mistyped_is_corrected(results: Path):
    with pytest.raises(UserError, match="mix_all"):
        choose_runs(results, "mix_al", None)


def test_a_run_that_says_another_score_than_its_rerun_fails(results: Path, capsys: pytest.CaptureFixture[str]):
    record = next((results / "records").glob("last-seed1*"))
    edit(record, lambda r: r["scores"]["test"].update(headline=0.5))
    edit(record, lambda r: r["software"].update(git={"commit": "0123456789ab", "dirty": False}))
    assert dispatch(["verify", "results", "--rerun", "last", "--seed", "1"]) == 1
    told = capsys.readouterr().out
    names(told, "(test)", "0123456789")


def test_a_run_that_today_would_be_another_is_not_trained_again(results: Path):
    record = load_record(first_record(results))
    older = replace(record.identity, version=99)
    (check,) = rerun([replace(record, identity=older, key=older.key)], config_of, [])
    assert check.ok is False
    names(check.detail, "version")


def test_elsewhere_a_run_may_differ_with_reasons(results: Path):
    record = load_record(first_record(results))

    def with_test(record: RunRecord, f1: float, gold: int) -> RunRecord:
        test = record.scores.test
        test = replace(test, headline=f1, counts=replace(test.counts, gold=gold))
        dev = replace(record.scores.dev, counts=replace(record.scores.dev.counts, gold=5942))
        return replace(record, scores=SplitScores(dev, test))

    versions = {**record.software.versions, "torch": "1.0"}
    elsewhere = replace(record, software=replace(record.software, versions=versions))
    reference = with_test(elsewhere, 0.80, 400)  # two standard errors: 2 * sqrt(0.8 * 0.2 / 400) = 4.0 points
    check = compare_runs(reference, with_test(record, 0.75, 400), "x")
    assert check.ok is False
    assert (check.ok, numbers_in(check.detail)[:4]) == (False, [0.0, 5.0, 2.0, 4.0])  # dev, test, and what is allowed
    names(check.detail, "torch 1.0")
    assert compare_runs(reference, with_test(record, 0.761, 400), "x").ok
    large = compare_runs(with_test(elsewhere, 0.80, 5648), with_test(record, 0.761, 5648), "x")
    assert (large.ok, numbers_in(large.detail)[:4]) == (False, [0.0, 3.9, 2.0, 2.0])
    edited = with_test(elsewhere, 7.5, 5648)
    assert compare_runs(edited, with_test(record, 0.761, 5648), "x").ok is False


def test_the_same_runs_made_elsewhere_agree(results: Path, tmp_path: Path):
    shutil.copytree(results, tmp_path / "other")
    next((tmp_path / "other/records").glob("last-seed1*")).unlink()
    checks = {check.name: check.ok for check in check_against(tmp_path / "other", results)}
    assert [name for name, ok in checks.items() if not ok] == ["last seed 1"]
    assert checks["last seed 1"] is None
    assert len(checks) == 6


def test_broken_predictions_and_lacking_counts_are_named(results: Path):
    record = first_record(results)
    predictions = results / "predictions" / f"{record.stem}.test.conll"
    predictions.write_text(predictions.read_text() + "\nbroken\n")
    other = sorted((results / "records").iterdir())[1]
    counts = json.loads(lzma.decompress((results / "counts" / f"{other.stem}.json.xz").read_bytes()))
    del counts["test"]
    (results / "counts" / f"{other.stem}.json.xz").write_bytes(lzma.compress(json.dumps(counts).encode()))
    details = {check.name: check.detail for check in failed(results)}
    names(details[record.name], predictions.name)
    names(details[other.name], other.stem, "test")


def test_what_verify_would_not_look_at_is_refused(results: Path):
    for arguments, named in (
        (["results", "data.path=x"], "--rerun"),
        (["results", "other"], "other"),
        (["results", "--rerun", "--against", "other"], "--against"),
        (["results", "--sample", "2"], "--sample"),
        (["results", "--rerun", "--sample", "0"], "--sample"),
    ):
        with pytest.raises(UserError, match=named):
            dispatch(["verify", *arguments])


def test_a_deleted_seed_is_named_and_counted_in_tables(results: Path):
    for file in list(results.rglob("last-seed1-*")):
        file.unlink()
    write_report(results)
    (check,) = failed(results)
    names(f"{check.name} {check.detail}", "sweep.json", 1, 6, "last seed 1")
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
    checks = {check.name: check for check in check_files(results)}
    assert [name for name, check in checks.items() if not check.ok] == ["sweep.json", "table.json"]
    assert [checks[name].ok for name in ("sweep.json", "table.json")] == [None, None]


def test_verify_ends_with_what_it_cannot_tell(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results"]) == 0
    names(capsys.readouterr().out, "probe verify results --rerun", "probe report results")


def test_a_sample_is_drawn_from_the_runs_of_row_and_seed(results: Path):
    samples = {tuple(record.label for record in choose_runs(results, None, None, 2)) for _ in range(30)}
    assert len(samples) > 5
    assert {record.row for record in choose_runs(results, "last", None, 1)} == {"last"}
    assert len(choose_runs(results, None, None, 100)) == 6


def test_what_is_no_record_fails_a_comparison_too(results: Path, tmp_path: Path):
    shutil.copytree(results, tmp_path / "other")
    file = next((tmp_path / "other/records").glob("last-seed1*"))
    file.write_text("{")
    (check,) = [check for check in check_against(results, tmp_path / "other") if check.ok is False]
    names(f"{check.name} {check.detail}", file.name, f"other/records/{file.name}")
