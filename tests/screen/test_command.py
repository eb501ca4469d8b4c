"""`probe screen` as it is typed: its file, what checks and shows it, and what it says of trained rows."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from support.commands import TINY, here, start, stop, wait_for
from support.facts import names
from support.inputs import overrides, small_corpus, write_columns
from support.records import make_record

from probe.config import LayersConfig, UserError
from probe.report.page import write_report
from probe.runs.identity import Layers, RunIdentity
from probe.screen.ranking import Scored
from probe.screen.record import SCREEN, ScreenRecord, load_screens
from probe.screen.validation import compare, pearson, tau_a, tau_b, validate_screens
from probe.tables.rows import build_rows
from probe.verify.results import check_files

FIRST, LAST = "the first", "the last"  # that a screen ranks
QUICK = ["screen.max_layers=2", "screen.sentences=40", "screen.samples=2", "screen.dev_sentences=20"]


@pytest.fixture(scope="module")
def screened_once(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("screened")
    data = write_columns(home / "data", small_corpus())
    done = here("screen", *overrides(tiny_bert, data), *TINY, *QUICK, "results_dir=out", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "concat_last_four" in done.stdout
    return home


@pytest.fixture
def screened(screened_once: Path, tmp_path: Path) -> Path:
    """A screen's folder to spoil, beside its data and its store."""
    shutil.copytree(screened_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


def load_screen(folder: Path) -> ScreenRecord:
    (record,) = load_screens(folder).values()
    return record


def bad(folder: Path) -> list[str]:
    return [
        f"{check.name}: {check.detail}" for check in check_files(folder, folder.parent / "cache") if check.ok is False
    ]


def test_a_screen_is_one_file_that_verify_checks_and_report_shows(screened: Path, typed, inputs: list[str]):
    record = load_screen(screened)
    assert {"screen.md", "screen.csv", "figures", "report.html"} <= {path.name for path in screened.iterdir()}
    assert bad(screened) == []
    write_report(screened)
    assert "Screen" in (screened / "report.html").read_text()
    assert bad(screened) == []
    for seed, hidden_size in enumerate((8, 16), 1):
        settings = {"num_layers": 1, "hidden_size": hidden_size}
        asked = record.identity
        identity = RunIdentity(asked.corpus, "spans", asked.features, Layers([0], "concat"), settings, seed)
        make_record(screened.parent / "trained", "embeddings", seed, 0.8, 0.7, identity=identity)
    with pytest.raises(UserError, match=r"--against \S*trained"):
        validate_screens([record], screened.parent / "trained")
    before = (screened / SCREEN).read_bytes()
    again = typed("screen", *inputs, *QUICK, "results_dir=out", "--format", "json")
    assert json.loads(again.stdout)["key"] == record.key
    assert (screened / SCREEN).read_bytes() == before
    for form in ("md", "csv", "tex"):
        assert record.ranked[0].name.replace("_", "") in typed(
            "screen", *inputs, *QUICK, "results_dir=out", "--format", form
        ).stdout.replace("\\_", "").replace("_", "")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda s: s["ranked"].reverse(), [LAST]),
        (lambda s: s["ranked"][-1].update(f1=[1.0] * len(s["ranked"][-1]["f1"])), [FIRST]),
        (lambda s: s["ranked"][-1].update(width=1), [LAST, "width is 1"]),
        (lambda s: s["ranked"][-1].update(num_blocks=77), [LAST, "77 blocks"]),
        (lambda s: s["identity"].update(seed=9), ["key", "identity"]),
        (lambda s: s["features"].update(context="document"), ["identity.features", "features.context"]),
        (lambda s: s["fingerprint"].update(weights="0"), ["fingerprint", "features.encoder"]),
        (lambda s: s.pop("words"), ["words"]),
        (lambda s: s.update(ranked=[]), [SCREEN]),
        (lambda s: s["ranked"].append(s["ranked"][-1]), [SCREEN]),
        (lambda s: s["ranked"][0].update(tied=False), ["screen.json: ties", FIRST]),
    ],
)
def test_whatever_is_changed_in_a_screen_is_named(screened: Path, change, facts: list[str]):
    content = json.loads((screened / SCREEN).read_text())
    places = {FIRST: content["ranked"][0]["layers"]["name"], LAST: content["ranked"][-1]["layers"]["name"]}
    change(content)
    (screened / SCREEN).write_text(json.dumps(content))
    (line,) = bad(screened)
    names(line, *(places.get(fact, fact) for fact in facts))


def test_ties_of_an_older_screen_are_not_judged(screened: Path):
    content = json.loads((screened / SCREEN).read_text())
    for one in content["ranked"]:
        one["tied"] = not one["tied"]
    for version in (1, 0):
        (screened / SCREEN).write_text(json.dumps(content | {"ties": version}))
        found = {check.name: check.ok for check in check_files(screened, screened.parent / "cache")}
        assert (found[SCREEN], found["screen.json: ties"]) == (True, None)
    (screened / SCREEN).write_text(json.dumps(content))
    assert [line.split(": ")[1] for line in bad(screened)] == ["ties"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["screen.windo=1"], ["windo", "screen.window"]),
        (["screen.samples=1"], ["screen.samples=1", "2 to 10"]),
        (["screen.max_layers=0"], ["screen.max_layers=0", "1 or more"]),
        (["screen.window=x"], ["screen.window"]),
        (["screen.window=11"], ["screen.window=11", "0 to 10"]),
        (["--against", "/nowhere"], ["--against /nowhere"]),
        (["--nope"], ["--nope"]),
        (["--format", "xml"], ["--format", "'xml'"]),
    ],
)
def test_what_is_mistyped_is_named(typed, inputs: list[str], arguments: list[str], facts: list[str]):
    done = typed("screen", *inputs, *arguments)
    assert done.returncode == 2
    names(done.stderr, *facts)
    assert "Traceback" not in done.stderr


def test_a_damaged_screen_is_replaced_whole(screened: Path, inputs: list[str]):
    whole = json.loads((screened / SCREEN).read_text())
    (screened / SCREEN).write_text("{")
    command = ["screen", *inputs, *QUICK, "results_dir=out"]
    process = start(*command, cwd=screened.parent)
    wait_for(lambda: process.poll() is not None or (screened.parent / "cache").exists(), 60, "it to begin")
    stop(process)
    if (screened / SCREEN).read_text() != "{":
        assert load_screens(screened), "whole or not there"
    done = here(*command, cwd=screened.parent)
    assert done.returncode == 0, done.stderr
    again = json.loads((screened / SCREEN).read_text())
    assert (again["key"], again["ranked"]) == (whole["key"], whole["ranked"])


@pytest.mark.slow
def test_a_sweep_can_screen_first_with_the_same_keys(typed, inputs: list[str], tmp_path):
    sweep = ["-m", "layers=embeddings,last", "jobs=1", *inputs]
    shown = typed(*sweep, *QUICK, "screen.first=true", "results_dir=shown")
    assert shown.returncode == 0, shown.stderr
    assert load_screens(tmp_path / "shown")
    plain = typed(*sweep, "results_dir=plain")
    assert plain.returncode == 0
    made = [{path.name for path in (tmp_path / folder / "records").iterdir()} for folder in ("shown", "plain")]
    assert made[0] == made[1]
    against = typed("screen", *inputs, *QUICK, "results_dir=shown", "--against", "plain")
    assert against.returncode == 2
    names(against.stderr, "--against")
    for path in (tmp_path / "plain/records").iterdir():  # two epochs of so small a text are too few
        path.write_text(json.dumps(json.loads(path.read_text()) | {"outcome": "converged"}))
    against = typed("screen", *inputs, *QUICK, "results_dir=shown", "--against", "plain")
    assert against.returncode == 0
    other = typed("screen", *inputs, *QUICK, "results_dir=shown", "features.dtype=float32", "--against", "plain")
    assert other.returncode == 2
    names(other.stderr, "--against plain")
    beside = typed("screen", *inputs, *QUICK, "--against", "plain")
    assert beside.returncode == 0
    first = load_screen(tmp_path / "plain")
    other = typed("screen", *inputs, *QUICK, "screen.window=0", "--against", "plain")
    assert other.returncode == 2
    names(other.stderr, "plain/screen.json", "results_dir=")
    assert load_screen(tmp_path / "plain") == first


def test_correlations_are_none_where_they_are_undefined():
    """By hand: of the six pairs of (1, 2, 3, 4) and (1, 3, 2, 4) five are ordered alike."""
    a, b = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]
    assert tau_b(a, b) == pytest.approx(4 / 6)
    assert pearson(a, b) == pytest.approx(0.8)
    assert tau_b([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(2 * 3))
    assert tau_a([(0, 1), (1, 2), (0, 3)], a, b) == pytest.approx(1 / 3)
    assert tau_b([1, 1], [1, 2]) is pearson([1, 1], [1, 2]) is tau_a([], a, b) is None


def test_regret_is_the_loss_of_the_best_pick(tmp_path: Path):
    trained = {"a": (0.80, 0.70), "b": (0.90, 0.60), "c": (0.85, 0.50), "d": (0.95, 0.40)}
    for k, (name, (dev, _)) in enumerate(trained.items()):
        for seed in (1, 2):
            make_record(tmp_path, name, seed, dev, dev, indices=(k,))
    rows = {row.name: row for row in build_rows(tmp_path)}
    pairs = [
        (rows[name], Scored(LayersConfig([k], "concat", name), 16, k, [f1, f1], [0.1, 0.1]))
        for k, (name, (_, f1)) in enumerate(trained.items())
    ]
    found = compare(pairs)
    assert found.regret["1"] == pytest.approx(15)
    assert found.regret["3"] == pytest.approx(5)
    assert [name for name, _, _ in found.rows] == ["d", "b", "c", "a"]
    assert (found.pairs, found.pairs_separated) == (6, 6), "scores of all seeds are one, so any difference is one"
    with pytest.raises(UserError, match="--against"):
        compare(pairs[:1])
