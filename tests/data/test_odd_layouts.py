"""Layouts as they come: what cannot be meant otherwise is read and counted, the rest refused with what to type."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from support.facts import names
from support.inputs import data_config, write_file, write_splits

from probe.config import UserError
from probe.data.corpus import load_corpus
from probe.data.guesses import columns_of
from probe.data.layout import Layout
from probe.data.readers import read_file
from probe.data.split import MAX_SENTENCE, lines_of

PLAIN = Layout()


def settings_in(*texts: object) -> list[str]:
    """The settings of the data that texts name with a value, in their order."""
    return [name for text in texts for name in re.findall(r"\bdata\.\w+(?==)", str(text))]


SPACES = ["\u00a0", "\u2009", "\u3000", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"]
NAMED = "Sentence: 1,Hi,O\nSentence: 2,Ana,O\n{},won,O\nSentence: 3,x,O\n"
NAMED_WORDS = [["Hi"], ["Ana", "won"], ["x"]]
TRAILING, AROUND_TAGS = "blanks at line ends", "blanks around tags"


@pytest.mark.parametrize(
    ("content", "changes", "words", "skipped"),
    [
        ("Ana\tO\n\n\ufeffBo\tO\n", {}, [["Ana"], ["Bo"]], {}),  # files that were joined
        (b"\xef\xbb\xbfAna\tO\r\nwon\tO\r\n\r\nLeeds\tO", {}, [["Ana", "won"], ["Leeds"]], {}),
        (b"\xef\xbb\xbfAna\tO\r\n\r\nBo\tO\t\r\n", {}, [["Ana"], ["Bo"]], {TRAILING: 1}),
        ('1\tAna\tO\tO\n2\t"\tO\tO\t\n', {"word_column": 1, "tag_column": 2}, [["Ana", '"']], {TRAILING: 1}),
        ("Ana\tO\t\nwon\tO\t\n", {}, [["Ana", "won"]], {TRAILING: 2}),  # behind every line
        ("Ana\tO\t\nwon\tO\n", {}, [["Ana", "won"]], {TRAILING: 1}),  # behind the first
        ("Ana\tO\t\nwon\tO\n", {"separator": "whitespace"}, [["Ana", "won"]], {}),
        ("Ana\tO\t\nwon\tO\t\n", {"tag_column": 1}, [["Ana", "won"]], {}),  # a third column that nobody asked for
        ("Ana O\t\nwon O\n", {}, [["Ana", "won"]], {}),  # blanks separate, a tab as well
        ("Ana\tO\u00a0\nwon\tO\u3000\n", {}, [["Ana", "won"]], {AROUND_TAGS: 2}),
        ("Ana O \nBo O\n", {"separator": "space"}, [["Ana", "Bo"]], {TRAILING: 1}),
        ("1  Ana O\n2 x won O\n", {"word_column": 2, "separator": "space"}, [["Ana", "won"]], {}),
        ("Ana\tO\n\t\t\nBo\tO\n \t\n", {}, [["Ana"], ["Bo"]], {}),  # tabs alone between sentences
        ("Ana O\n\n# the end\n#", {"comment": "#"}, [["Ana"]], {"comments": 2}),
        ("0-3\tAna\tO\n3-4\tBo\tO\n", {"word_column": 1}, [["Ana", "Bo"]], {}),  # offsets, not several words
        ("New York\tO\n", {}, [["New York"]], {}),  # tabs separate
        ("-DOCSTART- O\n\nAna O\n", {"document_marker": None}, [["-DOCSTART-"], ["Ana"]], {}),
        ("en:Ana\tO\nen:en:\tO\n\nen:x\tO\n", {"word_prefix": "en:"}, [["Ana", "en:"], ["x"]], {}),
        (NAMED.format(""), {"word_column": 1, "separator": "comma"}, NAMED_WORDS, {}),
        (NAMED.format("Sentence: 2"), {"word_column": 1, "separator": "comma"}, NAMED_WORDS, {}),
        *((f"10{space}0\tO\n{space}\tO\n", {}, [[f"10{space}0", space]], {}) for space in SPACES),
        *((f"10{space}0 O\n{space} O\n", {}, [[f"10{space}0", space]], {}) for space in SPACES),
        *((f"Ana\tO\n{word}\tO\n", {}, [["Ana", word]], {}) for word in ("\u200b", "\u0d28\u0d4d\u200d")),
        ("\U0001f3f4\U000e0067\U000e007f\tO\n", {}, [["\U0001f3f4\U000e0067\U000e007f"]], {}),  # a flag
    ],
)
def test_what_cannot_be_meant_otherwise_is_read_and_counted(
    tmp_path: Path, content: str | bytes, changes: dict, words: list, skipped: dict[str, int]
):
    file = write_file(tmp_path, content)
    split = read_file(file, replace(PLAIN, **changes))
    assert split.words == words
    assert {tag for tags in split.tags for tag in tags} == {"O"}
    assert split.documents is None
    assert +split.skipped == skipped
    lines = list(lines_of(file))
    for i, sentence in enumerate(words):
        assert all(word in lines[line - 1] for line, word in zip(split.word_lines[i], sentence, strict=True))
    cells = columns_of(split)[changes.get("word_column", 0)]
    prefix = changes.get("word_prefix", "")
    assert [cell.removeprefix(prefix) for cell in cells] == [word for sentence in words for word in sentence]


@pytest.mark.parametrize(
    ("content", "changes", "line", "facts"),
    [
        ("Ana\tNNP\t\nwon\tVB\tO\n", {}, 2, ["3 columns", r"'won\tVB\tO'", 2]),
        ("Ana\tNNP\tO\nwon\tVB\t\n", {}, 2, ["tag ''"]),
        ("Ana\tO\t\nwon\tO\n", {"tag_column": 1}, 2, ["2 columns", r"'won\tO'", 3]),
        ("Ana\tO\tx\nBo\tO\n", {}, 2, ["2 columns", r"'Bo\tO'", 3]),
        ("Ana B-PER\nNew York\tB-LOC\n", {}, 2, ["3 columns", r"'New York\tB-LOC'", 2]),
        ("Ana B C O\nBo B  O\n", {}, 2, ["3 columns", "'Bo B  O'", 4]),
        ("1  Ana B-PER\n2 x won O\n", {}, 2, ["4 columns", "'2 x won O'", 3]),
        ("Ana B-PER\nwon\n", {}, 2, ["one column", "'won'", 2]),
        ("Ana O\n\n% the end\n", {}, 3, ["3 columns", "'% the end'", 2]),
        ("Ana O\n\u00a0\nBo O\n", {}, 2, ["one column", r"'\xa0'", 2]),
        ("Ana,O\nBo,O\n", {}, 1, ["one column", "'Ana,O'", "two columns"]),
        ("Ana\u00a0O\nBo\u00a0O\n", {}, 1, ["one column", r"'Ana\xa0O'", "two columns"]),
        ("a b c\n", {"tag_column": 3}, 1, ["3 columns", "'a b c'", "data.tag_column", "0 to 2"]),
        ("a b c\n", {"tag_column": -4}, 1, ["3 columns", "'a b c'", "data.tag_column", "0 to 2"]),
        ("a b c\n", {"word_column": 5}, 1, ["3 columns", "'a b c'", "data.word_column", "0 to 2"]),
        ("a b c\n", {"tag_column": -3}, 1, ["3 columns", "'a b c'", "two columns"]),
        ("a\tb\tB-PER\n\tb\tO\n", {}, 2, ["word 2 ('')"]),
        ("1-2 don't _\n1 do O\n", {}, 1, ["tag '_'"]),
        ("1\tAna\tPROPN\t_\n2\twon\tVERB\t_\n", {"word_column": 1}, 1, ["tag '_'"]),
        ("a\tb\nx\tB PER\n", {}, 2, ["tag 'B PER'", "' '"]),
        ("Ana\tB\u00a0PER\n", {}, 1, [r"tag 'B\xa0PER'", r"'\xa0'"]),
        ("x O\nAna B-\u200bPER\n", {}, 2, [r"tag 'B-\u200bPER'", r"'\u200b'"]),
        ("x O\nAna B-\x07PER\n", {}, 2, [r"tag 'B-\x07PER'", r"'\x07'"]),
        ("Ana O\rBo O\r", {}, 1, ["carriage return", r"'Ana O\rBo O'"]),
        ("Ана O\n".encode("utf-16-le"), {}, 2, ["one column", r"'\x00'", 2]),
        ("Łódź B-LOC\n".encode("utf-16-le"), {}, 1, ["0xf3", "UTF-8"]),
        (b"Ana B-PER\nM\xfcller B-PER\n", {}, 2, ["0xfc", "UTF-8"]),
        (gzip.compress(b"Ana O\n", mtime=0), {}, 1, ["0x8b", "gzip", ".gz"]),
        ("Ana\tO\n#ff\tO\n", {"comment": "#"}, 2, [r"'#ff\tO'", "data.comment"]),
        ("en:Ana O\nBo O\n", {"word_prefix": "en:"}, 2, ["'Bo'", "'en:' (data.word_prefix)", "data.word_prefix=null"]),
        ("a O\n" * (MAX_SENTENCE + 1), {}, 1, [MAX_SENTENCE + 1]),
    ],
)
def test_every_refusal_shows_what_is_invisible_and_names_its_line(
    tmp_path: Path, content: str | bytes, changes: dict, line: int, facts: list[object]
):
    with pytest.raises(UserError) as caught:
        read_file(write_file(tmp_path, content), replace(PLAIN, **changes))
    text = str(caught.value)
    place = f"{tmp_path}/some.conll:{line}: "
    assert text.startswith(place)
    names(text.removeprefix(place), *facts)
    assert all(mistake.startswith(f"{tmp_path}/some.conll:") for mistake in text.split("\n"))
    assert settings_in(text) == settings_in(*facts), "no other settings"


@pytest.mark.parametrize("content", ["\n\n", "-DOCSTART- O\n\n", ""])
def test_a_file_without_a_word_is_refused(tmp_path: Path, content: str):
    with pytest.raises(UserError, match=r"some\.conll\b"):
        read_file(write_file(tmp_path, content), PLAIN)


def test_json_lines_may_have_byte_order_marks_or_be_one_array(tmp_path: Path):
    row = '\ufeff{"tokens": ["Ana"], "ner_tags": ["O"]}\n'
    split = read_file(write_file(tmp_path, row + row + "\ufeff", "train.jsonl"), PLAIN, "")
    assert split.words == [["Ana"], ["Ana"]]
    rows = [{"tokens": ["Ana", word], "ner_tags": ["B-PER", "O"]} for word in ("won", "], [{", "x")]
    for indent, lines in ((None, [1, 1, 1]), (1, [2, 12, 22])):
        text = json.dumps(rows, indent=indent)
        for end in ("\n", "\r\n"):
            file = write_file(tmp_path, "\ufeff" + text.replace("\n", end) + end, "train.json")
            split = read_file(file, PLAIN)
            assert split.words == [row["tokens"] for row in rows]
            assert list(split.lines) == lines
            assert read_file(file, replace(PLAIN, most_lines=2)).words == [row["tokens"] for row in rows[:2]]


GOOD = '{"tokens": ["a"], "ner_tags": ["O"]}'


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (f"{GOOD}\n[1]", 2, r"\blist\b"),
        (f"{GOOD}\n{{", 2, r"\bJSON\b"),
        (f"{GOOD}\n{'[' * 100_000}", 2, r"\bJSON\b"),
        (GOOD + '\n{"tokens": ["x"]}', 2, "'ner_tags'.*tokens"),
        (GOOD + '\n{"tokens": ["x", "y"], "ner_tags": ["O"]}', 2, r"\b2 word.*\b1 label"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": null}', 2, "None"),
        (GOOD + '\n{"tokens": "x", "ner_tags": ["O"]}', 2, "'tokens'"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": [true]}', 2, r"\bTrue\b"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": [["O"]]}', 2, r"\['O'\]"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": [0.0]}', 2, r"\b0\.0\b"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": [""]}', 2, "''"),
        (GOOD + '\n{"tokens": ["a\\nb"], "ner_tags": ["O"]}', 2, r"word 1\b"),
        (GOOD + '\n{"tokens": ["a", ""], "ner_tags": ["O", "O"]}', 2, r"word 2\b"),
        (GOOD + '\n{"tokens": ["\\ud800"], "ner_tags": ["O"]}', 2, "half a character"),
        (GOOD + '\n{"tokens": ["x"], "ner_tags": ["B-\\ud800"]}', 2, r"'B-\\ud800'"),
        (GOOD + '\n{"tokens": ["-DOCSTART-", "x"], "ner_tags": ["O", "O"]}', 2, r"-DOCSTART-.*\b2 words"),
        ("[\n {}\n]", 2, ""),
        ('[{"tokens": []}]', 1, ""),
        (f'[\n{GOOD},\n{{"tokens": ["b"]\n', 3, ""),
        (f"[\n{GOOD}\n{GOOD}]", 2, ""),
        (f"[{GOOD}]\n[{GOOD}]", 1, ""),
        (f"[{GOOD}, 7]", 1, ""),
        ("[7]", 1, ""),
        ("[]", 1, ""),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, content: str, line: int, message: str):
    with pytest.raises(UserError, match=rf"train\.json:{line}:? .*{message}"):
        read_file(write_file(tmp_path, content, "train.json"), PLAIN)


@pytest.mark.parametrize(
    ("rows", "tags"),
    [
        ([[], [[0, 1, "PER"], [2, 2, "LOC"]]], [["O", "O", "O"], ["B-PER", "I-PER", "B-LOC"]]),
        ([[[1, 1, "X"]], [[2, 2, "X"], [0, 0, "Y"]]], [["O", "B-X", "O"], ["B-Y", "O", "B-X"]]),
        ([[[0, 1, "X"]], [[1, 1, "Y"], [0, 1, "X"]]], "some.jsonl:2"),  # overlap
        ([[[0, 0, "X"]], [[2, 3, "X"]]], "some.jsonl:2"),
        ([[[0, 0, "X"]], [[1, 0, "X"]]], "some.jsonl:2"),
        ([[[0, 0, "X"]], ["O", "O", "O"]], "some.jsonl:2"),
        ([[[0, 1, "X"]], [[0, 2, "X"]]], "word offsets"),  # the last may be outside
    ],
)
def test_word_offsets_are_read_if_they_can_mean_one_thing(tmp_path: Path, rows: list, tags: list[list[str]] | str):
    text = "".join(json.dumps({"words": ["Ana", "Lee", "Bonn"], "spans": spans}) + "\n" for spans in rows)
    file, layout = write_file(tmp_path, text, "some.jsonl"), replace(PLAIN, words_field="words", tags_field="spans")
    if isinstance(tags, str):
        with pytest.raises(UserError, match=rf"{tags}\b"):
            read_file(file, layout)
    else:
        assert read_file(file, layout).tags == tags


@pytest.mark.parametrize("misc", ["name=B-PER", "SpaceAfter=No|name=B-PER", "name=B-PER|surname=x"])
@pytest.mark.parametrize("ending", ["conllu", "txt"])
def test_a_tag_may_be_one_of_several_features(tmp_path: Path, misc: str, ending: str):
    lines = [("Ana", misc), ("won", "name=O"), ("it", "SpaceAfter=No|name=O")]
    text = "".join(f"{i}\t{word}\t_\tX\t_\t_\t0\tx\t_\t{cell}\n" for i, (word, cell) in enumerate(lines, 1))
    file, layout = write_file(tmp_path, text, f"some.{ending}"), replace(PLAIN, word_column=1, tag_feature="name")
    for task in ("spans", "tags"):
        assert read_file(file, replace(layout, task=task)).tags == [["B-PER", "O", "O"]]
    with pytest.raises(UserError, match=rf"some\.{ending}:3\b"):
        read_file(write_file(tmp_path, text.replace("No|name=O", "No|other=O"), f"some.{ending}"), layout)


@pytest.mark.parametrize("feature", [datasets.Image(), datasets.Audio(), datasets.Pdf(), datasets.Video()])
@pytest.mark.parametrize("column", ["pic", "tokens"])
def test_no_column_is_decoded_and_no_file_that_it_names_is_opened(tmp_path: Path, feature: object, column: str):
    (tmp_path / "a.png").write_text("no picture")
    types = {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(datasets.Value("string"))}
    described = datasets.Features(types | {column: feature})
    stored = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    cells = pyarrow.array([{"bytes": None, "path": str(tmp_path / "a.png")}], type=stored)
    rows = pyarrow.table({"tokens": [["Ana", "won"]], "ner_tags": [["B-PER", "O"]]} | {column: cells})
    about = {"huggingface": json.dumps({"info": {"features": described.to_dict()}})}
    file = tmp_path / "train.parquet"
    pyarrow.parquet.write_table(rows.replace_schema_metadata(about), file)
    if column == "pic":
        assert read_file(file, PLAIN).words == [["Ana", "won"]]
    else:
        with pytest.raises(UserError, match=r"train\.parquet:1\b"):
            read_file(file, PLAIN)


def test_invisible_characters_inside_a_word_take_time_that_grows_with_their_number(tmp_path: Path):
    word = "a" + "\u200b" * 1_000_000 + "b"
    file = write_file(tmp_path, json.dumps({"tokens": [word, word], "ner_tags": ["B-PER", "O"]}), "some.jsonl")
    assert read_file(file, PLAIN).words == [[word, word]]


def test_a_line_without_end_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("probe.data.split.MOST_BYTES", 1 << 20)
    for name, compress in (("a.jsonl.gz", gzip.compress), ("a.txt", bytes)):
        file = write_file(tmp_path, compress(b"x O\n" + b"x" * (1 << 21)), name)
        with pytest.raises(UserError, match=rf"{re.escape(name)}:2: .*\b1 MiB"):
            list(lines_of(file))


def test_stray_marks_and_blanks_are_counted_and_reported(tmp_path: Path):
    dev = "\ufeffa\tO\nAna\tB-PER\t\n\n\ufeff"
    texts: dict[str, str | bytes] = {
        "train": "Bo\tB-PER \nx \tO\n",
        "dev": dev,
        "test": b"\xef\xbb\xbfLi\tB-PER\r\n\r\n\xef\xbb\xbfx\tO\r\n",
    }
    corpus = load_corpus(data_config(write_splits(tmp_path, **texts)))
    assert [split.words for split in corpus.splits.values()] == [[["Bo", "x"]], [["a", "Ana"]], [["Li"], ["x"]]]
    assert corpus.about["skipped"] == {
        "blanks around tags": {"train": 1, "dev": 0, "test": 0},
        "blanks around words": {"train": 1, "dev": 0, "test": 0},
        "blanks at line ends": {"train": 0, "dev": 1, "test": 0},
    }
    assert len(corpus.notes) == 3
    names(corpus.notes[2], "0 in train, 1 in dev, 0 in test")


def test_several_comments_a_marker_and_ranges_of_conllu_in_a_file_of_another_ending(tmp_path: Path):
    text = "TOKEN\tTAG\n### PMID:10\n# de\n1\tdo\tO\n\n### PMID:11\n1\tAna\tO\n2-3\tdon't\tO\n2\tdo\tO\n3\tn't\tO\n"
    layout = replace(PLAIN, word_column=1, comment=["TOKEN", "# "], document_marker="### PMID")
    split = read_file(write_file(tmp_path, text), layout)
    assert split.words == [["do"], ["Ana", "do", "n't"]]
    assert split.documents == [1, 2]
    assert +split.skipped == {"comments": 2, "lines of CoNLL-U": 1}
    assert list(split.word_lines[1]) == [7, 9, 10]
    assert list(columns_of(split)[1]) == ["do", "Ana", "do", "n't"]


HIDDEN = ["\ufeff", "\u200b", "\u200d", " \u200b ", "\u2060\u00a0"]


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("ending", ["conll", "jsonl"])
def test_invisible_characters_around_a_tag_are_dropped_and_counted(tmp_path: Path, hidden: str, ending: str):
    tags = ["B-PER", f"B-PER{hidden}", f"{hidden}B-PER", "O"]
    text = "".join(f"Ana\t{tag}\n" for tag in tags)
    if ending == "jsonl":
        text = json.dumps({"tokens": ["Ana"] * 4, "ner_tags": tags}) + "\n"
    write_splits(tmp_path)
    file = write_file(tmp_path, text, f"train.{ending}")
    assert read_file(file, PLAIN, "").tags == [["B-PER", "B-PER", "B-PER", "O"]]
    corpus = load_corpus(data_config(tmp_path, train=file.name))
    assert corpus.about["skipped"] == {"blanks around tags": {"train": 2, "dev": 0, "test": 0}}
    (note,) = [note for note in corpus.notes if "tags" in note]
    names(note, "2 in train, 0 in dev, 0 in test")


@pytest.mark.parametrize("beside", [" ", "\u00a0", "\u3000", "\u200b", "\u200e", "\u00ad", "\ufeff ", " \u2060\u2009"])
@pytest.mark.parametrize("ending", ["conll", "conllu", "jsonl", "parquet", "csv"])
def test_what_stands_beside_a_word_makes_no_other_word_and_is_counted(tmp_path: Path, beside: str, ending: str):
    words = ["Ana", f"Ana{beside}", f"{beside}Ana", f"{beside}New{beside}York{beside}"]
    file = write_file(tmp_path, "".join(f"{i}\t{word}\t_\tO\n" for i, word in enumerate(words, 1)), f"train.{ending}")
    layout = replace(PLAIN, word_column=1, separator="comma" if ending == "csv" else "auto")
    if ending == "csv":
        file.write_text(file.read_text().replace("\t", ","))
    if ending in ("jsonl", "parquet"):
        row = {"tokens": words, "ner_tags": ["O"] * 4}
        file.write_text(json.dumps(row) + "\n")
        if ending == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    split = read_file(file, layout, "")
    assert split.words == [["Ana", "Ana", "Ana", f"New{beside}York"]]
    assert +split.skipped == {"blanks around words": 3}


def test_label_names_are_read_without_invisible_characters(tmp_path: Path):
    write_splits(tmp_path)
    write_file(tmp_path, '{"tokens": ["Ana", "x"], "ner_tags": [1, 0]}\n', "train.jsonl")
    corpus = load_corpus(data_config(tmp_path, train="train.jsonl", labels=["O", "B-PER\u200b"]))
    assert corpus.splits["train"].tags == [["B-PER", "O"]]


def test_a_joiner_inside_a_tag_stays_and_is_shown_escaped(tmp_path: Path):
    texts = {"train": "Ana B-PER\nx O\n", "dev": "y B-PER\nAna B-\u0645\u06cc\u200c\u0631\n"}
    corpus = load_corpus(data_config(write_splits(tmp_path, **texts)))
    assert corpus.splits["dev"].tags == [["B-PER", "B-\u0645\u06cc\u200c\u0631"]]
    names(corpus.notes[0], "dev", "\u0645\u06cc\\u200c\u0631 (1)")


def test_of_many_tags_that_only_test_has_twenty_are_named(tmp_path: Path):
    test = "y NN\n" + "".join(f"x T{number:02}\n" for number in range(25))
    texts = {"train": "a NN\nb VB\n", "dev": "c NN\n", "test": test}
    corpus = load_corpus(data_config(write_splits(tmp_path, **texts), task="tags"))
    assert re.search(r"T18 \(1\), T19 \(1\)\D*\b5 more", corpus.notes[0])
    assert len(corpus.about["not_in_train"]["test"]) == 25
