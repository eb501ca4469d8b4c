"""`probe verify` lets pass what is true, and names the place of whatever was changed."""

from __future__ import annotations

import copy
import json
import lzma
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from support.facts import names, numbers_in
from support.records import committed_sets, make_record

from probe.cli import dispatch
from probe.config import UserError
from probe.report.page import write_report
from probe.runs.outputs import load_counts, write_counts
from probe.runs.records import RecordedEncoder, RunRecord, SplitScores, load_record
from probe.scoring.metrics import scores_of
from probe.settings import config_of
from probe.system.files import to_jsonable
from probe.tables.formats import render
from probe.tables.published import CONLL2003
from probe.tables.rows import build_rows
from probe.verify.reruns import compare_runs, rerun
from probe.verify.results import Check, check_files
from probe.verify.tables import compare_tables


def failed(folder: Path) -> list[Check]:
    return [check for check in check_files(folder, folder.parent) if check.ok is False]


CHANGED = ["table.json", "sha256"]  # what is named of a record that is consistent but not the one that was tabled


def first_record(folder: Path) -> Path:
    return min((folder / "records").iterdir())


def edit(record: Path, change) -> None:
    content = json.loads(record.read_text())
    change(content)
    record.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("committed", committed_sets(), ids=lambda folder: folder.name)
def test_the_results_that_come_with_the_project_hold(committed: Path, tmp_path: Path):
    checks = list(check_files(committed, tmp_path))
    assert sum(check.ok is True for check in checks) > 20
    assert [check.line() for check in checks if check.ok is False] == []


def test_an_untouched_folder_holds_and_its_inputs_were_looked_at(results: Path):
    checks = list(check_files(results, results.parent))
    assert not [check for check in checks if not check.ok and check.name != "table.json: decisions"]
    looked_at = {check.name for check in checks}
    assert {"table.json", "corpus tiny", *(path.name for path in (results / "records").iterdir())} <= looked_at
    assert any(name.startswith("encoder") for name in looked_at)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda r: r["scores"]["test"]["span"].update(f1=0.5), ["scores.test.span.f1", 0.5]),
        (lambda r: r["scores"]["dev"]["per_type"]["PER"].update(gold=3), ["scores.dev.per_type.PER.gold", 3]),
        (lambda r: r.update(best_epoch=3 - r["best_epoch"]), ["best_epoch"]),
        (lambda r: r["identity"].update(seed=9), ["key", "identity"]),
        (lambda r: r["config"].update(seed=9), ["config.seed", 9, 1]),
        (lambda r: r["config"]["probe"].update(dropout=0.1), ["config.probe.dropout", 0.1]),
        (lambda r: r["layers"].update(indices=[3]), ["layers.indices", "[3]"]),
        (
            lambda r: r["config"]["features"].update(context="document"),
            ["config.features.context", "document", "sentence"],
        ),
        (lambda r: r["features"]["identity"].update(text="0" * 64), ["features.key", "features.identity"]),
        (lambda r: r["encoder"]["fingerprint"].update(weights="0" * 64), ["encoder.fingerprint"]),
        (lambda r: r["curve"][0].update(dev=0.99), ["curve"]),
        (lambda r: r.pop("scores"), ["scores"]),
        (lambda r: r.pop("curve"), ["curve"]),
        (lambda r: r["data"].pop("splits"), ["data.splits"]),
        (lambda r: r["scores"].update(dev=[]), ["scores.dev", "object", "array"]),
        (lambda r: r["data"]["splits"]["dev"].update(words=7), ["data.splits.dev.words", 7]),
        (lambda r: r["config"]["data"].pop("path"), CHANGED),
        (lambda r: r["encoder"]["fingerprint"].pop("weights"), ["encoder.fingerprint"]),
        (lambda r: r["scores"]["test"]["slices"].popitem(), CHANGED),
        (lambda r: r["layers"].update(width=1), ["layers.width", 1, 16]),
        (lambda r: r["data"].update(task="spansx"), ["data.task", "spansx", "spans", "tags"]),
        (lambda r: r["config"]["features"].pop("subword"), ["config.features.subword"]),
        (lambda r: r["config"]["probe"].pop("num_layers"), ["config.probe.num_layers"]),
        (lambda r: r["scores"]["test"]["slices"]["span of 1"].update(gold=9), ["test", "span of"]),
        (lambda r: r["scores"]["test"]["slices"]["span of 1"].update(recall=0.9), [".test.conll", "span of 1"]),
        (lambda r: r["curve"][0].update(loss=0.1), CHANGED),
        (lambda r: r["config"]["layers"].update(indices=[3]), CHANGED),
        (lambda r: r["encoder"].update(name="other"), CHANGED),
        (lambda r: r.update(parameters=7), CHANGED),
        (lambda r: r["software"]["versions"].update(torch="1.0"), CHANGED),
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
        (lambda row: row["dev_f1"].update(mean=row["dev_f1"]["mean"] + 1e-6), "dev_f1.mean"),
        (lambda row: row["test_strict_f1"].update(std=0.5), "test_strict_f1.std"),
        (lambda row: row.update(n=3), "n"),
        (lambda row: row["seeds"].append(3), "seeds"),
        (lambda row: row.update(width=7), "width"),
        (lambda row: row.update(missing=1), "missing"),
        (lambda row: row["keys"].reverse(), "keys"),
        (lambda row: row["cost"].update(parameters=7), "cost.parameters"),
        (lambda row: row.pop("dev_f1"), "dev_f1"),
    ]
    for change, place in changes:
        changed = copy.deepcopy(rows)
        change(changed[1])
        table.write_text(json.dumps(changed))
        check = next(check for check in failed(results) if check.name == "table.json")
        names(check.detail, "last", place)
    for changed, row in ((rows[:2], "mix_all"), ([*rows, rows[0]], "embeddings")):
        table.write_text(json.dumps(changed))
        (check,) = failed(results)
        names(check.detail, row)


def test_words_and_rounding_in_the_table_are_no_facts(results: Path):
    table = results / "table.json"
    rows = json.loads(table.read_text())
    for row in rows:
        row["dev_f1"]["mean"] += 1e-15
        row["about"] = row["setting"] = "said otherwise"
        row["recommendation"]["none"] = "said otherwise"
        row["another_field"] = 1
        row.pop("to_best")
    table.write_text(json.dumps(rows))
    for name in ("table.md", "table.csv", "table.tex", "report.html"):
        (results / name).write_text("said otherwise\n")
    shutil.rmtree(results / "figures")
    assert failed(results) == []


@pytest.mark.parametrize("content", ["{", "{}", "[1]", '[{"n": 1}]', '[{"keys": ["a"], "sha256": []}]', "null", "[]"])
def test_a_table_json_that_is_none_fails_and_is_no_traceback(results: Path, content: str):
    (results / "table.json").write_text(content)
    assert "table.json" in {check.name for check in failed(results)}


def test_decisions_are_compared_under_the_same_statistic(results: Path):
    made = json.loads(render(build_rows(results), "json"))
    now = [row | {"statistic": 2, "order": "best", "against": {"best": {"p": 0.2, "row": "a"}}} for row in made]

    def decisions(**changes: object) -> bool | None:
        table, decided = compare_tables([row | changes for row in now], now)
        assert (table.name, table.ok, decided.name) == ("table.json", True, "table.json: decisions")
        return decided.ok

    assert decisions() is True
    assert decisions(against={"best": {"p": 0.2 + 1e-9, "row": "a"}}) is True
    assert decisions(against={"best": {"p": 0.201, "row": "a"}}) is False
    assert decisions(against={"best": {"p": 0.2, "row": "b"}}) is False
    assert decisions(order="tied") is False
    assert decisions(verdict={"none": "some words"}) is True
    assert decisions(order="tied", statistic=1) is None
    assert decisions(order="tied", statistic=None) is None


def test_one_changed_prediction_is_named(results: Path):
    predictions = min((results / "predictions").glob("*.test.conll"))
    text = predictions.read_text()
    word = re.search(r" O\n", text)
    assert word is not None
    predictions.write_text(text[: word.start()] + " B-PER\n" + text[word.end() :])
    (check,) = failed(results)
    names(check.detail, predictions.name, "sha256")
    assert re.search(r"\(\w+:PER\)", check.detail), "the column of the counts"


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


def test_another_text_under_the_same_name_is_noticed(results: Path):
    file = results.parent / "data" / "test.conll"
    file.write_text(file.read_text().replace("paris", "leeds", 1))
    (check,) = failed(results)
    assert check.name == "corpus tiny"
    names(check.detail, "embeddings seed 1")
    shutil.rmtree(file.parent)
    assert failed(results) == []
    assert "corpus tiny" in {check.name for check in check_files(results, results.parent) if check.ok is None}


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_device_that_a_record_names_is_not_read(results: Path, split: str):
    (results / "table.json").unlink()
    for file in (results / "records").iterdir():
        edit(file, lambda content: content["config"]["data"].update({split: "/dev/null"}))
    (corpus,) = [check for check in check_files(results, results.parent) if check.name == "corpus tiny"]
    assert corpus.ok is None


def test_records_that_read_a_cased_vocabulary_lower_cased_are_named(results: Path, tmp_path: Path):
    record = load_record(first_record(results))
    folder = Path(shutil.copytree(record.config.encoder["path"], tmp_path / "cased"))
    (folder / "tokenizer.json").unlink()
    pieces = (folder / "vocab.txt").read_text().split("\n")
    (folder / "vocab.txt").write_text("\n".join(piece.title() if piece.isalpha() else piece for piece in pieces))
    (results / "table.json").unlink()

    def checked(**encoder: object) -> list[Check]:
        for file in (results / "records").iterdir():
            edit(file, lambda content: content["config"]["encoder"].update(encoder))
        return [check for check in check_files(results, tmp_path) if check.name.startswith("case of")]

    assert checked() == []
    (check,) = checked(path=str(folder))
    assert check.ok is False
    names(check.detail, "encoder.lower_case=false", record.label)
    assert checked(lower_case=True) == []


def test_a_damaged_sweep_json_is_named(results: Path):
    (results / "sweep.json").write_text("{")
    assert [check.name for check in failed(results)] == ["sweep.json", "table.json"]


def test_a_folder_may_have_any_name(results: Path, typed: Callable):
    assert typed("verify", str(results.rename(results.parent / "seed=1"))).returncode == 0


def forged(results: Path, change: Callable[[dict], None]) -> list[str]:
    """What verify says after one run's counts were changed, and scores, sums and hashes made to fit them."""
    file = first_record(results)
    counts, _ = load_counts(file)
    change(counts["dev"])
    sha256 = write_counts(file, counts)
    again = to_jsonable(scores_of({name: column for name, column in counts["dev"].items() if name != "documents"}))

    def fit(record: dict) -> None:
        record["scores"]["dev"] = {**again, "slices": record["scores"]["dev"]["slices"]}
        record["sha256"]["counts"] = sha256
        record["curve"][record["best_epoch"] - 1]["dev"] = again["span"]["f1"]

    edit(file, fit)
    write_report(results)
    return [check.detail for check in failed(results)]


def test_counts_of_a_type_without_predictions_are_named(results: Path):
    def more(counts: dict) -> None:
        for kind in ("gold", "predicted", "correct"):
            counts[f"{kind}:ZZZ"] = [9] * len(counts["words"])

    told = "; ".join(forged(results, more))
    names(told, ".dev.conll", "correct:ZZZ")
    assert re.search(r"dev\D* \d+ spans\D* \d+", told)


def test_another_gold_standard_is_named_with_and_without_the_corpus(results: Path):
    def other(counts: dict) -> None:
        gold = next(name for name in counts if name.startswith("gold:"))
        first = next(i for i, number in enumerate(counts[gold]) if number)
        counts[gold][first], counts[gold][first - 1] = counts[gold][first - 1], counts[gold][first]

    shutil.rmtree(results / "predictions")
    forged(results, other)
    assert {"gold tags", "corpus tiny"} <= {check.name for check in failed(results)}
    shutil.rmtree(results.parent / "data")
    assert "gold tags" in {check.name for check in failed(results)}


def test_a_run_at_the_epoch_limit_did_not_converge(results: Path):
    edit(first_record(results), lambda record: record.update(outcome="converged"))
    write_report(results)
    (check,) = failed(results)
    names(check.detail, "outcome", "converged", "never_learned")


def test_a_run_made_again_has_the_same_bits(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results", "--rerun", "mix_all", "--seed", "2", "--format", "json"]) == 0
    (check,) = json.loads(capsys.readouterr().out)
    assert (check["name"], check["ok"]) == ("mix_all seed 2", True)


def test_a_run_that_says_another_score_than_its_rerun_fails(results: Path, capsys: pytest.CaptureFixture[str]):
    record = next((results / "records").glob("last-seed1*"))
    edit(record, lambda r: r["scores"]["test"]["span"].update(f1=0.5))
    edit(record, lambda r: r["software"].update(git={"commit": "0123456789ab", "dirty": False}))
    assert dispatch(["verify", "results", "--rerun", "last", "--seed", "1"]) == 1
    told = capsys.readouterr().out
    names(told, "scores.test.span.f1", "0123456789")


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
        assert test.span is not None
        test = replace(test, span=replace(test.span, f1=f1), counts=replace(test.counts, gold=gold))
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


def test_other_bfloat16_kernels_are_other_hardware(results: Path):
    older = load_record(first_record(results))
    scores = replace(older.scores, test=replace(older.scores.test, accuracy=0.5))
    slow = replace(older, scores=scores, hardware=replace(older.hardware, bfloat16="pytorch"))
    elsewhere = compare_runs(older, slow, "x")
    names(elsewhere.detail, "bfloat16", "native", "pytorch")
    assert elsewhere.ok
    native = replace(slow, hardware=replace(older.hardware, bfloat16="native"))
    here = compare_runs(older, native, "x")
    assert (here.ok, "bfloat16" in here.detail) == (False, False)


def test_the_same_runs_made_elsewhere_agree(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(results, tmp_path / "other")
    next((tmp_path / "other/records").glob("last-seed1*")).unlink()
    assert dispatch(["verify", "other", "--against", "results", "--format", "json"]) == 0
    checks = {check["name"]: check["ok"] for check in json.loads(capsys.readouterr().out)}
    assert [name for name, ok in checks.items() if not ok] == ["last seed 1"]
    assert checks["last seed 1"] is None
    assert len(checks) == 6


def test_against_the_paper_every_difference_of_setting_is_named(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results", "--against", "paper", "--format", "json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in checks] == ["embeddings", "last", "mix_all"]
    assert checks[0]["ok"] is None, "unlike things are not judged"
    names(checks[0]["detail"], "data tiny", "CoNLL-2003", "context sentence", "document", "seeds 2", 5)


def test_against_flair_dev_and_test_are_held_or_it_is_said_what_it_has(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert dispatch(["verify", "results", "--against", "flair", "--format", "json"]) == 0
    (none,) = json.loads(capsys.readouterr().out)
    assert (none["name"], none["ok"]) == ("flair", None)
    names(none["detail"], "bert-base-cased", "mean of layers 0 to L")
    bert = RecordedEncoder("bert-base-cased", "Hub x", {}, False, 6, 16)
    make_record(tmp_path / "like", "all", 1, 0.95, 0.91, tuple(range(7)), "mean", splits=CONLL2003, encoder=bert)
    assert dispatch(["verify", str(tmp_path / "like"), "--against", "flair", "--format", "json"]) == 0
    dev, test = json.loads(capsys.readouterr().out)
    names(dev["detail"], "95.00", "94.74", "+0.26")
    names(test["detail"], "91.00", "91.38", "-0.38")
    names(dev["detail"], "BiLSTM-CRF")
    assert (dev["ok"], test["ok"]) == (None, None)


def test_verify_without_rerun_needs_no_torch(results: Path):
    code = (
        "import sys\nfrom probe.cli import dispatch\nassert dispatch(['verify', 'results']) == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pytorch_lightning'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=results.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_figures_open_and_are_not_blank(results: Path):
    pictures = sorted((results / "figures").glob("*.png"))
    assert [p.stem for p in pictures] == ["mix_weights", "scores"]
    for picture in pictures:
        pixels = matplotlib.image.imread(picture)
        assert pixels.shape[0] > 300
        assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


class Page(HTMLParser):
    """Counts what is opened and closed, and collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        links = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.fetched += [link for link in links if link and not link.startswith(("#", "data:"))]

    def handle_data(self, data):
        self.text += data


def test_the_page_holds_everything_and_fetches_nothing(results: Path):
    page = Page()
    page.feed((results / "report.html").read_text())
    assert page.fetched == []
    assert page.open.count("img") == 2
    assert "script" not in page.open
    names(page.text, "results --rerun embeddings --seed 1")
    for record in (results / "records").iterdir():
        assert record.name in page.text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.slow
def test_the_page_renders_in_a_browser(results: Path, tmp_path: Path):
    picture, page = tmp_path / "page.png", results / "report.html"
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,2600"]
    subprocess.run(
        [*chromium, f"--user-data-dir={tmp_path / 'browser'}", f"--screenshot={picture}", f"file://{page}"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    pixels = matplotlib.image.imread(picture)
    quarters = np.array_split(pixels, 4)
    assert all(len(np.unique(quarter.reshape(-1, pixels.shape[2]), axis=0)) > 20 for quarter in quarters[:3])


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
    (results / "predictions" / f"{record.stem}.dev.conll").unlink()
    again = {check.name: check.detail for check in failed(results)}
    names(again[record.name], f"{record.stem}.dev.conll")
    names(details[other.name], other.stem, "test")


def test_an_invalid_tag_and_a_missing_column_are_named(results: Path):
    first, second = sorted((results / "records").iterdir())[:2]
    predictions = results / "predictions" / f"{first.stem}.test.conll"
    predictions.write_text(re.sub(r" \S+\n", " X\n", predictions.read_text(), count=1))
    file = results / "counts" / f"{second.stem}.json.xz"
    counts = json.loads(lzma.decompress(file.read_bytes()))
    del counts["dev"]["right_tags"]
    file.write_bytes(lzma.compress(json.dumps(counts).encode()))
    details = {check.name: check.detail for check in failed(results)}
    names(details[first.name], predictions.name, "'X'", "IOB2")
    names(details[second.name], file, "dev", "right_tags")


def test_what_verify_would_not_look_at_is_refused(results: Path):
    for arguments, named in (
        (["results", "data.path=x"], "--rerun"),
        (["results", "other"], "other"),
        (["results", "--rerun", "--against", "paper"], "--against"),
    ):
        with pytest.raises(UserError, match=named):
            dispatch(["verify", *arguments])
