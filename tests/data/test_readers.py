"""Column files, JSON lines, Parquet and Hub rows: read as they are, or refused with their place."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import datasets
import huggingface_hub.constants
import pyarrow
import pyarrow.parquet
import pytest
from support.commands import interpreted, num_calls
from support.facts import names
from support.inputs import write_file

from probe.config import UserError
from probe.data.json_parquet import read_dataset
from probe.data.layout import Layout
from probe.data.readers import read_file
from probe.data.split import MAX_SENTENCE

PLAIN = Layout()


def test_words_tags_documents_and_lines_are_read(tmp_path: Path):
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nBonn NNP I-NP I-LOC\nParis NNP I-NP B-LOC\nsaid VBD I-VP O\n\n"
    file = write_file(tmp_path, text + "-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\nHill NNP I-NP I-PER")
    split = read_file(file, PLAIN)
    assert split.words == [["EU", "Bonn", "Paris", "said"], ["Peter", "Hill"]]
    assert split.tags == [["I-ORG", "I-LOC", "B-LOC", "O"], ["I-PER", "I-PER"]]
    assert split.documents == [1, 2]
    assert list(split.lines) == [3, 10]
    assert split.place(2) == f"{file}:5 ('Paris')"
    assert split.place(5) == f"{file}:11 ('Hill')"


def test_a_gzipped_file_is_read_as_it_is(tmp_path: Path):
    file = write_file(tmp_path, gzip.compress(b"Ana B-PER\nwon O\n"), "train.txt.gz")
    assert read_file(file, PLAIN, "").words == [["Ana", "won"]]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"train\.txt\.gz\b.*gzip"):
        read_file(file, PLAIN, "")


def test_a_corpus_with_index_first_comments_documents_and_nested_tags(tmp_path: Path):
    text = (
        "# newdoc id = a\n# text = Ana won\n1\tAna\tB-PER\tO\n# aside\n2\tUnited\tB-ORG\tB-LOC\n\n"
        "#\tx\n1\t#\tO\tO\n2\tLeeds\tB-LOC\tO\n\n# newdoc id = b\n\n1\twon\tO\tO\n"
    )
    layout = Layout(word_column=1, tag_column=2, comment="#", document_marker="# newdoc")
    split = read_file(write_file(tmp_path, text), layout)
    assert split.words == [["Ana", "United"], ["#", "Leeds"], ["won"]]
    assert split.tags == [["B-PER", "B-ORG"], ["O", "B-LOC"], ["O"]]
    assert split.documents == [1, 1, 2]
    assert [*map(list, split.word_lines)] == [[3, 5], [8, 9], [13]]
    assert split.place_in(0, 1).endswith(":5 ('United')"), "a comment inside a sentence is a line too"
    assert split.place_in(1, 1).endswith(":9 ('Leeds')")
    nested = read_file(write_file(tmp_path, text), replace(layout, tag_column=-1))
    assert nested.tags[0] == ["O", "B-LOC"]


def test_a_document_mark_may_stand_in_the_words_column(tmp_path: Path):
    split = read_file(write_file(tmp_path, "1 Ana O\n\n0 -DOCSTART- O\n\n1 won O\n"), replace(PLAIN, word_column=1))
    assert split.words == [["Ana"], ["won"]]
    assert split.documents == [1, 2]


def test_an_endless_sentence_is_refused_before_it_is_read(tmp_path: Path):
    def work(num_words: int) -> int:
        file = write_file(tmp_path, "a O\n" * num_words)

        def refused() -> None:
            with pytest.raises(UserError, match=r"some\.conll:1: .*\b10001\b"):
                read_file(file, PLAIN)

        return num_calls(refused)

    assert work(100 * MAX_SENTENCE) < 2 * work(MAX_SENTENCE + 1)


# Rows: JSON lines, Parquet, the Hub.


def dataset(names: list[str] | None, **columns: list) -> datasets.Dataset:
    tag = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tag)})
    made = {"tokens": [["Ana", "won"], [], ["Leeds"]], "ner_tags": [[1, 2], [], [0]]}
    rows = datasets.Dataset.from_dict(made, features)
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    return rows


def test_hub_rows_take_their_label_names_from_the_schema():
    split = read_dataset(dataset(["B-LOC", "B-PER", "O"]), PLAIN, "made")
    assert split.words == [["Ana", "won"], ["Leeds"]]
    assert split.tags == [["B-PER", "O"], ["B-LOC"]]
    assert list(split.lines) == [1, 3]
    assert split.skipped["empty sentences"] == 1
    assert split.documents is None
    assert split.place(2) == "made:3, word 1 of the sentence ('Leeds')"


@pytest.mark.parametrize(
    ("schema", "labels", "tags", "message"),
    [
        (None, None, [0], r"made:1: .*data\.labels"),
        (["B-LOC", "B-PER", "O"], ["O", "B-LOC"], [0], r"made: .*\[B-LOC,B-PER,O\].*data\.labels=\[O,B-LOC\]"),
        (["O", "B-PER", "I-PER"], None, [-1], r"made:4: .*-1\b"),  # not the last one
    ],
)
def test_numbers_without_their_names_are_refused(
    schema: list[str] | None, labels: list[str] | None, tags: list[int], message: str
):
    rows = dataset(schema).add_item({"tokens": ["x"], "ner_tags": tags})
    with pytest.raises(UserError, match=message):
        read_dataset(rows, replace(PLAIN, labels=labels), "made")


def test_numbers_are_named_by_a_setting():
    named = replace(PLAIN, labels=["B-LOC", "B-PER", "O"])
    assert read_dataset(dataset(None), named, "made").tags == [["B-PER", "O"], ["B-LOC"]]


def test_documents_come_from_a_column_or_from_rows_that_mark_them():
    rows = dataset(["B-LOC", "B-PER", "O"], document_id=["a", "a", "b"])
    with_ids = replace(PLAIN, document_field="document_id")
    assert read_dataset(rows, with_ids, "made").documents == [1, 2]
    with pytest.raises(UserError, match=r"made .*'nope' .data\.document_field.*tokens, ner_tags, document_id"):
        read_dataset(rows, replace(PLAIN, document_field="nope"), "made")
    scattered = dataset(["B-LOC", "B-PER", "O"], document_id=["a", "b", "a"])
    with pytest.raises(UserError, match="made:3: .*'a'"):
        read_dataset(scattered, with_ids, "made")
    marked = dataset(["B-LOC", "B-PER", "O"]).add_item({"tokens": ["-DOCSTART- "], "ner_tags": [2]})
    marked = marked.add_item({"tokens": ["x"], "ner_tags": [2]})
    split = read_dataset(marked, PLAIN, "made")
    assert split.documents == [1, 1, 2]
    assert split.words[-1] == ["x"]


def test_parquet_keeps_names_and_a_missing_file_is_named_at_once(tmp_path: Path):
    file = tmp_path / "train.parquet"
    dataset(["O", "B-PER", "I-PER"]).to_parquet(str(file))
    assert read_file(file, PLAIN, "").tags == [["B-PER", "I-PER"], ["O"]]
    with pytest.raises(UserError, match=r"nope\.parquet\b"):
        read_file(tmp_path / "nope.parquet", PLAIN, "Type this.")
    with pytest.raises(UserError, match="Parquet"):
        read_file(write_file(tmp_path, b"PAR1 no", "no.parquet"), PLAIN, "")
    words = pyarrow.array([[b"\xc3"]], pyarrow.list_(pyarrow.binary())).cast(
        pyarrow.list_(pyarrow.string()), safe=False
    )
    pyarrow.parquet.write_table(pyarrow.table({"tokens": words, "ner_tags": [["O"]]}), tmp_path / "half.parquet")
    with pytest.raises(UserError, match=r"half\.parquet\b"):
        read_file(tmp_path / "half.parquet", PLAIN)
    with pytest.raises(UserError, match=r"'words' .data\.words_field.*tokens, ner_tags"):
        read_file(file, replace(PLAIN, words_field="words"), "")


@pytest.mark.parametrize("num_shards", [1, 2])
def test_what_datasets_saved_to_disk_is_read_as_a_folder_or_as_its_file(tmp_path: Path, num_shards: int):
    rows = dataset(["O", "B-PER", "I-PER"])
    rows.with_format("numpy").save_to_disk(str(tmp_path / "train"), num_shards=num_shards)
    assert read_file(tmp_path / "train", PLAIN).tags == [["B-PER", "I-PER"], ["O"]]
    assert read_file(tmp_path / "train", replace(PLAIN, most_lines=1)).words == [["Ana", "won"]]
    file = tmp_path / "train" / f"data-00000-of-0000{num_shards}.arrow"
    assert read_file(file, PLAIN).words[0] == ["Ana", "won"]
    file.write_bytes(file.read_bytes()[:50])
    for damaged in (file, tmp_path / "train"):
        with pytest.raises(UserError, match=str(damaged)):
            read_file(damaged, PLAIN)


@pytest.mark.parametrize("name", ["train.jsonl", "train.json.gz"])
def test_json_lines_hold_names_or_numbers(tmp_path: Path, name: str):
    rows = [{"tokens": ["Ana", "\u00a0"], "ner_tags": ["B-PER", "O"], "id": 1}, {"tokens": ["x"], "ner_tags": [1]}]
    content = "\n\n".join(map(json.dumps, rows)).encode()
    file = write_file(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
    split = read_file(file, replace(PLAIN, labels=["B-LOC", "O"]), "")
    assert split.words == [["Ana", "\u00a0"], ["x"]]
    assert split.tags == [["B-PER", "O"], ["O"]]
    assert list(split.lines) == [1, 3]


def test_a_row_without_its_document_is_refused_wherever_it_stands(tmp_path: Path):
    file = write_file(tmp_path, '{"tokens": ["a"], "ner_tags": ["O"], "doc": null}\n', "train.jsonl")
    with pytest.raises(UserError, match=r"train\.jsonl:1: None.*'doc'"):
        read_file(file, replace(PLAIN, document_field="doc"), "")


def test_these_tests_stay_off_the_network_unless_they_are_told_otherwise():
    asked = os.environ["HF_HUB_OFFLINE"]
    assert asked in ("0", "1")
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    assert offline == (asked == "1"), "it was imported before it was told"


@pytest.mark.slow
def test_without_the_hub_an_error_says_what_to_type(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes every call and answers none
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "no_proxy": "127.0.0.1"}
        done = interpreted("data=wnut17", cwd=tmp_path, **settings)
        silent.setblocking(False)
        calls = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                calls += 1
    assert done.returncode == 2, done.stderr
    names(
        done.stderr, "data.hub=leondz/wnut_17", "refs/convert/parquet", "data.path=DIR", "data=demo encoder=minilm_l6"
    )
    assert calls == 1, "the libraries' own long retries are never begun"
