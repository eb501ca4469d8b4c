"""Presets of the Hub whose labels belong to texts, on a stand-in that has their repositories' shape."""

from __future__ import annotations

import io

import datasets
import pytest
from support.hub import Hub

from probe.data.corpus import load_corpus
from probe.settings import configs_of

FILES = "{}-00000-of-00001.parquet"
CARD = "---\nconfigs:\n- config_name: {0}\n  data_files:\n" + "".join(
    f"  - split: {split}\n    path: {{0}}/{split}-*\n" for split in ("train", "validation", "test")
)
OTHER = "- config_name: rte\n  data_files:\n  - split: train\n    path: rte/train-*\n---\n"


def parquet(feature: object, label: str, rows: list[dict]) -> bytes:
    table = datasets.Dataset.from_list(rows)
    buffer = io.BytesIO()
    table.cast(datasets.Features({**table.features, label: feature})).to_parquet(buffer)
    return buffer.getvalue()


def classes(*names: str) -> datasets.ClassLabel:
    return datasets.ClassLabel(names=list(names))


SIZES = {"train": 30, "validation": 6, "test": 6}


@pytest.mark.parametrize(
    ("preset", "repository", "folder", "splits", "label", "feature", "fields"),
    [
        ("sst2", "stanfordnlp/sst2", "data/", SIZES, "label", classes("negative", "positive"), ["sentence"]),
    ],
)
def test_every_preset_reads_a_data_set_of_its_repositorys_shape(
    stand_in: Hub,
    preset: str,
    repository: str,
    folder: str,
    splits: dict[str, int],
    label: str,
    feature: datasets.ClassLabel | datasets.Value,
    fields: list[str],
):
    names = getattr(feature, "names", None)
    content: dict[str, bytes | str] = {}
    for split, size in splits.items():
        values: list[float] = [i % len(names) if names else i / 8 for i in range(size)]
        if preset == "sst2" and split == "test":
            values = [-1] * size  # its labels are secret
        rows = [
            {**{field: f"It is {split} {i}, {field}." for field in fields}, label: value, "idx": i}
            for i, value in enumerate(values)
        ]
        content[folder + FILES.format(split)] = parquet(feature, label, rows)
    if folder != "data/":
        content["rte/train-00000-of-00001.parquet"] = b"not to be fetched"
        content["README.md"] = CARD.format(folder[:-1]) + OTHER
    commit = stand_in.put("dataset", repository, content)
    corpus = load_corpus(configs_of([f"data={preset}", "probe=linear"])[0][0].data)
    assert corpus.about["commit"] == commit
    train = corpus.splits["train"]
    words = [word for field in fields for word in ("It", "is", "train", "0", ",", field, ".")]
    assert words in list(train.words)
    assert all(corpus.splits[name].words for name in ("dev", "test"))
    if names:
        assert {tag for tags in train.tags for tag in tags} == set(names)
    else:
        assert ["0.125"] in list(train.tags)
