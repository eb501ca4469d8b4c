"""Tasks of words and sentences in one folder: one table, one figure, and all of it verifies."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.inputs import COMMON, NAMES

import probe
from probe.report.page import write_report
from probe.tables.formats import task_tables
from probe.tables.rows import build_rows
from probe.verify.checks import check_files

pytestmark = pytest.mark.usefixtures("api_here")

FAST = ["probe=linear", "probe.learning_rate=0.05", "probe.max_epochs=4", "probe.lr_decay=linear"]  # ends by itself


@pytest.fixture
def settings(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A treebank in which names are proper nouns."""
    monkeypatch.chdir(tmp_path)
    choose = random.Random(0)
    for name, size in (("train", 60), ("dev", 30), ("test", 30)):
        blocks, same, reversed_words = [], [], []
        for _ in range(size):
            words = choose.choices([*NAMES, *COMMON], k=choose.randint(5, 12))
            tags = ["PROPN" if word in NAMES else "X" for word in words]
            label = f"{len(words) // 3}"
            same.append(json.dumps({"text": words, "label": label}))
            reversed_words.append(json.dumps({"text": words[::-1], "label": label}))
            rows = enumerate(zip(words, tags, strict=True))
            blocks.append("".join(f"{i + 1}\t{w}\t_\t{t}\t_\t_\t{i}\t{t.lower()}\t_\t_\n" for i, (w, t) in rows))
        (tmp_path / f"xx-ud-{name}.conllu").write_text("\n".join(blocks) + "\n")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(same))
        (tmp_path / f"reversed.{name}.jsonl").write_text("\n".join(reversed_words))
    cache = f"features.cache_dir={tmp_path / 'cache'}"
    typed = [f"encoder.path={tiny_bert}", f"data.path={tmp_path}", "data.subset=xx", cache, "features.dtype=float32"]
    return [*typed, "device=cpu", "jobs=1", "results_dir=out"]


def test_words_and_sentences_make_one_table_that_verifies(settings: list[str], tmp_path: Path):
    grid = [*settings, *FAST, "layers=single", "layers.indices=[0],[2],[5]", "seed=1,2"]
    assert probe.sweep(*grid, "data=ud_pos").problems == []
    assert probe.sweep(*grid, "data=sentences", "data.name=length").problems == []
    stores = [folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]
    assert len(stores) == 2, "words, and whole texts"
    files = [f"data.{name}=reversed.{name}.jsonl" for name in ("train", "dev", "test")]
    assert probe.sweep(*grid, "data=sentences", "data.name=reversed", *files).problems == []
    assert len([folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]) == 3, "another text"

    rows = build_rows(tmp_path / "out")
    (table,) = task_tables(rows)
    assert {line[0] for line in table.lines} == {"xx UPOS", "reversed", "length"}
    assert {line[1] for line in table.lines} == {"accuracy"}
    assert [table.headers.index(str(layer)) for layer in (0, 2, 5)] == [3, 4, 5]
    by_task = {line[0]: dict(zip(table.headers, line, strict=True)) for line in table.lines}
    assert float(by_task["xx UPOS"]["0"]) > float(by_task["xx UPOS"]["most frequent"]) + 5

    assert [check for check in check_files(tmp_path / "out") if check.ok is False] == []
    write_report(tmp_path / "out")
    assert 'id="tasks"' in (tmp_path / "out/report.html").read_text()
