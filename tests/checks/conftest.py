"""The results of a small real sweep, to look at and to spoil."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.inputs import make_split, write_columns

from probe.data.corpus import Corpus
from probe.reporting.page import write_report


@pytest.fixture(scope="session")
def swept(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small real sweep, two rows of one layer and a mix, two seeds, with its figures and page."""
    home = tmp_path_factory.mktemp("verify")
    splits = {"train": make_split(60, 1), "dev": make_split(20, 2), "test": make_split(20, 3)}
    write_columns(home / "data", Corpus("tiny", splits))
    files = [f"data.{name}={name}.conll" for name in splits]
    probe = ["probe.hidden_size=4", "probe.max_epochs=2", "probe.batch_size=8", "probe.learning_rate=0.05"]
    data = ["data=columns", "data.path=data", "data.name=tiny"]
    sweep = ["-m", "layers=embeddings,last,mix_all", "seed=1,2", "jobs=1", "results_dir=results"]
    environment = {**os.environ, "LAYER_PROBE_CACHE": str(home / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "probe", *sweep, f"encoder.path={tiny_bert}", *data, *files, *probe],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    write_report(home / "results")
    return home / "results"


@pytest.fixture
def results(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil, where the data is at hand."""
    shutil.copytree(swept, tmp_path / "results")
    shutil.copytree(swept.parent / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(swept.parent / "cache"))
    return tmp_path / "results"
