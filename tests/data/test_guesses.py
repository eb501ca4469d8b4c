"""A path that is typed as the corpus (data=PATH) is read as by its long form, or refused with what to type."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.facts import names

from probe.config import UserError
from probe.data.corpus import load_corpus
from probe.settings import config_of

SPLITS = {"train": 40, "dev": 10, "test": 11}
WORDS = [{"tokens": ["Ana", f"w{i}"], "ner_tags": ["B-PER", "O"]} for i in range(61)]
TEXTS = [{"text": f"Ana {i}", "label": i % 2} for i in range(61)]
COLUMNS = [f"Ana B-PER\nw{i} O\n" for i in range(61)]


def write(file: Path, rows: list) -> None:
    file.parent.mkdir(exist_ok=True)
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))


def write_splits(folder: Path, rows: list, ending: str, **other_names: str) -> None:
    first = 0
    for name, number in SPLITS.items():
        write(folder / f"{other_names.get(name, name)}.{ending}", rows[first : first + number])
        first += number


CSV = [f"Ana,B-PER\nw{i},O\n" for i in range(61)]


@pytest.mark.parametrize(
    ("rows", "ending", "preset"),
    [
        (WORDS, "jsonl", "json"),
        (WORDS, "parquet", "json"),
        (COLUMNS, "txt", "columns"),
        (COLUMNS, "conll", "columns"),
        (CSV, "csv", "columns"),
        (TEXTS, "jsonl", "sentences"),
        (TEXTS, "parquet", "sentences"),
    ],
)
def test_a_folder_is_read_as_by_its_long_form(tmp_path: Path, rows: list, ending: str, preset: str):
    write_splits(tmp_path / "mine", rows, ending)
    folder = f"{tmp_path}/mine"
    long = [f"data={preset}", f"data.path={folder}", *(f"data.{name}={name}.{ending}" for name in SPLITS)]
    short = config_of([f"data={folder}"])
    assert repr(short) == repr(config_of([*long, *["data.separator=comma"] * (ending == "csv")]))
    corpus = load_corpus(short.data)
    assert corpus.name == "mine"
    assert {name: len(split.words) for name, split in corpus.splits.items()} == SPLITS


def test_texts_with_a_label_in_csv_are_known_by_the_first_line(tmp_path: Path):
    for name in SPLITS:
        write(tmp_path / f"{name}.csv", ["text,label", f"good {name},pos", f"bad {name},neg"])
    corpus = load_corpus(config_of([f"data={tmp_path}"]).data)
    assert list(corpus.splits["dev"].tags) == [["pos"], ["neg"]]


def test_labels_with_offsets_are_no_label_of_a_text(tmp_path: Path):
    write_splits(tmp_path, [{"text": "Ana left", "label": [[0, 3, "PER"]]}] * 61, "jsonl")
    assert config_of([f"data={tmp_path}"]).data.task == "spans"


@pytest.mark.parametrize(
    "files",
    [
        {"dev": "valid"},
        {"dev": "validation"},
        {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"},
        {"train": "en_ewt-ud-train", "dev": "en_ewt-ud-dev", "test": "en_ewt-ud-test"},
        {"train": "Train", "dev": "val"},
    ],
)
def test_other_names_of_files_are_found(tmp_path: Path, files: dict[str, str]):
    write_splits(tmp_path, COLUMNS, "txt", **files)
    data = config_of([f"data={tmp_path}"]).data
    assert (data.train, data.dev, data.test) == tuple(f"{files.get(name, name)}.txt" for name in SPLITS)


def test_a_split_is_a_word_in_a_files_name_and_the_bare_word_wins(tmp_path: Path):
    write_splits(tmp_path, COLUMNS, "txt")
    for other in ("train_old.txt", "latest.txt", "devices.txt", "untrained.txt", "train.txt.bak"):
        write(tmp_path / other, COLUMNS)
    data = config_of([f"data={tmp_path}"]).data
    assert (data.train, data.dev, data.test) == ("train.txt", "dev.txt", "test.txt")


def test_settings_that_are_typed_too_count(tmp_path: Path):
    write_splits(tmp_path, WORDS, "jsonl")
    data = config_of(["data.words_field=words", f"data={tmp_path}", "data.test=other.jsonl"]).data
    assert (data.words_field, data.train, data.test) == ("words", "train.jsonl", "other.jsonl")


def test_from_one_file_dev_and_test_are_taken(tmp_path: Path):
    write(tmp_path / "all.jsonl", WORDS)
    settings = "data.dev=null data.dev_fraction=0.1 data.test=null data.test_fraction=0.1".split()
    short = config_of([f"data={tmp_path}/all.jsonl"])
    assert repr(short) == repr(config_of(["data=json", f"data.path={tmp_path}", "data.train=all.jsonl", *settings]))
    assert [len(split.words) for split in load_corpus(short.data).splits.values()] == [49, 6, 6]


def test_a_file_beside_other_splits_leads_to_its_folder(tmp_path: Path):
    write_splits(tmp_path, WORDS, "jsonl")
    with pytest.raises(UserError) as refused:
        config_of([f"data={tmp_path}/train.jsonl"])
    names(str(refused.value), f"data={tmp_path}")


def test_two_sets_of_files_are_both_named(tmp_path: Path):
    write_splits(tmp_path, WORDS, "jsonl")
    write_splits(tmp_path, COLUMNS, "txt")
    with pytest.raises(UserError) as refused:
        config_of([f"data={tmp_path}"])
    names(str(refused.value), f"data.path={tmp_path}", "data.train=train.jsonl", "data.dev=dev.txt")


def test_a_missing_split_is_named_with_what_to_type(tmp_path: Path):
    write_splits(tmp_path, WORDS, "jsonl")
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(UserError) as refused:
        load_corpus(config_of([f"data={tmp_path}"]).data)
    names(str(refused.value), "dev.jsonl", "data.dev=null data.dev_fraction=0.1")
    typed = [f"data={tmp_path}", "data.dev=null", "data.dev_fraction=0.1"]
    assert len(load_corpus(config_of(typed).data).splits["dev"].words) == 4


def test_a_folder_without_splits_lists_its_files(tmp_path: Path):
    write(tmp_path / "sentences.jsonl", WORDS)
    with pytest.raises(UserError) as refused:
        load_corpus(config_of([f"data={tmp_path}"]).data)
    names(str(refused.value), "sentences.jsonl", "data.train=NAME")


def test_a_name_on_the_hub_is_read_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert repr(config_of(["data=some/set"])) == repr(config_of(["data=hub", "data.hub=some/set"]))


@pytest.mark.parametrize(("ending", "separator"), [("tsv", "auto"), ("csv", "comma")])
def test_lines_of_a_label_and_a_text_need_no_names(tmp_path: Path, ending: str, separator: str):
    between = "\t" if ending == "tsv" else ","
    lines = [f"{label}{between}Text {number} of {label}" for number in range(9) for label in ("good", "bad")]
    for name in SPLITS:
        (tmp_path / f"{name}.{ending}").write_text("\n".join(f"{line} in {name}" for line in lines))
    data = config_of([f"data={tmp_path}"]).data
    assert (data.task, data.separator) == ("sentence", separator)
    assert {*chain.from_iterable(load_corpus(data).splits["dev"].tags)} == {"good", "bad"}
