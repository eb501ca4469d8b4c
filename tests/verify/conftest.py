"""The results of a small real sweep, to look at and to spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.commands import TINY, here
from support.inputs import overrides, small_corpus, write_columns

from probe.report.page import write_report
from probe.system.locks import wait_for_lock


@pytest.fixture(scope="session")
def swept(tiny_bert: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small real sweep, two rows of one layer and a mix, two seeds, with its figures and page.

    The first worker of the tests makes them, each has a copy.
    """
    made = shared / "swept"
    with wait_for_lock(shared / "swept.lock"):
        if not (made / "results/report.html").exists():
            write_columns(made / "data", small_corpus())
            settings = [*TINY[:-1], "probe.learning_rate=0.05"]
            sweep = ["-m", "layers=embeddings,last,mix_all", "seed=1,2", "jobs=1", "results_dir=results"]
            done = here(*sweep, *overrides(tiny_bert, Path("data")), *settings, cwd=made)
            assert done.returncode == 0, done.stderr
            write_report(made / "results")
    own = shutil.copytree(made, tmp_path_factory.mktemp("verify") / "swept")
    return own / "results"


@pytest.fixture
def results(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, where the data is at hand."""
    shutil.copytree(swept, tmp_path / "results")
    shutil.copytree(swept.parent / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(swept.parent / "cache"))
    return tmp_path / "results"
