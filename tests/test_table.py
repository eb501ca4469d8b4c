"""Records to tables: right means, nothing hidden, nothing mixed up."""

from __future__ import annotations

import csv
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from probe.config import UserError
from probe.records import RunIdentity, load_record, record_path, write_record
from probe.table import build_rows, render, setting_of, write_expected


def make_record(
    folder: Path,
    row: str,
    seed: int,
    dev: float,
    test: float,
    indices=(5,),
    combine="concat",
    context="sentence",
    corpus="corpus",
    weights="a",
) -> dict:
    features = f"features-{context}-{weights}"
    identity = RunIdentity(corpus, features, {"indices": list(indices), "combine": combine}, {}, seed)
    record = {
        "schema": 1,
        "key": identity.key,
        "identity": identity.as_dict(),
        "row": row,
        "config": {
            "features": {"context": context, "subword": "first"},
            "probe": {"num_layers": 2, "hidden_size": 8},
        },
        "data": {"name": "demo"},
        "encoder": {"name": "some/encoder"},
        "layers": {"indices": list(indices), "combine": combine, "width": 16 * len(indices)},
        "scores": {"dev": {"f1": dev}, "test": {"f1": test}},
    }
    write_record(record_path(folder, row, identity), record)
    return record


def expect(record: dict) -> dict:
    return {
        "key": record["key"],
        "row": record["row"],
        "identity": record["identity"],
        "width": record["layers"]["width"],
        "setting": setting_of(record["config"], "demo", "some/encoder"),
    }


def test_mean_and_sample_deviation_over_seeds_in_the_papers_order(tmp_path: Path):
    for seed, dev in enumerate([0.81, 0.84, 0.80], start=1):
        make_record(tmp_path, "last", seed, dev, dev - 0.05)
        make_record(tmp_path, "embeddings", seed, dev - 0.1, dev - 0.2, indices=(0,))
    make_record(tmp_path, "layer_3", 1, 0.5, 0.5, indices=(3,))
    rows = build_rows(tmp_path)
    assert [row["layers"] for row in rows] == ["embeddings", "last", "layer_3"]
    assert rows[1]["n"] == 3
    assert rows[1]["dev_f1"]["mean"] == pytest.approx(statistics.mean([0.81, 0.84, 0.80]))
    assert rows[1]["dev_f1"]["std"] == pytest.approx(statistics.stdev([0.81, 0.84, 0.80]))
    assert rows[2]["dev_f1"] == {"mean": 0.5, "std": None}
    assert "81.67 ± 2.08" in render(rows, "text")
    assert "n = 1 has no spread" in render(rows, "text")


def test_missing_cells_show(tmp_path: Path):
    there = make_record(tmp_path / "a", "last", 1, 0.8, 0.7)
    second = make_record(tmp_path / "elsewhere", "last", 2, 0.8, 0.7)
    other = make_record(tmp_path / "elsewhere", "sum_all", 1, 0.8, 0.7, indices=(1, 2, 3), combine="sum")
    write_expected(tmp_path / "a", [expect(there), expect(second), expect(other)])
    rows = build_rows(tmp_path / "a")
    assert [(row["layers"], row["n"], row["missing"]) for row in rows] == [("last", 1, 1), ("sum_all", 0, 1)]
    text = render(rows, "text")
    assert "1 of 2" in text
    assert "0 of 1" in text
    assert text.count("missing") == 2


def test_unlike_settings_never_share_a_mean(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    make_record(tmp_path, "last", 1, 0.9, 0.7, context="document")
    make_record(tmp_path, "last", 1, 0.7, 0.7, corpus="another of the same name")
    make_record(tmp_path, "last", 1, 0.6, 0.7, weights="edited under the same name")
    rows = build_rows(tmp_path)
    assert [row["n"] for row in rows] == [1, 1, 1, 1]
    assert render(rows, "text").count("context") == 4


def test_one_run_is_counted_once_whatever_its_row_was_called(tmp_path: Path):
    record = make_record(tmp_path, "last", 1, 0.8, 0.7)
    (tmp_path / "records" / f"copied-seed1-{record['key'][:10]}.json").write_text(json.dumps(record))
    (row,) = build_rows(tmp_path)
    assert (row["n"], row["dev_f1"]["std"]) == (1, None)


def test_a_narrower_sweep_does_not_hide_what_a_wider_one_left_open(tmp_path: Path):
    there = make_record(tmp_path / "a", "last", 1, 0.8, 0.7)
    open_cell = make_record(tmp_path / "elsewhere", "sum_all", 2, 0.8, 0.7, indices=(1, 2, 3), combine="sum")
    write_expected(tmp_path / "a", [expect(there), expect(open_cell)])
    write_expected(tmp_path / "a", [expect(there)])
    assert [(row["layers"], row["missing"]) for row in build_rows(tmp_path / "a")] == [("last", 0), ("sum_all", 1)]


def test_json_csv_and_markdown_say_the_same(tmp_path: Path):
    make_record(tmp_path, "concat_last_four", 1, 0.81, 0.75, indices=(3, 4, 5, 6))
    make_record(tmp_path, "concat_last_four", 2, 0.83, 0.77, indices=(3, 4, 5, 6))
    rows = build_rows(tmp_path)
    row = json.loads(render(rows, "json"))[0]
    assert {k: row[k] for k in ("layers", "indices", "combine", "width", "n")} == {
        "layers": "concat_last_four", "indices": [3, 4, 5, 6], "combine": "concat", "width": 64, "n": 2,
    }  # fmt: skip
    assert set(row["dev_f1"]) == {"mean", "std"}
    line = next(csv.DictReader(io.StringIO(render(rows, "csv"))))
    assert float(line["dev_f1_mean"]) == row["dev_f1"]["mean"] == pytest.approx(0.82)
    assert "| concat_last_four | 3..6" in render(rows, "md")


def test_changed_and_foreign_records_are_refused_by_name(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    file = next((tmp_path / "records").iterdir())
    record = json.loads(file.read_text())
    record["identity"]["seed"] = 7
    file.write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"{file.name}: its key is not the hash of its identity"):
        build_rows(tmp_path)
    file.write_text("{")
    with pytest.raises(UserError, match="is not a record"):
        load_record(file)
    file.write_text(
        json.dumps({key: part for key, part in make_record(tmp_path, "x", 9, 0.1, 0.1).items() if key != "scores"})
    )
    with pytest.raises(UserError, match="it has no 'scores'"):
        load_record(file)
    file.write_text('{"schema": 99}')
    with pytest.raises(UserError, match="schema 99, this version reads 1"):
        load_record(file)


def test_an_empty_or_missing_folder_says_what_to_type(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="probe .sweep=quickstart"):
            build_rows(folder)


def test_table_needs_neither_torch_nor_hydra(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    code = (
        "import sys; sys.argv = ['probe', 'table', sys.argv[1]]\n"
        "from probe.cli import dispatch\n"
        "dispatch(sys.argv[1:])\n"
        "heavy = {'torch', 'transformers', 'datasets', 'hydra', 'pytorch_lightning', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "80.00" in done.stdout
