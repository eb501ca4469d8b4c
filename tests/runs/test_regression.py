"""Runs on labels that are numbers: probes against an exact solution, and every command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from support.facts import names
from support.inputs import COMMON, NAMES
from support.labelled import settings_of, swept, write_lines

import probe
from probe.data.task import NUMBERS
from probe.probes.majority_tag import WordRidge
from probe.runs.records import load_records
from probe.scoring.metrics import as_labels, spearman
from probe.verify.results import check_files

pytestmark = pytest.mark.usefixtures("api_here")

SIZES = {"train": 120, "dev": 60, "test": 60}
FAST = ["probe=linear", "probe.learning_rate=0.05", "probe.max_epochs=6"]
ONE_EPOCH = ["probe=linear", "probe.max_epochs=1"]  # for a test that needs a trained run, and not a good one


def line(choose: random.Random) -> str:
    """A text, and how many of its words are names, in tenths, above 40."""
    words = [choose.choice(list(NAMES) if choose.random() < 0.4 else COMMON) for _ in range(8)]
    return f"{40 + sum(word in NAMES for word in words) / 10:.2f}\t{' '.join(words)}"


@pytest.fixture
def settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    files = write_lines(tmp_path, SIZES, line)
    return settings_of(tiny_bert, tmp_path, "data=sentences", "data.regression=true", *files)


def test_the_linear_probe_comes_to_least_squares(settings: list[str], tmp_path: Path):
    long = ["probe=linear", "probe.learning_rate=0.01", "probe.max_epochs=15", "probe.dropout=0", "probe.patience=15"]
    record = probe.run(*settings, *long, "layers=embeddings", "layers.normalize=train", "results_dir=out")
    train, dev, _ = probe.features(*settings, *long, "layers=embeddings", "layers.normalize=train")
    x, more = (np.column_stack([np.asarray(part.vectors), np.ones(len(part.tags))]) for part in (train, dev))
    gold, dev_gold = (np.array([float(tag) for tag in part.tags]) for part in (train, dev))
    exact, *_ = np.linalg.lstsq(x, gold, rcond=None)
    found = record.scores.dev.numbers
    assert found is not None
    exact_error = float(np.mean((more @ exact - dev_gold) ** 2))
    assert exact_error < 0.6 * found.variance
    assert found.squared_error == pytest.approx(exact_error, abs=0.1 * found.variance)
    assert record.scores.dev.headline == pytest.approx(spearman(more @ exact, dev_gold), abs=0.05)
    assert record.parameters == 16 + 1
    assert record.scores.dev.accuracy is None


@pytest.mark.usefixtures("short_epochs")
def test_a_sweep_makes_a_table_that_verifies(settings: list[str], tmp_path: Path, typed):
    rows = swept([*settings, *FAST], tmp_path)
    main = rows["embeddings", None]
    assert main.task is NUMBERS
    assert (main.dev_mean or 0) > 0.5
    assert (rows["majority_tag", None].dev_mean or 0) > 0.8, "a weight per word"
    assert abs(rows["embeddings", "control"].dev_mean or 0) < 0.5
    assert main.to_best is None or main.to_best.unit == "sentences"
    assert (main.cells["dev_pearson"].mean or 0) > 0.5
    done = typed("table", "out", "--columns", "default,scores")
    assert done.returncode == 0, done.stderr
    names(done.stdout, "Spearman", "pearson")
    assert "nan" not in done.stdout


def test_large_numbers_keep_their_digits():
    near = [1e9 + i / 8 for i in range(50)]
    assert [float(label) for label in as_labels(near, float(np.std(near)))] == pytest.approx(near, abs=1e-5)
    assert [float(label) for label in as_labels([1.23456e-9], 1e-9)] == pytest.approx([1.23456e-9])
    assert as_labels([1234567.0], 1e9) == ["1235000.0"]


def test_constant_predictions_score_zero_and_are_named(settings: list[str], tmp_path: Path, typed):
    for name in ("dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{number}\tunseen {name}{number}\n" for number in range(20)))
    record = probe.run(*settings, *FAST, "layers=majority_tag", "results_dir=out")
    assert record.scores.dev.headline == 0
    names(typed("table", "out").stdout, "constant", record.label)


def test_a_changed_number_is_found(settings: list[str], tmp_path: Path):
    probe.run(*settings, *ONE_EPOCH, "layers=last", "results_dir=out")
    (file,) = (tmp_path / "out/predictions").glob("*.dev.conll")
    text, gold, predicted = file.read_text().split("\n")[0].split("\t")
    file.write_text(file.read_text().replace(f"{text}\t{gold}\t{predicted}", f"{text}\t{gold}\t9", 1))
    assert any(check.ok is False for check in check_files(tmp_path / "out", tmp_path / "cache"))


def test_saved_weights_predict_numbers_of_new_text(settings: list[str], tmp_path: Path, typed):
    mlp = ["probe=mlp", "probe.hidden_size=8", "probe.max_epochs=4", "layers=sum_last_four"]
    probe.run(*settings, *mlp, "save_probe=true", "results_dir=out")
    texts = [line.split("\t")[1] for line in (tmp_path / "test.tsv").read_text().splitlines()]
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n")
    done = typed("tag", "out", "new.txt", "--input", "text", "device=cpu")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out/predictions").glob("*.test.conll")
    expected = [float(block.split("\t")[2]) for block in file.read_text().strip().split("\n\n")]
    numbers = [float(line.split("\t")[0]) for line in done.stdout.splitlines()]
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)
    assert typed("verify", "out", "--weights", "device=cpu").returncode == 0


def test_a_screen_ranks_by_spearman(settings: list[str]):
    found = probe.screen(*settings, "screen.sentences=120", "screen.max_layers=2", "results_dir=screened")
    assert found.table.dev_f1.max() > 0.5
    assert json.loads(Path("screened/screen.json").read_text())["identity"]["task"] == "sentence_regression"


def test_pairs_and_shares_of_train_take_numbers_too(settings: list[str], tmp_path: Path):
    for name in SIZES:
        rows = [one.split("\t") for one in (tmp_path / f"{name}.tsv").read_text().splitlines()]
        as_json = [{"a": text, "b": text.split()[:3], "score": float(label)} for label, text in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in as_json))
    fields = ["data.words_field=a", "data.second_field=b", "data.tags_field=score"]
    files = [f"data.{name}={name}.jsonl" for name in SIZES]
    more = ["data.task=text_pairs", *fields, *files, "data.train_fraction=0.5", "results_dir=out"]
    record = probe.run(*settings, *more, *FAST, "layers=embeddings")
    assert record.scores.dev.headline > 0.3
    assert len(load_records(tmp_path / "out")) == 1


def test_the_baseline_is_scikit_learns_ridge():
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear_model = pytest.importorskip("sklearn.linear_model")
    choose = random.Random(1)
    words = [choose.choices(COMMON, k=choose.randint(1, 8)) for _ in range(80)]
    numbers = np.array([len(sentence) + choose.random() for sentence in words])
    counts = text.CountVectorizer(analyzer=lambda sentence: sentence)
    ridge = linear_model.Ridge(alpha=1.0, fit_intercept=False, solver="cholesky")
    mean = numbers[:60].mean()
    theirs = ridge.fit(counts.fit_transform(words[:60]), numbers[:60] - mean).predict(counts.transform(words[60:]))
    ours = WordRidge(words[:60], numbers[:60].tolist()).predict(words[60:])
    np.testing.assert_allclose([float(label) for (label,) in ours], theirs + mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("typed_more", "content", "facts"),
    [
        ([], "good\ta text", ["train.tsv:1", "good", "data.regression"]),
        ([], "1\ta text\ninf\tanother", ["train.tsv:2", "inf"]),
        ([], "1\ta text\n1.0\tanother", ["train.tsv", "1.0"]),
        ([], "0\ta text\n-0\tanother", ["train.tsv", "0.0"]),
        (["data.train_fraction=0.001"], None, ["data.train_fraction=0.001", "0.009"]),
        (["data.dev=constant.tsv"], None, ["constant.tsv", "dev", "2.0"]),
        (["data.task=tags"], None, ["data.regression", "data.task=tags"]),
        (["data.labels=[1,2]"], None, ["data.regression", "data.labels"]),
        (["probe=bilstm"], None, ["probe=linear"]),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    typed_more: list[str], content: str | None, facts: list[str], settings: list[str], tmp_path: Path
):
    if content is not None:
        (tmp_path / "train.tsv").write_text(f"{content}\n")
    (tmp_path / "constant.tsv").write_text("2\ta text\n2.0\tanother\n")
    with pytest.raises(probe.config.UserError) as error:
        probe.run(*settings, "probe=linear", "layers=last", *typed_more)
    assert len(str(error.value).splitlines()) == 1
    names(str(error.value), *facts)
