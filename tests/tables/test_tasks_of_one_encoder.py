"""Several tasks of one encoder stand in one table, a line per task, and in one figure, each scaled to its own range."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from support.records import COUNTS, PROBE, make_record

from probe.runs.identity import RecordedCondition
from probe.runs.records import CorpusCounts, RecordedData, Settings, SplitScores, load_record
from probe.scoring.metrics import KindScore, Scores, Totals
from probe.settings import configs_of
from probe.tables.formats import render, task_tables
from probe.tables.rows import build_rows

DEV = {"pos": [0.90, 0.96, 0.94], "names": [0.60, 0.70, 0.90]}


def made(folder: Path, names: tuple[str, ...] = ("pos", "names"), seeds: tuple[int, ...] = (1, 2, 3)) -> Path:
    splits = CorpusCounts(COUNTS, COUNTS, COUNTS)
    for name in names:
        for layer, dev in enumerate(DEV[name]):
            for seed in seeds:
                make_record(
                    folder, f"layer_{layer}", seed, dev + (seed - 2) / 1000, 0.5, (layer,), corpus=name,
                    data=RecordedData(name, "spans", splits),
                )  # fmt: skip
    return folder


def lines_of(folder: Path) -> dict[str, dict[str, str]]:
    """The cells of the table of tasks, by task and header."""
    (table,) = task_tables(build_rows(folder))
    return {line[0]: dict(zip(table.headers, line, strict=True)) for line in table.lines}


def test_each_task_has_a_line_with_its_score_and_its_best_layer(tmp_path: Path):
    lines = lines_of(made(tmp_path))
    assert list(lines) == ["names", "pos"]
    for name, line in lines.items():
        assert line["score"] == "F1"
        assert [line[str(layer)] for layer in range(3)] == [f"{100 * dev:.2f}" for dev in DEV[name]]
    assert lines["names"]["best"] == "layer_2"
    assert lines["pos"]["best"] == "layer_1"
    assert list(lines["pos"].values())[-1] == "", "0.1 between seeds, 2 points behind"
    rows = build_rows(tmp_path)
    assert "tab:tasks-" in render(rows, "tex")
    assert any(line.startswith("| names ") for line in render(rows, "md").splitlines())
    assert isinstance(json.loads(render(rows, "json")), list)


def test_of_several_encoders_each_has_its_own_best_layers(tmp_path: Path):
    made(tmp_path)
    for name in ("pos", "names"):
        for record in [load_record(file) for file in (tmp_path / "records").glob("*.json")]:
            if record.data.name == name and record.encoder.name == "some/encoder":
                layer, dev = record.layers.indices[0], record.scores.dev.headline
                make_record(
                    tmp_path, record.row, record.seed, dev - 0.2, 0.5, (layer,), corpus=name, weights="b",
                    data=record.data, encoder=replace(record.encoder, name="weak"),
                )  # fmt: skip
    rows = build_rows(tmp_path)
    assert {row.label for row in rows if row.encoder == "weak"} == {"worse"}
    tables = task_tables(rows)
    assert [[line[-2] for line in table.lines] for table in tables] == [["layer_2", "layer_1"]] * 2
    assert {row.label for row in rows if row.encoder == "weak"} == {"worse"}, "their own table is as it was"


def test_with_one_seed_nothing_is_compared(tmp_path: Path):
    lines = lines_of(made(tmp_path, seeds=(1,)))
    assert lines["names"]["best"] == "not compared"


def test_tasks_of_words_and_sentences_share_a_table_each_with_its_score(tmp_path: Path):
    made(tmp_path, ("names",))
    per_label = {"a": KindScore(1, 1, 1, 6), "b": KindScore(1, 1, 1, 4)}
    scores = Scores(0.7, per_label, Totals(10, 10, 10, 10, 7))
    features = {"context": "sentence", "subword": "first", "sentence": "mean"}
    for layer in range(3):
        for seed in (1, 2, 3):
            make_record(
                tmp_path, f"layer_{layer}", seed, 0.7, 0.5, (layer,), corpus="length", task="sentence",
                scores=SplitScores(scores, scores),
                data=RecordedData("length", "sentence", CorpusCounts(COUNTS, COUNTS, COUNTS)),
                config=Settings({}, {}, features, {}, PROBE | {"max_epochs": 12}, seed, "cpu"),
            )  # fmt: skip
    lines = lines_of(tmp_path)
    assert {(line["score"], line["most frequent"]) for line in lines.values()} == {("F1", ""), ("accuracy", "60.00")}


def test_one_task_or_another_text_is_no_comparison_of_tasks(tmp_path: Path):
    assert task_tables(build_rows(made(tmp_path / "one", ("pos",)))) == []
    for seed in (1, 2):
        make_record(tmp_path / "two", "last", seed, 0.8, 0.7)
        make_record(tmp_path / "two", "last", seed, 0.8, 0.7, context="document")
    assert task_tables(build_rows(tmp_path / "two")) == []
    made(tmp_path / "three", ("pos",))
    control = RecordedCondition(["control"], base={"corpus": "pos"})
    make_record(tmp_path / "three", "layer_0", 1, 0.5, 0.5, (0,), corpus="control", condition=control)
    assert task_tables(build_rows(tmp_path / "three")) == []


def test_the_tasks_sweep_has_every_layer_of_three_tasks():
    configs, _ = configs_of(["+sweep=tasks", "data.path=DIR", "seed=1"])
    assert len(configs) == 21
    data = {cfg.data.name: (cfg.data.task, cfg.data.tag_column, cfg.data.tags_field) for cfg in configs}
    assert data == {
        "conll2003-pos": ("tags", 1, "pos_tags"),
        "conll2003-chunks": ("spans", 2, "chunk_tags"),
        "conll2003": ("spans", -1, "ner_tags"),
    }
    assert {cfg.data.path for cfg in configs} == {"DIR"}
