"""Runs on labels of pairs of words: features against transformers, arcs of CoNLL-U, and every command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from support.facts import names
from support.inputs import COMMON, NAMES, plain_encoder
from support.labelled import settings_of, swept

import probe
from probe.data.corpus import load_corpus
from probe.settings import config_of

pytestmark = pytest.mark.usefixtures("api_here")

FAST = ["probe=linear", "probe.learning_rate=0.05", "probe.max_epochs=5"]


def row(choose: random.Random) -> dict:
    """Two spans of a sentence, and whether both are names."""
    words = [choose.choice(list(NAMES) if choose.random() < 0.5 else COMMON) for _ in range(choose.randint(4, 9))]
    targets = []
    for _ in range(choose.randint(1, 3)):
        a, b = choose.randrange(len(words) - 1), choose.randrange(len(words) - 1)
        both = words[a] in NAMES and words[b] in NAMES
        targets.append({"span1": [a, a + 1], "span2": [b, b + choose.randint(1, 2)], "label": "both" if both else "no"})
    return {"text": " ".join(words), "targets": targets}


@pytest.fixture
def settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    choose = random.Random(0)
    for name, size in (("train", 60), ("dev", 30), ("test", 30)):
        rows = [row(choose) for _ in range(size)] + [{"text": "nothing here", "targets": []}]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return settings_of(tiny_bert, tmp_path, "data=pairs")


def test_vectors_are_those_of_a_plain_forward_pass(settings: list[str], tiny_bert: Path, tmp_path: Path):
    _, dev, _ = probe.features(*settings, *FAST, "layers=single", "layers.indices=[3]")
    tokenizer, model = plain_encoder(tiny_bert)
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    expected, labels = [], []
    for one in rows:
        words = one["text"].split()
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**encoded, output_hidden_states=True).hidden_states[3][0]
        first = [encoded.word_ids().index(word) for word in range(len(words))]
        for target in one["targets"]:
            a, b = (states[first[slice(*target[span])]].mean(0) for span in ("span1", "span2"))
            expected.append(torch.cat([a, b, a * b]))
            labels.append(target["label"])
    assert dev.tags == labels
    torch.testing.assert_close(dev.vectors[:], torch.stack(expected), atol=5e-5, rtol=1e-4)


def test_a_sentence_behind_a_cut_shard_is_read_whole(settings: list[str], tmp_path: Path, monkeypatch):
    expected = probe.features(*settings, *FAST, "layers=last").train.vectors[:]
    monkeypatch.setattr("probe.features.store.WORDS_IN_SHARD", 3)
    again = probe.features(*settings, *FAST, "layers=last", f"features.cache_dir={tmp_path / 'other'}").train.vectors
    torch.testing.assert_close(again[:], expected, atol=5e-5, rtol=1e-4)


@pytest.mark.usefixtures("short_epochs")
def test_a_sweep_makes_a_table_that_verifies(settings: list[str], tmp_path: Path):
    rows = swept([*settings, *FAST], tmp_path)
    main = rows["embeddings", None]
    assert main.width == 3 * 16
    assert main.dev_mean > 0.7, "each name is a word"
    assert rows["embeddings", "control"].dev_mean < main.dev_mean
    (record, *_) = main.records.values()
    pairs = sum(len(json.loads(line)["targets"]) for line in (tmp_path / "dev.jsonl").read_text().splitlines())
    assert record.scores.dev.counts.words == pairs
    assert record.identity.sentence is None


def test_screen_export_and_errors_speak_of_pairs(settings: list[str], tmp_path: Path, typed):
    found = probe.screen(*settings, "screen.sentences=60", "screen.max_layers=2", "results_dir=screened")
    assert found.table.dev_f1.max() > 0.8
    assert typed("verify", "screened").returncode == 0
    done = typed("export", *settings, *FAST, "layers=last", "--to", "exported")
    assert done.returncode == 0, done.stderr
    _, dev, _ = probe.features(*settings, *FAST, "layers=last")
    np.testing.assert_array_equal(load_file(tmp_path / "exported/dev.safetensors")["vectors"], np.asarray(dev.vectors))
    probe.run(*settings, *FAST, "layers=last", "results_dir=out", "save_probe=true")
    assert typed("tag", "out", "ana met smith").returncode == 2


CONLLU = """\
# text = ana met smith
1\tana\t_\t_\t_\t_\t2\tnsubj\t_\t_
2\tmet\t_\t_\t_\t_\t0\troot\t_\t_
3\tsmith\t_\t_\t_\t_\t2\tobj\t_\t_

1\tgo\t_\t_\t_\t_\t0\troot\t_\t_

"""


def test_arcs_of_conllu_are_each_word_and_its_head(tmp_path: Path):
    for name, more in (("train", ""), ("dev", CONLLU.replace("smith", "ana")), ("test", CONLLU.replace("ana", "x"))):
        (tmp_path / f"{name}.conllu").write_text(CONLLU + more)
    typed = [
        "data=pairs",
        f"data.path={tmp_path}",
        *(f"data.{name}={name}.conllu" for name in ("train", "dev", "test")),
    ]
    train = load_corpus(config_of(typed).data).splits["train"]
    assert list(train.words) == [["ana", "met", "smith"]]
    assert list(train.tags) == [["nsubj", "obj"]]
    assert train.pairs == [[(0, 1, 1, 2), (2, 3, 1, 2)]]
    assert train.empty == 1, "a sentence with a root alone has no arc"


@pytest.mark.parametrize(
    ("targets", "facts"),
    [
        ([{"span1": [0, 1], "label": "x"}], ["train.jsonl:1", "span2"]),
        ([{"span1": [0, 1], "span2": [1, 9], "label": "x"}], ["train.jsonl:1", "[1, 9]", "3"]),
        ([{"span1": [0, 1], "span2": [1, 1], "label": "x"}], ["train.jsonl:1", "[1, 1]"]),
        ([{"span1": [0, 1], "span2": [1, 2], "label": ["x"]}], ["train.jsonl:1"]),
        ("none", ["train.jsonl:1", "span1"]),
    ],
)
def test_what_is_wrong_with_a_target_is_named(targets: object, facts: list[str], settings: list[str], typed, tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "ana met smith", "targets": targets}) + "\n")
    done = typed(*settings, *FAST, "layers=last")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    names(done.stderr, *facts)


def test_a_head_that_cannot_be_is_named(tmp_path: Path, typed):
    (tmp_path / "a.conllu").write_text(CONLLU.replace("\t2\tobj", "\t7\tobj"))
    files = [f"data.{name}=a.conllu" for name in ("train", "dev", "test")]
    done = typed("data=pairs", f"data.path={tmp_path}", *files, "probe=linear", "layers=last")
    assert done.returncode == 2
    names(done.stderr, "a.conllu:4", "7")
