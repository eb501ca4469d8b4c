"""Items: a label and a group for each vector of another program, matched by id."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.metrics import roc_auc_score
from support.facts import names

from probe.runs.outputs import predictions_path, read_predictions
from probe.runs.records import load_records
from probe.tables.recommendation import recommend
from probe.tables.rows import build_rows

SPLITS = ("train", "dev", "test")
LINEAR = ["probe=linear", "probe.max_epochs=4", "probe.lr_decay=linear", "layers.normalize=train"]


def rows_of(split: str) -> list[dict[str, Any]]:
    """Sixty items of twelve groups that are not neighbours."""
    labels = [int(k * 7 % 5 < 2) for k in range(60)]
    return [
        {"id": f"{split}-{k}", "text": "please " * (1 + k % 4) + split, "label": "bad" if label else "fine",
         "group": f"{split} {k % 12}"}
        for k, label in enumerate(labels)
    ]  # fmt: skip


def write(folder: Path, order: int = 0, changed: Mapping[str, list[dict[str, Any]]] | None = None) -> None:
    """Writes items with vectors in which layer 1 knows the label. order: of the rows."""
    folder.mkdir(exist_ok=True)
    for number, split in enumerate(SPLITS):
        rows = rows_of(split)
        draw = np.random.default_rng(number)
        vectors = draw.normal(size=(60, 3, 4))
        vectors[:, 1, 0] += [2.0 * (row["label"] == "bad") for row in rows]
        mixed = np.random.default_rng(order).permutation(60) if order else np.arange(60)
        save_file({"vectors": torch.tensor(vectors[mixed], dtype=torch.float32)}, folder / f"{split}.safetensors")
        (folder / f"{split}.ids.txt").write_text("\n".join(rows[k]["id"] for k in mixed))
        lines = (changed or {}).get(split, rows)
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))


def settings(folder: Path) -> list[str]:
    return ["data=items", f"data.path={folder}", "encoder=vectors", f"encoder.path={folder}", *LINEAR]


def test_a_table_of_layers_and_baselines_is_checked(typed: Callable, tmp_path: Path):
    write(tmp_path / "items")
    layers = "layers=layer_0,layer_1,majority_tag,length"
    done = typed("-m", *settings(tmp_path / "items"), "data.words_field=text", "data.labels=[fine,bad]", layers,
                 "seed=1,2", "results_dir=out", "jobs=1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    by_name = {row.name: row for row in build_rows(tmp_path / "out")}
    assert set(by_name) == {"layer_0", "layer_1", "majority_tag", "length"}
    assert by_name["layer_1"].label == "best"
    assert "12 documents" in str(by_name["layer_1"].cover.units)
    for file, record in load_records(tmp_path / "out").items():
        gold, said = read_predictions(predictions_path(file, "dev"))
        expected = roc_auc_score([label == "1" for (label,) in gold], [float(value) for (value,) in said])
        assert record.scores.dev.headline == pytest.approx(expected, abs=1e-12)
        assert record.data.labels == ["fine", "bad"]
    checked = typed("verify", "out")
    assert checked.returncode == 0, checked.stdout
    again = typed("verify", "out", "--rerun", "layer_1", "--seed", "1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert str(recommend([*by_name.values()])).count("majority_tag") == 0
    shown = typed("table", "out").stdout
    names(shown, "AUROC of bad against fine", "average precision")


def test_the_label_that_is_detected_turns_the_order_round(typed: Callable, tmp_path: Path):
    write(tmp_path / "items")
    for number, labels in enumerate(("[fine,bad]", "[bad,fine]")):
        done = typed(*settings(tmp_path / "items"), f"data.labels={labels}", "layers=layer_1", f"results_dir=o{number}")
        assert done.returncode == 0, done.stderr
    first, second = (next(iter(load_records(tmp_path / out).values())) for out in ("o0", "o1"))
    assert first.key != second.key
    assert first.scores.dev.counts.gold == second.scores.dev.counts.gold
    assert first.scores.dev.per_type["1"].gold == second.scores.dev.per_type["0"].gold


def test_permuted_vectors_give_the_same_bits(typed: Callable, tmp_path: Path):
    for order in (0, 1):
        write(tmp_path / f"items{order}", order)
        done = typed(*settings(tmp_path / f"items{order}"), "layers=layer_1", f"results_dir=out{order}")
        assert done.returncode == 0, done.stderr
    first, second = (next(iter(load_records(tmp_path / f"out{order}").values())) for order in (0, 1))
    assert first.sha256.predictions == second.sha256.predictions


def test_one_file_of_vectors_serves_splits_by_group(typed: Callable, tmp_path: Path):
    write(tmp_path / "items")
    folder = tmp_path / "items"
    for split in ("dev", "test"):
        for ending in ("safetensors", "ids.txt", "jsonl"):
            (folder / f"{split}.{ending}").unlink()
    fractions = [word for split in ("dev", "test") for word in (f"data.{split}=null", f"data.{split}_fraction=0.3")]
    done = typed(*settings(folder), *fractions, "layers=layer_1", "results_dir=out")
    assert done.returncode == 0, done.stderr
    record = next(iter(load_records(tmp_path / "out").values()))
    splits = record.data.splits
    assert sum(part.sentences for part in (splits.train, splits.dev, splits.test)) == 60
    assert (splits.dev.documents, splits.test.documents) == (4, 4)


def test_doctor_counts_texts_and_extraction_needs_no_probe(typed: Callable, tmp_path: Path):
    write(tmp_path / "items")
    of_items = settings(tmp_path / "items")[: -len(LINEAR)]
    done = typed("extract", *of_items)
    assert done.returncode == 0, done.stderr
    lines = typed("doctor", *of_items, *LINEAR).stdout.splitlines()
    (train,) = [line for line in lines if "train: " in line]
    names(train, "texts 60")
    assert "words" not in train


def with_(split: str, row: int, **values: Any) -> list[dict[str, Any]]:
    rows = rows_of(split)
    rows[row] |= values
    return rows


@pytest.mark.parametrize(
    ("changed", "extra", "facts"),
    [
        ({"dev": with_("dev", 3, group="train 5")}, [], ["train 5", "data.dev_fraction"]),
        ({"dev": with_("dev", 3, id="dev-4")}, [], ["'dev-4'", "two"]),
        ({"dev": with_("dev", 3, id="dev-99")}, [], ["'dev-99'", "dev.safetensors"]),
        ({"dev": with_("dev", 3, label="odd")}, [], ["3", "data.task=sentence"]),
        ({"dev": [row | {"label": "fine"} for row in rows_of("dev")]}, [], ["dev.jsonl", "bad"]),
        ({}, ["data.task=sentence", "layers=length"], ["length", "sentence"]),
        ({}, ["layers=majority_tag"], ["data.words_field=text"]),
        ({"dev": [{key: row[key] for key in ("id", "label")} for row in rows_of("dev")]}, [], ["group"]),
    ],
)
def test_what_does_not_fit_is_one_line(
    typed: Callable, tmp_path: Path, changed: dict[str, list], extra: list[str], facts: list[str]
):
    write(tmp_path / "items", changed=changed)
    layers = [] if any(word.startswith("layers=") for word in extra) else ["layers=layer_1"]
    done = typed(*settings(tmp_path / "items"), *layers, *extra, "results_dir=out")
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    names(done.stderr.strip().splitlines()[-1], *facts)


def test_a_baseline_as_good_as_the_best_row_is_named(typed: Callable, tmp_path: Path):
    telling = {split: [row | {"text": f"{split} {row['label']}"} for row in rows_of(split)] for split in SPLITS}
    write(tmp_path / "items", changed=telling)
    done = typed("-m", *settings(tmp_path / "items"), "data.words_field=text", "layers=layer_0,layer_1,majority_tag",
                 "seed=1,2", "results_dir=out", "jobs=1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    names(str(recommend(build_rows(tmp_path / "out"))), "majority_tag", "100.00")
