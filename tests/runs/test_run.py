"""What a run makes of a corpus: its tags, its notes, its record."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from support.commands import SERVER
from support.inputs import (
    data_config,
    encoder_config,
    features_config,
    run_config,
)

from probe.config import Config, LayersConfig, ProbeConfig
from probe.data.corpus import Corpus
from probe.runs.outputs import predictions_path
from probe.runs.plan import plan
from probe.runs.run import run
from probe.system import bfloat16
from probe.system.files import to_jsonable, written_whole

pytestmark = pytest.mark.usefixtures("short_epochs")


@pytest.fixture
def three_columns(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    """The tiny corpus with a made-up part of speech between word and tag, and a comment in dev."""
    folder = tmp_path / "three"
    folder.mkdir()
    for name, split in tiny_corpus.splits.items():
        text = "% aside\n\n" if name == "dev" else ""
        for words, tags in zip(split.words, split.tags, strict=True):
            lines = (f"{w} {'N' if len(w) > 3 else 'P'} {t}\n" for w, t in zip(words, tags, strict=True))
            text += "".join(lines) + "\n"
        (folder / f"{name}.conll").write_text(text)
    return folder


def test_tags_that_are_no_spans_are_probed_on_the_same_features(three_columns: Path, tiny_bert: Path, tmp_path: Path):
    def config(**data) -> Config:
        probe = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 8, 8, 1.0, "float32")
        features, layers = features_config(tmp_path / "cache"), LayersConfig([0], "concat")
        corpus = data_config(three_columns, comment="%", **data)
        return run_config(
            data=corpus,
            encoder=encoder_config(tiny_bert),
            features=features,
            layers=layers,
            probe=probe,
            results_dir=str(tmp_path / "out"),
        )

    entities, speech = config(), config(task="tags", tag_column=1)
    assert plan(entities).store.key == plan(speech).store.key
    assert plan(entities).identity.key != plan(speech).identity.key
    record = to_jsonable(run(speech, log=lambda _: None))
    assert record["scores"]["test"].keys() == {"macro_f1", "accuracy", "per_type", "counts", "headline"}
    assert record["scores"]["test"]["accuracy"] > 0.6
    assert record["data"]["splits"]["train"]["tags"] == 2
    assert record["data"]["skipped"] == {"comments": {"train": 0, "dev": 1, "test": 0}}
    assert (tmp_path / "out" / "predictions").is_dir()
    record = to_jsonable(run(entities, log=lambda _: None))
    assert record["data"]["scheme"] == "IOB2"
    assert record["data"]["ill_formed"] == {"train": 0, "dev": 0, "test": 0}
    assert "span" in record["scores"]["test"]


@pytest.mark.parametrize(
    ("probe_precision", "features_precision", "kept"),
    [("float32", "float32", None), ("bfloat16", "float32", "pytorch"), ("float32", "bfloat16", "native")],
)
def test_the_record_keeps_how_bfloat16_was_done(
    tiny_data: Path, tiny_bert: Path, tmp_path: Path, monkeypatch, probe_precision: str, features_precision: str, kept
):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: kept == "native")
    probe = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 1, 1, 1.0, probe_precision)
    features = features_config(tmp_path / "cache", precision=features_precision)
    corpus, layers = data_config(tiny_data), LayersConfig([0], "concat")
    encoder, out = encoder_config(tiny_bert), str(tmp_path / "out")
    cfg = run_config(data=corpus, encoder=encoder, features=features, layers=layers, probe=probe, results_dir=out)
    record = run(cfg, log=lambda _: None)
    assert record.hardware.bfloat16 == kept
    (file,) = (tmp_path / "out/records").iterdir()
    hardware = json.loads(file.read_text())["hardware"]
    assert ("bfloat16" in hardware) == (kept is not None)


def _die_writing(path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_half_written_files_are_gone_once_the_run_is_made(tiny_data: Path, tiny_bert: Path, tmp_path: Path):
    probe = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 1, 1, 1.0, "float32")
    features, layers = features_config(tmp_path / "cache"), LayersConfig([0], "concat")
    corpus, encoder, out = data_config(tiny_data), encoder_config(tiny_bert), tmp_path / "out"
    cfg = run_config(data=corpus, encoder=encoder, features=features, layers=layers, probe=probe, results_dir=str(out))
    record = plan(cfg).record_path
    for path in (record, predictions_path(record, "test")):
        path.parent.mkdir(parents=True)
        killed = SERVER.Process(target=_die_writing, args=(path,))
        killed.start()
        killed.join(timeout=60)
        assert killed.exitcode == -signal.SIGKILL
    assert len(list(out.rglob(".*"))) == 2
    run(cfg, log=lambda _: None)
    assert record.exists()
    assert not list(out.rglob(".*"))
