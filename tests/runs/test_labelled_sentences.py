"""Runs on one label per sentence, and every command."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.facts import names
from support.inputs import COMMON, NAMES, features_config

import probe
from probe.config import UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder
from probe.runs.records import load_records
from probe.tables.rows import build_rows
from probe.vectors.store import FeatureStore
from probe.verify.checks import check_files

pytestmark = pytest.mark.usefixtures("api_here")


@pytest.fixture
def settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sentences that name a person, or none, and what is typed for them."""
    monkeypatch.chdir(tmp_path)
    choose = random.Random(0)
    people = [word for word, kind in NAMES.items() if kind == "PER"]
    for name, size in (("train", 60), ("dev", 30), ("test", 30)):
        lines = []
        for _ in range(size):
            words = choose.choices(COMMON, k=choose.randint(2, 9))
            label = choose.choice(["person", "none"])
            if label == "person":
                words[choose.randrange(len(words))] = choose.choice(people)
            lines.append(f"{label}\t{' '.join(words)}\n")
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    return [
        f"encoder.path={tiny_bert}",
        "data=sentences",
        f"data.path={tmp_path}",
        *(f"data.{name}={name}.txt" for name in ("train", "dev", "test")),
        f"features.cache_dir={tmp_path / 'cache'}",
        "features.dtype=float32",
        "device=cpu",
        "jobs=1",
    ]


FAST = ["probe=linear", "probe.learning_rate=0.05", "probe.max_epochs=5"]
ONE_EPOCH = ["probe=linear", "probe.max_epochs=1"]  # for a test that needs a trained run, and not a good one


def test_each_way_of_pooling_has_its_own_store(settings: list[str], tmp_path: Path):
    for task in ([], ["features.sentence=max"], ["features.sentence=last"]):
        probe.run(*settings, "layers=last", *task, *ONE_EPOCH)
    assert len([folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]) == 3
    records = load_records(tmp_path / "results/runs").values()
    assert {record.identity.sentence for record in records} == {"mean", "max", "last"}
    assert len({record.key for record in records}) == 3
    assert len({record.identity.features for record in records}) == 3


def test_a_sweep_with_floors_makes_one_table_that_verifies(settings: list[str], tmp_path: Path):
    grid = ["layers=embeddings,last,majority_tag", "seed=1,2", "condition=main,control"]
    found = probe.sweep(*settings, *FAST, "results_dir=out", *grid)
    assert found.problems == []
    rows = build_rows(tmp_path / "out")
    assert {(row.name, row.condition) for row in rows} >= {("last", None), ("last", "control"), ("majority_tag", None)}
    assert [check for check in check_files(tmp_path / "out") if check.ok is False] == []
    by_name = {row.title: row for row in rows if not row.condition}
    assert by_name["embeddings"].dev_mean > 0.7, "a name is a word"
    assert by_name["majority_tag"].dev_mean > 0.8
    record = next(iter(by_name["last"].records.values()))
    assert record.scores.dev.counts.words == 30
    assert record.data.splits.dev.words > 30
    controls = [row.dev_mean for row in rows if row.condition == "control" and row.indices]
    assert max(controls) < 0.8, "labels drawn by sentence cannot be generalised"


def test_a_changed_label_is_found(settings: list[str], tmp_path: Path):
    probe.run(*settings, *ONE_EPOCH, "layers=last", "results_dir=out")
    (file,) = (tmp_path / "out/predictions").glob("*.dev.conll")
    text, gold, predicted = file.read_text().split("\n")[0].split("\t")
    other = "none" if gold == "person" else "person"
    file.write_text(file.read_text().replace(f"{text}\t{gold}\t{predicted}", f"{text}\t{other}\t{predicted}", 1))
    assert any(check.ok is False for check in check_files(tmp_path / "out"))


def test_a_screen_ranks_choices_without_a_window(settings: list[str]):
    found = probe.screen(*settings, "screen.sentences=60", "screen.max_layers=2", "results_dir=screened")
    assert len(found.table) > 10
    assert found.table.dev.max() > 0.5
    assert found.record.identity.screen["window"] == 0
    assert found.record.words == {"train": 60, "dev": 30}


def test_new_text_gets_the_labels_of_the_record(settings: list[str], tmp_path: Path, typed):
    record = probe.run(*settings, *ONE_EPOCH, "layers=sum_last_four", "save_probe=true", "results_dir=out")
    texts = [line.split("\t")[1] for line in (tmp_path / "test.txt").read_text().splitlines()]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    done = typed("tag", "out", "new.txt", "--input", "text", "device=cpu")
    assert done.returncode == 0, done.stderr
    labels = [line.split("\t")[0] for line in done.stdout.splitlines()]
    (file,) = (tmp_path / "out/predictions").glob("*.test.conll")
    assert labels == [block.split("\t")[2].strip() for block in file.read_text().strip().split("\n\n")]
    assert record.scores.test.counts.words == len(labels)


def test_an_export_has_a_row_per_sentence(settings: list[str], tmp_path: Path, typed):
    done = typed("export", *settings, "layers=last", "--to", "exported")
    assert done.returncode == 0, done.stderr
    _, dev, _ = probe.features(*settings, "layers=last")
    np.testing.assert_array_equal(load_file(tmp_path / "exported/dev.safetensors")["vectors"], np.asarray(dev.vectors))


@pytest.mark.parametrize(
    ("typed_more", "facts"),
    [
        (["probe=bilstm"], ["data.task", "probe=linear", "probe=mlp"]),
        (["probe=finetune"], ["data.task"]),
        (["probe=linear", "features.sentence=middle"], ["features.sentence", "first"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(typed_more: list[str], facts: list[str], settings: list[str], typed):
    done = typed(*settings, "layers=last", *typed_more)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    names(done.stderr, *facts)


def test_an_mlp_learns_words_and_sentences(settings: list[str], inputs: list[str]):
    mlp = ["probe=mlp", "probe.hidden_size=8", "probe.learning_rate=0.02", "probe.max_epochs=8", "layers=embeddings"]
    assert probe.run(*settings, *mlp).scores.dev.headline > 0.6
    of_words = [typed for typed in inputs if not typed.startswith("probe.")]
    record = probe.run(*of_words, *mlp, "device=cpu")
    assert record.scores.dev.headline > 0.5
    assert record.parameters == 16 * 8 + 8 + 8 * 7 + 7


def test_without_a_first_special_piece_there_is_no_cls(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    bare = replace(tiny_encoder, special=replace(tiny_encoder.special, prefix=[], prefix_types=[]))
    with pytest.raises(UserError, match="cls"):
        FeatureStore.of(tiny_corpus, bare, features_config(tmp_path, subword="cls"))
    assert FeatureStore.of(tiny_corpus, bare, features_config(tmp_path)).shards
