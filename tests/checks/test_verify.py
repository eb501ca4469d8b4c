"""`probe verify` lets pass what is true, and names the place of whatever was changed."""

from __future__ import annotations

import io
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
import PIL.Image
import PIL.PngImagePlugin
import pytest

from probe.checks.pictures import figure_differs
from probe.checks.reruns import compare_runs, rerun
from probe.checks.results import Check, check_files
from probe.cli.main import dispatch
from probe.cli.settings import config_of
from probe.config import UserError
from probe.reporting.figures import draw_all
from probe.reporting.page import write_report
from probe.reporting.rows import build_rows
from probe.runs.outputs import load_counts, write_counts
from probe.runs.records import RunRecord, SplitScores, load_record
from probe.scoring.metrics import scores_of
from probe.system.files import plain


def failed(folder: Path) -> list[Check]:
    return [check for check in check_files(folder, folder.parent) if check.ok is False]


def first_record(folder: Path) -> Path:
    return min((folder / "records").iterdir())


def edit(record: Path, change) -> None:
    content = json.loads(record.read_text())
    change(content)
    record.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


SETS = sorted(folder.parent for folder in Path(__file__).parents[2].glob("results/*/records"))


@pytest.mark.slow
@pytest.mark.parametrize("committed", SETS, ids=[folder.name for folder in SETS])
def test_the_results_that_come_with_the_project_hold(committed: Path, tmp_path: Path):
    checks = list(check_files(committed, tmp_path))
    assert sum(check.ok is True for check in checks) > 20
    assert [check.line() for check in checks if check.ok is False] == []


def test_an_untouched_folder_holds_and_its_inputs_were_looked_at(results: Path):
    checks = list(check_files(results, results.parent))
    assert {check.ok for check in checks} == {True}, [check for check in checks if not check.ok]
    names = {check.name for check in checks}
    assert {"table.md", "table.tex", "corpus tiny", "figures/f1_by_layer.svg", "figures/mix_weights.png"} <= names
    assert any(name.startswith("encoder") for name in names)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r["scores"]["test"]["span"].update(f1=0.5), "test span.f1 is 0.5, its counts give"),
        (lambda r: r["scores"]["dev"]["per_type"]["PER"].update(gold=3), "dev per_type.PER.gold is 3"),
        (lambda r: r.update(best_epoch=3 - r["best_epoch"]), "best_epoch is"),
        (lambda r: r["identity"].update(seed=9), "its key is not the hash of its identity"),
        (lambda r: r["config"].update(seed=9), "seed is 9, but the key was made with 1"),
        (lambda r: r["config"]["probe"].update(dropout=0.1), "probe is"),
        (lambda r: r["layers"].update(indices=[3]), "layers is"),
        (lambda r: r["config"]["features"].update(context="document"), "features.context is document"),
        (lambda r: r["features"]["identity"].update(text="0" * 64), "the feature key is not the hash"),
        (lambda r: r["encoder"]["fingerprint"].update(weights="0" * 64), "the encoder is not the one"),
        (lambda r: r["curve"][0].update(dev=0.99), "the curve"),
        (lambda r: r.pop("scores"), "scores is missing"),
        (lambda r: r.pop("curve"), "curve is missing"),
        (lambda r: r["data"].pop("splits"), "data.splits is missing"),
        (lambda r: r["scores"].update(dev=[]), "scores.dev: expected `object`, got `array`"),
        (lambda r: r["data"]["splits"]["dev"].update(words=7), "dev has 7 words, its counts"),
        (lambda r: r["config"]["data"].pop("path"), "not the record that table.json was made from"),
        (lambda r: r["encoder"]["fingerprint"].pop("weights"), "the encoder is not the one"),
        (lambda r: r["scores"]["test"]["slices"].popitem(), "not the record that table.json was made from"),
        (lambda r: r["layers"].update(width=1), "its width is 1, its layers give 16"),
        (lambda r: r["data"].update(task="spansx"), "data.task: 'spansx' is none of spans, tags"),
        (lambda r: r["config"]["features"].pop("subword"), "config.features.subword is missing"),
        (lambda r: r["config"]["probe"].pop("num_layers"), "config.probe.num_layers is missing"),
        (lambda r: r["scores"]["test"]["slices"]["span of 1"].update(gold=9), "spans by 'span of ...'"),
        (lambda r: r["scores"]["test"]["slices"]["span of 1"].update(recall=0.9), "gives other scores of a part (span"),
        (lambda r: r["curve"][0].update(loss=0.1), "not the record that table.json was made from"),
        (lambda r: r["config"]["layers"].update(indices=[3]), "not the record that table.json was made from"),
        (lambda r: r["encoder"].update(name="other"), "not the record that table.json was made from"),
        (lambda r: r.update(parameters=7), "not the record that table.json was made from"),
        (lambda r: r["software"]["versions"].update(torch="1.0"), "not the record that table.json was made from"),
    ],
)
def test_whatever_is_changed_in_a_record_is_named(results: Path, change, named: str):
    record = first_record(results)
    edit(record, change)
    found = [check for check in failed(results) if check.name == record.name]
    assert len(found) == 1
    assert named in found[0].detail, found[0].detail


def test_one_digit_in_a_table_is_named_with_its_line(results: Path):
    table = results / "table.md"
    lines = table.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if "± " in line and line.startswith("|"))
    lines[place] = re.sub(r"\d\.", lambda m: f"{(int(m[0][0]) + 1) % 10}.", lines[place], count=1)
    table.write_text("\n".join(lines) + "\n")
    (check,) = failed(results)
    assert (check.name, f"line {place + 1} is" in check.detail) == ("table.md", True)


def test_one_changed_prediction_is_named(results: Path):
    predictions = min((results / "predictions").glob("*.test.conll"))
    text = predictions.read_text()
    word = re.search(r" O\n", text)
    assert word is not None
    predictions.write_text(text[: word.start()] + " B-PER\n" + text[word.end() :])
    (check,) = failed(results)
    assert f"{predictions.name} is not what the run wrote" in check.detail
    assert "gives other counts" in check.detail


def test_changed_lost_and_broken_counts_are_named(results: Path):
    first, second, third = sorted((results / "counts").iterdir())[:3]
    counts = json.loads(lzma.decompress(first.read_bytes()))
    counts["test"]["right_tags"][0] -= 1
    first.write_bytes(lzma.compress(json.dumps(counts).encode()))
    second.unlink()
    third.write_bytes(b"broken")
    details = [check.detail for check in failed(results) if check.name.endswith(".json") and check.name != "table.json"]
    assert "test accuracy is" in details[0]
    assert "is not what the run wrote" in details[0]
    assert "cannot be read" in details[1]
    assert "cannot be read" in details[2]


def test_another_text_under_the_same_name_is_noticed(results: Path):
    file = results.parent / "data" / "test.conll"
    file.write_text(file.read_text().replace("paris", "leeds", 1))
    (check,) = failed(results)
    assert check.name == "corpus tiny"
    assert "another text than that of" in check.detail
    shutil.rmtree(file.parent)
    assert failed(results) == []
    not_checked = [c for c in check_files(results, results.parent) if c.ok is None]
    assert [check.name for check in not_checked] == ["corpus tiny"]


def test_a_figure_that_was_changed_or_shows_other_numbers_is_named(results: Path):
    svg = results / "figures" / "f1_by_layer.svg"
    svg.write_text(svg.read_text().replace("#0072b2", "#ff0000"))
    check, page = failed(results)
    assert check.name == "figures/f1_by_layer.svg"
    assert "changed after it was drawn" in check.detail
    assert (page.name, "does not show figures/f1_by_layer.svg" in page.detail) == ("report.html", True)
    content, numbers = draw_all(build_rows(results))["f1_by_layer.svg"]
    older = re.sub(rb"Matplotlib v[0-9.]+", b"Matplotlib v3.9.0", content)
    assert figure_differs(older, content, numbers) is None, "another matplotlib draws other bytes"
    assert "other numbers" in str(figure_differs(older, content, "0" * 64))


def test_a_figure_packed_otherwise_is_the_same_one_and_other_pixels_are_not(results: Path):
    there = (results / "figures" / "f1_by_layer.png").read_bytes()
    _, numbers = draw_all(build_rows(results))["f1_by_layer.png"]
    for pixel, problem in ((None, None), (0, "it was changed after it was drawn")):
        with PIL.Image.open(io.BytesIO(there)) as picture:
            if pixel is not None:
                picture.putpixel((5, 5), (pixel,) * len(picture.getbands()))
            info, packed = PIL.PngImagePlugin.PngInfo(), io.BytesIO()
            for name in ("Software", "Description"):
                info.add_text(name, str(picture.info[name]))
            picture.save(packed, format="png", compress_level=1, pnginfo=info)
        assert packed.getvalue() != there
        assert str(figure_differs(packed.getvalue(), there, numbers)).split(";")[0] == str(problem)


def test_figures_that_are_missing_or_that_no_record_gives_are_named(results: Path):
    (results / "figures" / "learning_curves.png").rename(results / "figures" / "older.png")
    checks = {check.name: check for check in check_files(results, results.parent) if not check.ok}
    assert checks["figures/learning_curves.png"].ok is None
    assert checks["figures/older.png"].ok is False
    assert len(checks) == 2


def test_one_digit_in_the_page_is_named_and_a_moved_folder_is_none(results: Path):
    page = results / "report.html"
    text = page.read_text()
    place = re.search(r"<td>(\d)\d\.\d\d ±", text)
    assert place is not None
    page.write_text(text[: place.start(1)] + str((int(place[1]) + 1) % 10) + text[place.end(1) :])
    (check,) = failed(results)
    assert (check.name, "the records give" in check.detail) == ("report.html", True)
    page.write_text(text)
    assert failed(results.rename(results.parent / "elsewhere")) == []


def test_a_damaged_sweep_json_is_named(results: Path):
    (results / "sweep.json").write_text("{")
    check, not_compared = failed(results)
    assert (check.name, "is damaged" in check.detail) == ("sweep.json", True)
    assert not_compared.detail.startswith("nothing could be compared with them: ")


def test_a_folder_may_have_any_name(results: Path, typed: Callable):
    assert typed("verify", str(results.rename(results.parent / "seed=1"))).returncode == 0


def test_a_damaged_file_hides_no_forged_table_and_a_table_of_other_bytes_is_no_traceback(results: Path):
    (results / "bench.json").write_text("[1]")
    (results / "table.md").write_bytes(b"\xff\xfe")
    (check,) = failed(results)
    assert (check.name, "bench.json" in check.detail) == ("tables, figures", True)
    (results / "bench.json").unlink()
    (check,) = failed(results)
    assert check.name == "table.md"


def forged(results: Path, change: Callable[[dict], None]) -> list[str]:
    """What verify says after one run's counts were changed, and scores, sums and hashes made to fit them."""
    file = first_record(results)
    counts, _ = load_counts(file)
    change(counts["dev"])
    sha256 = write_counts(file, counts)
    again = plain(scores_of({name: column for name, column in counts["dev"].items() if name != "documents"}))

    def fit(record: dict) -> None:
        record["scores"]["dev"] = {**again, "slices": record["scores"]["dev"]["slices"]}
        record["sha256"]["counts"] = sha256
        record["curve"][record["best_epoch"] - 1]["dev"] = again["span"]["f1"]

    edit(file, fit)
    write_report(results)
    return [check.detail for check in failed(results)]


def test_counts_with_a_type_that_the_predictions_do_not_have_are_named(results: Path):
    def more(counts: dict) -> None:
        for kind in ("gold", "predicted", "correct"):
            counts[f"{kind}:ZZZ"] = [9] * len(counts["words"])

    told = "; ".join(forged(results, more))
    assert "gives other counts (correct:ZZZ)" in told
    assert re.search(r"dev has \d+ spans, its counts \d+", told)


def test_another_gold_standard_is_named_with_and_without_the_corpus(results: Path):
    def other(counts: dict) -> None:
        gold = next(name for name in counts if name.startswith("gold:"))
        first = next(i for i, number in enumerate(counts[gold]) if number)
        counts[gold][first], counts[gold][first - 1] = counts[gold][first - 1], counts[gold][first]

    shutil.rmtree(results / "predictions")
    told = forged(results, other)
    assert any("other runs on the same corpus have others than" in detail for detail in told)
    assert any(detail.startswith("another text than that of") for detail in told)


def test_a_run_that_was_cut_short_is_not_said_to_have_converged(results: Path):
    edit(first_record(results), lambda record: record.update(outcome="converged"))
    write_report(results)
    (check,) = failed(results)
    assert "outcome is converged, the curve gives silent" in check.detail


def test_a_run_made_again_has_the_same_bits(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results", "--rerun", "mix_all", "--seed", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok           mix_all seed 2: the same bits",
        "1 checks hold, 0 do not, 0 could not be made.",
    ]


def test_a_run_that_says_another_score_than_its_rerun_fails(results: Path, capsys: pytest.CaptureFixture[str]):
    record = next((results / "records").glob("last-seed1*"))
    edit(record, lambda r: r["scores"]["test"]["span"].update(f1=0.5))
    edit(record, lambda r: r["software"].update(git={"commit": "0123456789ab", "dirty": False}))
    assert dispatch(["verify", "results", "--rerun", "last", "--seed", "1"]) == 1
    told = capsys.readouterr().out
    assert "not the same bits (scores.test.span.f1) on the same machine; code of 0123456789 / " in told


def test_a_run_that_today_would_be_another_is_not_trained_again(results: Path):
    record = load_record(first_record(results))
    older = replace(record.identity, recipe=99)
    (check,) = rerun([replace(record, identity=older, key=older.key)], config_of, [])
    assert (check.ok, check.detail) == (False, "another run would be made here: recipe differ")


def test_elsewhere_a_run_may_differ_a_little_and_the_reasons_are_listed(results: Path):
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
    assert "dev 0.00 and test 5.00 points apart (allowed: 2.0 and 4.0)" in check.detail
    assert "torch 1.0 / " in check.detail
    assert compare_runs(reference, with_test(record, 0.761, 400), "x").ok
    large = compare_runs(with_test(elsewhere, 0.80, 5648), with_test(record, 0.761, 5648), "x")
    assert "test 3.90 points apart (allowed: 2.0 and 2.0)" in large.detail
    edited = with_test(elsewhere, 7.5, 5648)
    assert compare_runs(edited, with_test(record, 0.761, 5648), "x").ok is False


def test_an_emulated_run_is_other_hardware_and_an_older_record_is_a_native_one(results: Path):
    older = load_record(first_record(results))
    scores = replace(older.scores, test=replace(older.scores.test, accuracy=older.scores.test.accuracy - 0.001))
    emulated = replace(older, scores=scores, hardware=replace(older.hardware, bfloat16="emulated"))
    assert compare_runs(older, emulated, "x").detail.endswith("otherwise here: bfloat16 native / emulated")
    native = replace(emulated, hardware=replace(older.hardware, bfloat16="native"))
    assert "on the same machine" in compare_runs(older, native, "x").detail


def test_the_same_runs_made_elsewhere_agree(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(results, tmp_path / "other")
    next((tmp_path / "other/records").glob("last-seed1*")).unlink()
    assert dispatch(["verify", "other", "--against", "results"]) == 0
    out = capsys.readouterr().out
    assert out.count("the same bits") == 5
    assert "not checked  last seed 1: not in other" in out


def test_against_the_paper_every_difference_of_setting_is_named(results: Path, capsys: pytest.CaptureFixture[str]):
    assert dispatch(["verify", "results", "--against", "paper", "--format", "json"]) == 0
    checks = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in checks] == ["embeddings", "last", "mix_all"]
    assert checks[0]["ok"] is None, "unlike things are not judged"
    for named in ("data tiny (paper: CoNLL-2003)", "context sentence (paper: document)", "seeds 2 (paper: 5)"):
        assert named in checks[0]["detail"]


def test_verify_without_rerun_needs_no_torch(results: Path):
    code = (
        "import sys\nfrom probe.cli.main import dispatch\nassert dispatch(['verify', 'results']) == 0\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pytorch_lightning'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=results.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_tells_how_many_runs_were_made_in_which_way(results: Path):
    assert "device_name=Other" not in (results / "report.html").read_text()
    edit(first_record(results), lambda r: r["hardware"].update(device_name="Other"))
    write_report(results)
    text = (results / "report.html").read_text()
    assert re.search(r"hardware: .*device_name=Other.*\(1 of 6 runs\)", text)
    assert len(re.findall(r"hardware: .*\(5 of 6 runs\)", text)) == 1
    assert "encoder: " in text
    assert not re.search(r"encoder: .*runs\)", text)


def test_figures_open_and_are_not_blank(results: Path):
    pictures = sorted((results / "figures").glob("*.png"))
    assert [p.stem for p in pictures] == ["f1_by_cost", "f1_by_layer", "learning_curves", "mix_weights"]
    for picture in pictures:
        pixels = matplotlib.image.imread(picture)
        assert pixels.shape[0] > 300
        assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20
        assert picture.with_suffix(".svg").read_text().count("<path") > 20


class Page(HTMLParser):
    """Counts what is opened and closed, and collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.fetched += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith("#")]

    def handle_data(self, data):
        self.text += data


def test_the_page_holds_everything_and_fetches_nothing(results: Path):
    page = Page()
    page.feed((results / "report.html").read_text())
    assert page.fetched == []
    assert page.open.count("svg") == 4
    assert "script" not in page.open
    assert "results --rerun mix_all --seed 2" in page.text
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
    assert "is not in columns of word, gold and predicted tag" in details[record.name]
    (results / "predictions" / f"{record.stem}.dev.conll").unlink()
    again = {check.name: check.detail for check in failed(results)}
    assert f"{record.stem}.dev.conll is missing" in again[record.name]
    assert "has no counts of test" in details[other.name]


def test_a_tag_that_is_none_and_counts_without_a_column_are_named(results: Path):
    first, second = sorted((results / "records").iterdir())[:2]
    predictions = results / "predictions" / f"{first.stem}.test.conll"
    predictions.write_text(re.sub(r" \S+\n", " X\n", predictions.read_text(), count=1))
    file = results / "counts" / f"{second.stem}.json.xz"
    counts = json.loads(lzma.decompress(file.read_bytes()))
    del counts["dev"]["right_tags"]
    file.write_bytes(lzma.compress(json.dumps(counts).encode()))
    details = {check.name: check.detail for check in failed(results)}
    assert details[first.name].endswith(f"; {predictions.name} holds 'X', which is no tag of IOB2")
    assert details[second.name] == f"{file}: dev has no right_tags. Move its record away and run again."


def test_what_verify_would_not_look_at_is_refused(results: Path):
    for arguments in (["results", "data.path=x"], ["results", "other"], ["results", "--rerun", "--against", "paper"]):
        with pytest.raises(UserError, match="verify: "):
            dispatch(["verify", *arguments])
