"""Several encoders in one screen: one ranking of all their layers, on the same sentences, with what each costs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import TINY, here
from support.facts import names
from support.inputs import make_bert, overrides, small_corpus, write_columns

from probe.report.page import write_report
from probe.runs.screens import SCREEN, load_screen
from probe.screening.report import ranked_choices
from probe.verify.checks import check_files

QUICK = ["screen.max_layers=1", "screen.sentences=40", "screen.seeds=2", "screen.dev_sentences=20"]


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


def test_all_choices_are_ranked_and_compared_together(screened: Path):
    together, *alone = (load_screen(screened / name) for name in ("out", "out-small", "out-large"))
    assert together
    assert all(alone)
    assert list(together.encoders) == ["small", "large"]
    own = {(one.encoder, one.name): one.scores for part in alone if part for one in part.ranked}
    assert {(one.encoder, one.name): one.scores for one in together.ranked} == own
    means = [one.mean for one in together.ranked]
    assert means == sorted(means, reverse=True)
    for one in ranked_choices(together):
        width = {"small": 8, "large": 16}[one["encoder"]]
        assert one["encoder_flops"] == 24 * width**2 * max(one["indices"])
        assert one["behind"][0] <= one["dev"] - means[0] <= one["behind"][1] <= 0


def test_it_is_shown_written_verified_and_reported(screened: Path):
    out = screened / "out"
    first = load_screen(out)
    assert first is not None
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert written == {SCREEN, "screen.md", "report.html", "figures/screen_by_layer.png"}
    assert not [check for check in check_files(out) if check.ok is False]
    write_report(out)
    for text in ((out / "report.html").read_text(), (out / "screen.md").read_text().split("\n\n")[0]):
        names(text, first.ranked[0].name, first.ranked[0].encoder or "")


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
