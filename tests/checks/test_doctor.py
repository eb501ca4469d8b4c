"""The doctor says what is there, what is missing and what to type, and whether a run would work."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.inputs import data_config, encoder_config, features_config

from probe.checks.doctor import examine
from probe.config import Config, LayersConfig, ProbeConfig
from probe.features.extraction import ensure_features
from probe.reporting.published import CONLL2003
from probe.runs.plan import plan
from probe.system import bfloat16


@pytest.fixture
def config(tiny_bert: Path, tiny_data: Path, tmp_path: Path) -> Config:
    probe = ProbeConfig(1, 4, 0.0, 0.01, 1, 8, 1, 1, 1.0, "float32")
    return Config(
        data_config(tiny_data, name="tiny"), encoder_config(tiny_bert), features_config(tmp_path / "cache"),
        LayersConfig([-1], "concat"), probe, 1, str(tmp_path / "out"), 1, "cpu",
    )  # fmt: skip


def told(config: Config) -> tuple[bool, str]:
    lines: list[str] = []
    return examine(config, lines.append), "\n".join(lines)


def test_a_run_that_would_work(config: Config, tmp_path: Path):
    works, text = told(config)
    assert works
    assert "tiny, from" in text
    assert "tags in IOB2" in text
    assert "layers 0 to 5, 16 wide; 24 pieces at once" in text
    assert "layer 5 (of 5)" in text
    assert "0 of 3 shards there" in text
    assert "to extract: 0.00 GB" in text
    assert "This run would work." in text
    assert not (tmp_path / "out").exists(), "it only looks"
    assert not list((tmp_path / "cache").glob("*/"))

    planned = plan(config)
    ensure_features(planned.corpus, planned.encoder, config.features, "cpu")
    works, text = told(config)
    assert works
    assert "3 of 3 shards there" in text


@pytest.mark.parametrize("works", [True, False])
def test_how_this_cpu_does_bfloat16_is_told_before_a_sweep(config: Config, works: bool, monkeypatch):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: True)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: works)
    assert "bfloat16" not in told(config)[1].partition("versions")[0]
    config.probe.precision = "bfloat16"
    assert ("bfloat16: native" if works else "bfloat16: this CPU has none of its own") in told(config)[1]
    config.probe.num_layers = config.probe.hidden_size = 0
    assert "bfloat16: native" in told(config)[1]


def test_all_that_is_missing_is_told_at_once(config: Config, tmp_path: Path):
    config.data.dev = "nope.conll"
    config.encoder.path = "/nowhere"
    (tmp_path / "file").write_text("")
    config.results_dir = str(tmp_path / "file")
    works, text = told(config)
    assert not works
    assert "nope.conll does not exist. Another file name: data.dev=NAME" in text
    assert "encoder.path=/nowhere: there is no such folder" in text
    assert "cannot be written" in text
    assert "This run would fail: data, encoder, results." in text


def test_a_context_that_the_source_cannot_give_fails_and_says_so(config: Config, tiny_data: Path):
    for file in tiny_data.iterdir():
        file.write_text(file.read_text().replace("-DOCSTART- O\n", ""))
    config.features.context = "document"
    works, text = told(config)
    assert not works
    assert "knows no documents. Use features.context=sentence" in text


def test_notes_on_the_data_are_told(config: Config, tiny_data: Path):
    with (tiny_data / "dev.conll").open("a") as file:
        file.write("\nx I-NEW\n")
    works, text = told(config)
    assert works
    assert "note: 1 tags are ill-formed IOB2" in text
    assert "note: dev has types that train never shows" in text


def test_what_is_named_after_conll2003_is_held_against_its_known_counts(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    config.data.name = "conll2003"
    _, text = told(config)
    assert "not the standard files of CoNLL-2003: train has 30 documents, not 946" in text
    for name, counts in plan(config).corpus.counts().items():
        monkeypatch.setitem(CONLL2003, name, counts)
    _, text = told(config)
    assert "these are the standard files" in text
