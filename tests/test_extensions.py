"""probe/README.md says how to add a score, a kind of label, a format, a column and a command: each added as it says."""

from __future__ import annotations

import json
import random
import re
import sys
import types
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score
from support.commands import TINY, here

from probe.cli import COMMANDS
from probe.data.layout import Layout
from probe.data.readers import READERS, Reader
from probe.data.split import Split, SplitBuilder
from probe.data.tasks import TASKS
from probe.data.tasks.tags import TAGS
from probe.runs.outputs import load_counts, read_predictions
from probe.runs.samples import run_counts, samples_of
from probe.runs.screens import load_screen
from probe.scoring.metrics import SIDES, Counts, f1_of
from probe.scoring.score import jackknife, score_of_sums
from probe.scoring.tags import Tags
from probe.tables.columns import COLUMNS, Column
from probe.tables.rows import build_rows


def by_kind(counts: Counts) -> np.ndarray:
    """(sentences, 3 K): gold, predicted and correct items of each kind."""
    kinds = [name.partition(":")[2] for name in counts if name.startswith("gold:")]
    return np.stack([np.asarray(counts[f"{side}:{kind}"]) for kind in kinds for side in SIDES], 1)


def macro_f1(sums: np.ndarray) -> np.ndarray:
    return f1_of(sums.reshape(*sums.shape[:-1], -1, 3)).mean(-1)


MACRO = replace(score_of_sums("macro F1", "Macro F1", by_kind, macro_f1), items=lambda counts: counts[:, ::3].sum(1))


def by_scikit_learn(gold: Tags, predicted: Tags) -> float:
    flat = ([tag for tags in side for tag in tags] for side in (gold, predicted))
    return float(f1_score(*flat, average="macro", zero_division=0))


def read_bracketed(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """A sentence per line: [Ana](PER) saw Bo ."""
    builder = SplitBuilder(origin)
    for number, line in enumerate(lines, 1):
        pairs = [re.fullmatch(r"\[(.*)\]\((.*)\)", word) or re.fullmatch(r"(.*)()", word) for word in line.split()]
        found = [pair.groups() for pair in pairs if pair]
        builder.add([number], [word for word, _ in found], [tag or "O" for _, tag in found])
    return builder.done()


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("probe.commands.greet")
    module.greet = lambda arguments: print("hello", *arguments) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "probe.commands.greet", module)
    monkeypatch.setitem(COMMANDS, "greet", ("greet", "say hello"))
    task = replace(TAGS, name="macro", headline=MACRO, reference=by_scikit_learn)
    monkeypatch.setitem(TASKS, "macro", task)
    monkeypatch.setitem(READERS, "bracketed", Reader("brackets", (".brk",), read_bracketed))
    column = Column("letters", lambda row: {"letters": len(row.name)}, lambda row: str(len(row.name)))
    monkeypatch.setitem(COLUMNS, "letters", column)


TAG_OF = {"Ana": "NAME", "Bo": "NAME", "sat": "VERB", "ran": "VERB"}
WORDS = [*TAG_OF, "the", "cat", "dog"]
DATA = ["data=columns", "data.path=data", *(f"data.{split}={split}.brk" for split in ("train", "dev", "test"))]
DATA += ["encoder.path=bert"]


@pytest.fixture
def folder(tmp_path: Path, extended: None, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two rows of two seeds and a screen, of a text in the new format, by the new score."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "bert").symlink_to(tiny_bert)
    draw = np.random.default_rng(0)
    for split, sentences in (("train", 60), ("dev", 40), ("test", 40)):
        lines = draw.choice(WORDS, (sentences, 6))
        written = [[f"[{word}]({TAG_OF[word]})" if word in TAG_OF else word for word in line] for line in lines]
        (tmp_path / f"data/{split}.brk").write_text("\n".join(map(" ".join, written)))
    done = here(
        *("-m", *DATA, "data.task=macro", *TINY, "probe=linear", "layers=last,embeddings", "seed=1,2"),
        *("data.order=independent", "results_dir=out", "jobs=1"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "out"


def test_a_new_score_is_that_of_table_interval_and_screen(folder: Path):
    rows = build_rows(folder)
    files = [file for row in rows for file in row.records]
    for file in files:
        counts = load_counts(file)[0]["dev"]
        record = json.loads(file.read_text())
        gold, predicted = read_predictions(folder / "predictions" / f"{file.stem}.dev.conll")
        expected = by_scikit_learn(gold, predicted)
        assert record["scores"]["dev"]["headline"] == pytest.approx(expected)
        assert max(epoch["dev"] for epoch in record["curve"]) == pytest.approx(expected)
        assert record["scores"]["dev"]["accuracy"] != pytest.approx(expected), "or the test shows nothing"
        statistics, draw = by_kind(counts), np.random.default_rng(0)
        units = len(statistics)
        moves = jackknife(macro_f1, statistics, np.arange(units))
        drawn = [MACRO.value(statistics[draw.integers(units, size=units)]) for _ in range(2000)]
        assert (float((moves**2).sum()) * (units - 1) / units) ** 0.5 == pytest.approx(np.std(drawn), rel=0.2)
    samples, _ = samples_of([row.records for row in rows], "dev", run_counts, order="independent")
    assert samples[0].influence is not None
    first = load_counts(next(iter(rows[0].records)))[0]["dev"]
    moves = jackknife(macro_f1, by_kind(first), np.arange(len(first["words"])))
    assert samples[0].influence[0] == pytest.approx(moves)


def test_a_screen_ranks_by_the_new_score(folder: Path):
    choose = random.Random(0)
    tags, guesses = ([[choose.choice("ABC") for _ in range(5)] for _ in range(20)] for _ in range(2))
    assert MACRO.of(TASKS["macro"].counts(tags, guesses)) == pytest.approx(by_scikit_learn(tags, guesses))
    scores = {}
    for task in ("macro", "tags"):
        done = here("screen", *DATA, f"data.task={task}", "screen.seeds=2", f"results_dir={task}", cwd=folder.parent)
        assert done.returncode == 0, done.stderr
        screen = load_screen(folder.parent / task)
        assert screen is not None
        scores[task] = [choice.scores for choice in screen.ranked]
    assert scores["macro"] != scores["tags"]


def test_new_formats_columns_and_commands_need_nothing_else(folder: Path):
    text = here("table", str(folder), "--columns", "row,letters,dev").stdout
    assert "macro F1" in text
    assert re.search(r"\blast\b.*\b4\b", text)
    assert here("greet", "you").stdout == "hello you\n"
    assert "say hello" in here("--help").stdout
    checked = here("verify", str(folder))
    assert checked.returncode == 0, checked.stdout
