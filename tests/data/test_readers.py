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

from probe.config import UserError
from probe.data.json_parquet import read_dataset
from probe.data.layout import Layout
from probe.data.readers import read_file
from probe.data.split import MAX_SENTENCE

PLAIN = Layout()


def written(tmp_path: Path, content: str | bytes, name: str = "some.conll") -> Path:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_words_tags_documents_and_lines_are_read(tmp_path: Path):
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nBonn NNP I-NP I-LOC\nParis NNP I-NP B-LOC\nsaid VBD I-VP O\n\n"
    file = written(tmp_path, text + "-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\nHill NNP I-NP I-PER")
    split = read_file(file, PLAIN)
    assert split.words == [["EU", "Bonn", "Paris", "said"], ["Peter", "Hill"]]
    assert split.tags == [["I-ORG", "I-LOC", "B-LOC", "O"], ["I-PER", "I-PER"]]
    assert split.documents == [1, 2]
    assert list(split.lines) == [3, 10]
    assert split.place(2) == f"{file}:5 ('Paris')"
    assert split.place(5) == f"{file}:11 ('Hill')"


def test_crlf_bom_tabs_and_a_missing_last_empty_line_are_fine(tmp_path: Path):
    split = read_file(written(tmp_path, b"\xef\xbb\xbfAna\tB-PER\r\nwon\tO\r\n\r\nLeeds\tB-LOC"), PLAIN)
    assert split.words == [["Ana", "won"], ["Leeds"]]
    assert split.documents is None


def test_a_gzipped_file_is_read_as_it_is(tmp_path: Path):
    file = written(tmp_path, gzip.compress(b"Ana B-PER\nwon O\n"), "train.txt.gz")
    assert read_file(file, PLAIN, "").words == [["Ana", "won"]]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"train\.txt\.gz\b.*gzip"):
        read_file(file, PLAIN, "")


def test_a_blank_inside_a_word_stays_where_tabs_separate(tmp_path: Path):
    assert read_file(written(tmp_path, "New York\tB-LOC\n"), PLAIN).words == [["New York"]]


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u3000", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_unicode_white_space_stays_inside_its_word(tmp_path: Path, space: str, separator: str):
    split = read_file(written(tmp_path, f"10{space}000{separator}O\n{space}{separator}O\n"), PLAIN)
    assert split.words == [[f"10{space}000", space]]


def test_one_blank_as_separator_keeps_empty_columns_in_their_place(tmp_path: Path):
    file = written(tmp_path, "1  Ana B-PER\n2 x won O\n")
    assert read_file(file, replace(PLAIN, word_column=2, separator="space")).words == [["Ana", "won"]]
    with pytest.raises(UserError, match=r"some\.conll:2: 4 .*\b3\b"):
        read_file(file, PLAIN)


def test_a_corpus_with_tabs_word_prefixes_and_no_documents(tmp_path: Path):
    file = written(tmp_path, "en:Ana\tB-PER\nen:en:\tO\n\nen:Leeds\tB-LOC\n")
    split = read_file(file, replace(PLAIN, word_prefix="en:"))
    assert split.words == [["Ana", "en:"], ["Leeds"]]
    with pytest.raises(UserError, match=r"some\.conll:1: .*'en:Ana'.*'de:' .data\.word_prefix"):
        read_file(file, replace(PLAIN, word_prefix="de:"))


def test_a_corpus_with_index_first_comments_documents_and_nested_tags(tmp_path: Path):
    text = (
        "# newdoc id = a\n# text = Ana won\n1\tAna\tB-PER\tO\n# aside\n2\tUnited\tB-ORG\tB-LOC\n\n"
        "#\tx\n1\t#\tO\tO\n2\tLeeds\tB-LOC\tO\n\n# newdoc id = b\n\n1\twon\tO\tO\n"
    )
    layout = Layout(word_column=1, tag_column=2, comment="#", document_marker="# newdoc")
    split = read_file(written(tmp_path, text), layout)
    assert split.words == [["Ana", "United"], ["#", "Leeds"], ["won"]]
    assert split.tags == [["B-PER", "B-ORG"], ["O", "B-LOC"], ["O"]]
    assert split.documents == [1, 1, 2]
    assert split.skipped_lines == [2, 4, 7]
    assert split.place_in(0, 1).endswith(":5 ('United')"), "a comment inside a sentence is a line too"
    assert split.place_in(1, 1).endswith(":9 ('Leeds')")
    nested = read_file(written(tmp_path, text), replace(layout, tag_column=-1))
    assert nested.tags[0] == ["O", "B-LOC"]


def test_a_document_mark_may_stand_in_the_words_column(tmp_path: Path):
    split = read_file(written(tmp_path, "1 Ana O\n\n0 -DOCSTART- O\n\n1 won O\n"), replace(PLAIN, word_column=1))
    assert split.words == [["Ana"], ["won"]]
    assert split.documents == [1, 2]


def test_without_a_document_marker_the_mark_is_a_word(tmp_path: Path):
    file = written(tmp_path, "-DOCSTART- O\n\nAna B-PER\n")
    assert read_file(file, replace(PLAIN, document_marker=None)).words == [["-DOCSTART-"], ["Ana"]]


def test_a_word_that_begins_like_a_comment_is_not_lost(tmp_path: Path):
    with pytest.raises(UserError, match=r"some\.conll:2: '#ff\\tO' .*data\.comment\b"):
        read_file(written(tmp_path, "Ana\tO\n#ff\tO\n"), replace(PLAIN, comment="#"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Ana B-PER\nwon\n", r"some\.conll:2: .*\('won'\).*\b2\b"),
        ("Ana\n", r"some\.conll:1: .*\('Ana'\)"),
        (b"Ana B-PER\nM\xfcller B-PER\n", r"some\.conll:2: .*0xfc .*UTF-8"),
        ("a b c B-PER\nwon O\n", r"some\.conll:2: 2 .*\b4\b"),
        ("a\tb\tB-PER\n\tb\tO\n", r"some\.conll:2: .*\bword\b"),
        ("a\tb\tB-PER\nx\tb\t\n", r"some\.conll:2: .*''"),
        ("a\tb\nx\tB PER\n", r"some\.conll:2: .*'B PER'"),
        ("1-2 don't _\n1 do O\n", r"some\.conll:1: .*'_'"),
        ("Ana B-PER\rwon O\r", r"some\.conll:1: .*carriage return"),
        ("a O\n" * (MAX_SENTENCE + 1), r"some\.conll:1: .*\b10001\b"),
        ("\n\n", r"some\.conll\b"),
        ("-DOCSTART- O\n\n", r"some\.conll\b"),
        ("", r"some\.conll\b"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(tmp_path: Path, content: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        read_file(written(tmp_path, content), PLAIN)


def test_an_endless_sentence_is_refused_before_it_is_read(tmp_path: Path):
    def work(num_words: int) -> int:
        file = written(tmp_path, "a O\n" * num_words)

        def refused() -> None:
            with pytest.raises(UserError, match=r"some\.conll:1: .*\b10001\b"):
                read_file(file, PLAIN)

        return num_calls(refused)

    assert work(100 * MAX_SENTENCE) < 2 * work(MAX_SENTENCE + 1)


@pytest.mark.parametrize(("word", "tag"), [(5, -1), (0, 3), (0, -4), (0, -3)])
def test_columns_that_are_not_there_or_the_same_are_refused(tmp_path: Path, word: int, tag: int):
    with pytest.raises(UserError, match=r"some\.conll:1: 3 .*(data\.(word|tag)_column|\btwo\b)"):
        read_file(written(tmp_path, "a b c\n"), replace(PLAIN, word_column=word, tag_column=tag))


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


def test_bare_numbers_are_refused_until_they_are_named():
    with pytest.raises(UserError, match=r"made:1: .*data\.labels"):
        read_dataset(dataset(None), PLAIN, "made")
    named = replace(PLAIN, labels=["B-LOC", "B-PER", "O"])
    assert read_dataset(dataset(None), named, "made").tags == [["B-PER", "O"], ["B-LOC"]]


def test_labels_in_another_order_than_the_schemas_are_refused():
    with pytest.raises(UserError, match=r"made: .*\[B-LOC,B-PER,O\].*data\.labels=\[O,B-LOC,B-PER\]"):
        read_dataset(dataset(["B-LOC", "B-PER", "O"]), replace(PLAIN, labels=["O", "B-LOC", "B-PER"]), "made")


def test_ids_without_a_name_are_refused_not_read_from_the_end():
    made = dataset(["O", "B-PER", "I-PER"]).add_item({"tokens": ["x", "y"], "ner_tags": [0, -1]})
    with pytest.raises(UserError, match=r"made:4: .*-1\b"):
        read_dataset(made, PLAIN, "made")


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
        read_file(written(tmp_path, b"PAR1 no", "no.parquet"), PLAIN, "")
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
    file = written(tmp_path, gzip.compress(content) if name.endswith(".gz") else content, name)
    split = read_file(file, replace(PLAIN, labels=["B-LOC", "O"]), "")
    assert split.words == [["Ana", "\u00a0"], ["x"]]
    assert split.tags == [["B-PER", "O"], ["O"]]
    assert list(split.lines) == [1, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", r"\blist\b"),
        ("{", r"\bJSON\b"),
        ("[" * 100_000, r"\bJSON\b"),
        ('{"tokens": ["x"]}', "'ner_tags'.*tokens"),
        ('{"tokens": ["x", "y"], "ner_tags": ["O"]}', r"\b2 word.*\b1 label"),
        ('{"tokens": ["x"], "ner_tags": null}', "None"),
        ('{"tokens": "x", "ner_tags": ["O"]}', "'tokens'"),
        ('{"tokens": ["x"], "ner_tags": [true]}', r"\bTrue\b"),
        ('{"tokens": ["x"], "ner_tags": [["O"]]}', r"\['O'\]"),
        ('{"tokens": ["x"], "ner_tags": [0.0]}', r"\b0\.0\b"),
        ('{"tokens": ["x"], "ner_tags": [""]}', "''"),
        ('{"tokens": ["a\\nb"], "ner_tags": ["O"]}', r"word 1\b"),
        ('{"tokens": ["a", ""], "ner_tags": ["O", "O"]}', r"word 2\b"),
        ('{"tokens": ["\\ud800"], "ner_tags": ["O"]}', "half a character"),
        ('{"tokens": ["x"], "ner_tags": ["B-\\ud800"]}', r"'B-\\ud800'"),
        ('{"tokens": ["-DOCSTART-", "x"], "ner_tags": ["O", "O"]}', r"-DOCSTART-.*\b2 words"),
    ],
)
def test_json_lines_that_do_not_fit_are_refused_with_their_line(tmp_path: Path, line: str, message: str):
    file = written(tmp_path, '{"tokens": ["a"], "ner_tags": ["O"]}\n' + line, "train.jsonl")
    with pytest.raises(UserError, match=f"train.jsonl:2:? .*{message}"):
        read_file(file, PLAIN, "")


def test_a_row_without_its_document_is_refused_wherever_it_stands(tmp_path: Path):
    file = written(tmp_path, '{"tokens": ["a"], "ner_tags": ["O"], "doc": null}\n', "train.jsonl")
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
