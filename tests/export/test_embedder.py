"""A layer as a folder of sentence-transformers: `encode` gives the vectors that were measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import transformers
from support.facts import names
from support.families import FAMILIES

import probe

TEXTS = ["Paris may be nice .", "The bank of England won at Leeds, nicely", "ana", "Jordan lost to\nChelsea"]


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """What is typed for a folder of labelled texts."""
    for number, split in enumerate(("train", "dev", "test")):
        rows = [{"text": f"{text} {number}", "label": "ab"[k % 2]} for k, text in enumerate(TEXTS)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ["data=sentences", f"data.path={tmp_path}", f"features.cache_dir={tmp_path / 'cache'}"]


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("distilbert", ["features.sentence=mean"]),
        ("distilbert", ["features.sentence=cls"]),
        ("mpnet", ["features.sentence=max"]),
        ("modernbert", ["features.sentence=mean", "features.final_norm=each"]),
        ("qwen3", ["features.sentence=last", "features.final_norm=each"]),
    ],
)
def test_encode_gives_the_measured_vectors(
    typed: Callable, texts: list[str], tmp_path: Path, family: str, settings: list[str]
):
    library = pytest.importorskip("sentence_transformers")
    for part in FAMILIES[family]():
        part.save_pretrained(tmp_path / "encoder")
    chosen = [f"encoder.path={tmp_path / 'encoder'}", "layers=layer_1", *settings]
    done = typed("export", *chosen, *texts, "--sentence-transformers", "embedder")
    assert done.returncode == 0, done.stderr
    measured = probe.features(*texts, *chosen, "features.dtype=float32").dev.vectors[:].numpy()
    embedder = library.SentenceTransformer(str(tmp_path / "embedder"), device="cpu")
    encoded = embedder.encode([f"{text} 1" for text in TEXTS], batch_size=2)
    assert np.abs(encoded - measured).max() < 1e-5
    assert transformers.AutoConfig.from_pretrained(tmp_path / "embedder").num_hidden_layers == 1


@pytest.mark.parametrize(
    ("family", "settings", "facts"),
    [
        ("distilbert", ["layers=sum_all"], ["sum_all", "layers=layer_4"]),
        ("distilbert", ["layers=layer_1", "features.sentence=first"], ["first", "cls"]),
        ("modernbert", ["layers=layer_1"], ["layer 1", "features.final_norm=each"]),
    ],
)
def test_what_such_a_folder_cannot_hold_is_refused(
    typed: Callable, texts: list[str], tmp_path: Path, family: str, settings: list[str], facts: list[str]
):
    for part in FAMILIES[family]():
        part.save_pretrained(tmp_path / "encoder")
    done = typed("export", f"encoder.path={tmp_path / 'encoder'}", *settings, *texts, "--sentence-transformers", "to")
    assert done.returncode == 2
    names(done.stderr.strip().splitlines()[-1], *facts)
    assert not (tmp_path / "to").exists()
