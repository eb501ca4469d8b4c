"""`probe screen` as it is typed: its file, and what checks and shows it."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import TINY, here
from support.facts import names
from support.inputs import overrides, small_corpus, write_columns

from probe.report.page import write_report
from probe.runs.screens import SCREEN, load_screen
from probe.screening.report import caption, to_train_first
from probe.settings import configs_of
from probe.verify.checks import check_files

QUICK = ["screen.max_layers=1", "screen.sentences=40", "screen.seeds=2", "screen.dev_sentences=20"]


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


def bad(folder: Path) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in check_files(folder) if check.ok is False]


def test_a_screen_is_one_file_that_verify_checks_and_report_shows(screened: Path, typed, inputs: list[str]):
    assert {SCREEN, "screen.md", "figures", "report.html"} <= {path.name for path in screened.iterdir()}
    write_report(screened)
    assert "Screen" in (screened / "report.html").read_text()
    assert bad(screened) == []
    before = (screened / SCREEN).read_bytes()
    assert typed("screen", *inputs, *QUICK, "results_dir=out").returncode == 0
    assert (screened / SCREEN).read_bytes() == before


def test_a_caption_counts_what_has_a_label(screened: Path):
    screen = load_screen(screened)
    assert screen is not None
    for task, unit in (("spans", "words"), ("sentence", "sentences")):
        of_task = replace(screen, identity=replace(screen.identity, task=task))
        names(caption(of_task), f"{screen.words['train']} {unit} of train")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda s: s["identity"].update(seed=9), ["key", "identity"]),
        (lambda s: s.pop("words"), ["words"]),
        (lambda s: s.update(ranked=[]), [SCREEN]),
        (lambda s: s["ranked"][0].update(encoder="another"), ["another"]),
        (lambda s: s.update(schema=2), ["schema", "2"]),
    ],
)
def test_a_screen_that_does_not_fit_its_key_or_lacks_a_part_is_named(screened: Path, change, facts: list[str]):
    content = json.loads((screened / SCREEN).read_text())
    change(content)
    (screened / SCREEN).write_text(json.dumps(content))
    (line,) = bad(screened)
    names(line, *facts)


def test_the_command_it_advises_trains_what_is_worth_it(screened: Path, typed, inputs: list[str]):
    done = typed("screen", *inputs, *QUICK, "results_dir=out", "margin=0")
    assert done.returncode == 0
    screen = load_screen(screened)
    assert screen is not None
    assert screen.margin == 0
    (advised,) = [line for line in done.stderr.splitlines() if "probe -m" in line]
    words = shlex.split(advised[advised.index("probe -m") :])
    assert f"layers={','.join(one.name for one in to_train_first(screen))}" in words
    configs, _ = configs_of(words[1:])
    assert {cfg.layers.normalize for cfg in configs} == {"scale"}
    assert len(configs) == 3 * len(to_train_first(screen))


def test_a_damaged_screen_is_named_and_stays(screened: Path, typed, inputs: list[str]):
    (screened / SCREEN).write_text("{")
    done = typed("screen", *inputs, *QUICK, "results_dir=out")
    assert done.returncode == 2
    names(done.stderr, SCREEN)
    assert (screened / SCREEN).read_text() == "{"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["screen.windo=1"], ["windo", "screen.window"]),
        (["screen.max_layers=0"], ["screen.max_layers=0", "1 or more"]),
        (["screen.window=11"], ["screen.window=11", "0 to 10"]),
        (["--nope"], ["--nope"]),
    ],
)
def test_what_is_mistyped_is_named(typed, inputs: list[str], arguments: list[str], facts: list[str]):
    done = typed("screen", *inputs, *arguments)
    assert done.returncode == 2
    names(done.stderr, *facts)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_sweep_can_screen_first_with_the_same_keys(typed, inputs: list[str], tmp_path):
    sweep = ["-m", "layers=embeddings,last", "jobs=1", *inputs]
    shown = typed(*sweep, *QUICK, "screen.first=true", "results_dir=shown")
    assert shown.returncode == 0, shown.stderr
    assert load_screen(tmp_path / "shown")
    plain = typed(*sweep, "results_dir=plain")
    assert plain.returncode == 0
    made = [{path.name for path in (tmp_path / folder / "records").iterdir()} for folder in ("shown", "plain")]
    assert made[0] == made[1]
