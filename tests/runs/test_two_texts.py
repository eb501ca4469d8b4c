"""Runs on labels of two texts: features against transformers, one store with single texts, and every command."""

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
from support.labelled import settings_of, swept, write_lines

import probe
from probe.config import POOLINGS

pytestmark = pytest.mark.usefixtures("api_here")

FAST = ["probe=linear", "probe.learning_rate=0.05", "probe.max_epochs=5"]
ONE_EPOCH = ["probe=linear", "probe.max_epochs=1"]  # for a test that needs a trained run, and not a good one
SIZES = {"train": 80, "dev": 40, "test": 40}
JSON = ["data.train=train.jsonl"]


def line(choose: random.Random) -> str:
    """Two texts, and whether both have a name."""
    has_name = [choose.random() < 0.7 for _ in range(2)]
    texts = [[*choose.choices(COMMON, k=choose.randint(1, 6))] for _ in has_name]
    for text, there in zip(texts, has_name, strict=True):
        text[choose.randrange(len(text))] = choose.choice(list(NAMES)) if there else "the"
    return "\t".join(["both" if all(has_name) else "not both", *map(" ".join, texts)])


@pytest.fixture
def settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return settings_of(tiny_bert, tmp_path, "data=text_pairs", *write_lines(tmp_path, SIZES, line))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_those_of_a_plain_forward_pass(
    pooling: str, settings: list[str], tiny_bert: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("probe.features.store.WORDS_IN_SHARD", 20)
    typed = [*settings, *FAST, "layers.indices=[3,1]", "layers.combine=concat", f"features.sentence={pooling}"]
    _, dev, _ = probe.features(*typed)
    tokenizer, model = plain_encoder(tiny_bert)
    expected = []
    for one in (tmp_path / "dev.tsv").read_text().splitlines():
        pooled = []  # of each text, two layers
        for text in one.split("\t")[1:]:
            encoded = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                states = torch.cat(model(**encoded, output_hidden_states=True).hidden_states)[[3, 1]]
            first = [encoded.word_ids().index(word) for word in range(len(text.split()))]
            words = states[:, first]
            ways = {"mean": words.mean(1), "max": words.amax(1), "first": words[:, 0], "last": words[:, -1]}
            pooled.append(ways.get(pooling, states[:, 0]))
        a, b = pooled
        expected.append(torch.cat([a, b, (a - b).abs(), a * b], 1).flatten())
    torch.testing.assert_close(dev.vectors[:], torch.stack(expected), atol=5e-5, rtol=1e-4)


def test_the_store_is_that_of_the_texts_one_by_one(settings: list[str], tmp_path: Path):
    probe.features(*settings, *ONE_EPOCH, "layers=last")
    for name in SIZES:
        rows = [one.split("\t") for one in (tmp_path / f"{name}.tsv").read_text().splitlines()]
        single = [f"{label}\t{text}\n" for label, *texts in rows for text in texts]
        (tmp_path / f"{name}.single.tsv").write_text("".join(single))
    single = ["data=sentences", *(f"data.{name}={name}.single.tsv" for name in SIZES)]
    others = [typed for typed in settings if not typed.startswith(("data=", *(f"data.{name}=" for name in SIZES)))]
    probe.features(*others, *single, *ONE_EPOCH, "layers=last")
    assert len([folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]) == 1


def test_formats_give_one_corpus_and_one_run(settings: list[str], tmp_path: Path):
    record = probe.run(*settings, *ONE_EPOCH, "layers=last", "results_dir=out")
    for name in SIZES:
        rows = [one.split("\t") for one in (tmp_path / f"{name}.tsv").read_text().splitlines()]
        as_json = [{"premise": a, "hypothesis": b.split(), "label": label} for label, a, b in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in as_json))
    fields = ["data.words_field=premise", "data.second_field=hypothesis", *(f"data.{n}={n}.jsonl" for n in SIZES)]
    assert probe.run(*settings, *fields, *ONE_EPOCH, "layers=last", "results_dir=out") == record


@pytest.mark.usefixtures("short_epochs")
def test_a_sweep_makes_a_table_that_verifies(settings: list[str], tmp_path: Path, typed):
    rows = swept([*settings, *FAST], tmp_path)
    main = rows["embeddings", None]
    assert main.width == 4 * 16
    assert main.dev_mean > 0.75, "a name is a word, and `both` a sum"
    assert rows["embeddings", "control"].dev_mean < main.dev_mean
    (record, *_) = main.records.values()
    assert record.scores.dev.counts.words == record.data.splits.dev.sentences == SIZES["dev"]
    assert record.identity.sentence == "mean"
    assert main.to_best is None or main.to_best.unit == "sentences", "intervals are over rows of the text"
    assert typed("tag", "out", "ana met smith").returncode == 2


def test_screen_and_export_read_two_texts(settings: list[str], tmp_path: Path, typed):
    found = probe.screen(*settings, "screen.sentences=80", "screen.max_layers=2", "results_dir=screened")
    assert found.table.dev_f1.max() > 0.75
    assert typed("verify", "screened").returncode == 0
    done = typed("export", *settings, *ONE_EPOCH, "layers=last", "--to", "exported")
    assert done.returncode == 0, done.stderr
    _, dev, _ = probe.features(*settings, *ONE_EPOCH, "layers=last")
    np.testing.assert_array_equal(load_file(tmp_path / "exported/dev.safetensors")["vectors"], np.asarray(dev.vectors))
    assert dev.words[0] == " | ".join((tmp_path / "dev.tsv").read_text().splitlines()[0].split("\t")[1:])


@pytest.mark.parametrize(
    ("typed_more", "content", "facts"),
    [
        ([], "yes\tone text", ["train.tsv:1", "text TAB text"]),
        ([], "yes\tone\ttwo\tthree", ["train.tsv:1", "4 columns", "3"]),
        ([], "yes\tone\t ", ["train.tsv:1", "empty"]),
        ([], "gold_label\tpremise\thypothesis\nyes\tone\ttwo", ["train.tsv:1", "data.words_field=premise"]),
        (["data.second_field=null"], None, ["data.second_field", "text_pairs"]),
        (["data.task=sentence"], None, ["data.second_field", "text_pairs"]),
        (["features.context=document"], None, ["features.context"]),
        (["probe=bilstm"], None, ["probe=linear"]),
        (JSON, '{"sentence1": "a", "hypothesis": "b", "label": "x"}', ["data.second_field=hypothesis"]),
        (JSON, '{"sentence1": "a", "sentence2": [], "label": "x"}', ["train.jsonl:1", "empty"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    typed_more: list[str], content: str | None, facts: list[str], settings: list[str], tmp_path: Path
):
    if content is not None:
        name = "train.jsonl" if typed_more == JSON else "train.tsv"
        (tmp_path / name).write_text(f"{content}\n")
    with pytest.raises(probe.config.UserError) as error:
        probe.run(*settings, "probe=linear", "layers=last", *typed_more)
    assert len(str(error.value).splitlines()) == 1
    names(str(error.value), *facts)
