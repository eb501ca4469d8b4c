"""Several encoders in one screen: one ranking of all their layers, on the same sentences, with what each costs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.commands import TINY, here
from support.facts import names
from support.inputs import make_bert, overrides, small_corpus, write_columns

from probe.report.page import write_report
from probe.runs.screens import SCREEN, load_screens
from probe.screening.ranking import _behind, critical
from probe.screening.report import ranked_choices
from probe.verify.checks import check_files

QUICK = ["screen.max_layers=2", "screen.sentences=40", "screen.samples=2", "screen.dev_sentences=20"]


@pytest.fixture(scope="module")
def screened_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with encoders of 2 layers of 8 and 3 of 16, screened together (out) and each alone (out-small, ...)."""
    home = tmp_path_factory.mktemp("encoders")
    data = write_columns(home / "data", small_corpus())
    for name, num_layers, hidden_size in (("small", 2, 8), ("large", 3, 16)):
        (home / name).mkdir()
        make_bert(home / name, num_layers, 24, hidden_size)
    for given, out in (("small,large", "out"), ("small", "out-small"), ("large", "out-large")):
        typed = [*overrides(Path(given), data), *TINY, *QUICK, f"results_dir={out}"]
        done = here("screen", *typed, cwd=home)
        assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def screened(screened_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(screened_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_ranking_has_what_a_screen_of_each_encoder_has(screened: Path):
    together = load_screens(screened / "out")
    assert list(together) == ["small", "large"]
    every = []
    for name, own in together.items():
        (alone,) = load_screens(screened / f"out-{name}").values()
        assert (own.key, own.ranked, own.words) == (alone.key, alone.ranked, alone.words)
        every += [(-one.dev_f1, one.cost, np.mean(one.error), name, one) for one in alone.ranked]
    ranked = ranked_choices(together)
    every.sort(key=lambda each: each[:3])
    assert [(one["encoder"], one["name"]) for one in ranked] == [(name, one.name) for *_, name, one in every]
    behind = _behind(np.array([one.f1 for *_, one in every])[None])[0]
    assert [one["tied"] for one in ranked] == [bool(own <= critical(len(every), 2)) for own in behind]
    assert [one["place"] for one in ranked] == list(range(1, len(every) + 1))
    for one in ranked:
        width = {"small": 8, "large": 16}[one["encoder"]]
        assert one["encoder_flops"] == 24 * width**2 * max(one["indices"])


def test_it_is_shown_written_verified_and_reported(screened: Path):
    out = screened / "out"
    first = ranked_choices(load_screens(out))[0]
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert written == {SCREEN, "screen.md", "report.html", "figures/screen_by_layer.png"}
    assert not [check for check in check_files(out) if check.ok is False]
    write_report(out)
    for text in ((out / "report.html").read_text(), (out / "screen.md").read_text().split("\n\n")[0]):
        names(text, first["name"], first["encoder"])


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (lambda screens: screens.clear(), []),
        (lambda screens: screens.append(screens[0]), ["name"]),
    ],
)
def test_what_does_not_hold_in_one_of_the_screens_is_named(screened: Path, spoil: Callable, facts: list[str]):
    content = json.loads((screened / "out" / SCREEN).read_text())
    spoil(content)
    (screened / "out" / SCREEN).write_text(json.dumps(content))
    (bad,) = [check for check in check_files(screened / "out") if check.ok is False]
    names(f"{bad.name}: {bad.detail}", SCREEN, *facts)


def test_a_screen_that_is_done_is_not_made_again_for_another_encoder(screened: Path, typed: Callable):
    given = [*overrides(Path("small"), screened / "data"), *QUICK, "results_dir=out-small"]
    (alone,) = load_screens(screened / "out-small").values()
    more = typed("screen", *given, "encoder.path=small,large")
    assert more.returncode == 0, more.stderr
    both = load_screens(screened / "out-small")
    assert (list(both), both["small"]) == (["small", "large"], alone)
    shutil.rmtree(screened / "cache")
    fewer = typed("screen", *given)
    assert fewer.returncode == 0, fewer.stderr
    assert load_screens(screened / "out-small") == {"small": alone}
    assert not (screened / "cache").exists(), "nothing was extracted"


def test_what_cannot_be_ranked_together_is_one_line_before_anything_is_screened(screened: Path, typed: Callable):
    data = screened / "data"
    (screened / "elsewhere").mkdir()
    shutil.copytree(screened / "small", screened / "elsewhere/small")
    for given, facts in (("small,nowhere", ["nowhere"]), ("small,elsewhere/small", ["small", "encoder.path"])):
        done = typed("screen", *overrides(Path(given), data), *QUICK, "results_dir=new")
        assert done.returncode == 2
        names(done.stderr.strip().splitlines()[-1], *facts)
        assert not (screened / "new").exists()
    for given in ("data.name=a,b", "seed=1,2"):
        done = typed("screen", *overrides(Path("small,large"), data), given, *QUICK, "results_dir=new")
        assert done.returncode == 2
        names(done.stderr, given)
