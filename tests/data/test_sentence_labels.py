"""Corpora with one label per sentence, in every format that has them."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
from support.facts import names

from probe.config import DataConfig, UserError, preset_values
from probe.data.corpus import load_corpus
from probe.data.running_text import split_text

TEXTS = {"train": ["good\tIt works, well.", "bad\tIt fails"], "dev": ["bad\tNo"], "test": ["good\tYes , it is ."]}


def config(folder: Path, **changes: object) -> DataConfig:
    return DataConfig(**{**preset_values("data", "sentences"), "path": str(folder), **changes})


def write(folder: Path, texts: dict[str, list[str]] = TEXTS, ending: str = "tsv") -> dict[str, str]:
    files = {name: f"{name}.{ending}" for name in TEXTS}
    for name, file in files.items():
        (folder / file).write_text("".join(f"{line}\n" for line in {**TEXTS, **texts}[name]))
    return files


def test_a_line_is_a_label_and_a_text(tmp_path: Path):
    corpus = load_corpus(config(tmp_path, **write(tmp_path)))
    assert list(corpus.splits["train"].words) == [["It", "works", ",", "well", "."], ["It", "fails"]]
    assert list(corpus.splits["train"].tags) == [["good"], ["bad"]]
    assert corpus.counts()["train"].tags == 2
    assert corpus.counts()["train"].words == 7


def test_a_first_line_may_name_the_columns(tmp_path: Path):
    swapped = {name: ["\t".join(line.split("\t")[::-1]) for line in some] for name, some in TEXTS.items()}
    swapped = {name: ["sentence\tlabel", *some] for name, some in swapped.items()}
    files = write(tmp_path, swapped)
    named = load_corpus(config(tmp_path, words_field="sentence", **files))
    assert named.key == load_corpus(config(tmp_path, **write(tmp_path))).key


def test_csv_has_texts_with_commas_quotes_and_line_ends_and_groups(tmp_path: Path):
    rows = {
        "train": ['"It works, ""well"",\nhe said",good,a', "It fails,bad,b", "Yes,good,c"],
        "dev": ["No,bad,d"],
        "test": ["Yes!,good,e"],
    }
    files = write(tmp_path, {name: ["text,label,thread", *some] for name, some in rows.items()}, "csv")
    corpus = load_corpus(config(tmp_path, separator="comma", document_field="thread", **files))
    train = corpus.splits["train"]
    assert train.raw == ['It works, "well",\nhe said', "It fails", "Yes"]
    assert (train.tags, train.documents, train.lines[1]) == ([["good"], ["bad"], ["good"]], [1, 2, 3], 4)


@pytest.mark.parametrize(
    ("ending", "lines", "facts"),
    [
        ("csv", ["text,label", "Well, it works,good"], ["train.csv:2", "3 ", "2"]),
        ("csv", ["text,label", "It works"], ["train.csv:2", "1 ", "2"]),
        ("csv", ["good,Well, it works"], ["train.csv:1", "3 "]),
        ("csv", ["text,label,label", "It works,good,bad"], ["train.csv:1", "label"]),
        ("csv", ["text,label", '"It works,good'], ["train.csv:2", "CSV"]),
        ("tsv", ["text\tlabel", "It\tworks\tgood"], ["train.tsv:2", "3 ", "2"]),
    ],
)
def test_a_row_that_does_not_fit_its_columns_is_refused(
    ending: str, lines: list[str], facts: list[str], tmp_path: Path
):
    files = write(tmp_path, {"train": lines}, ending)
    with pytest.raises(UserError) as error:
        load_corpus(config(tmp_path, separator="comma" if ending == "csv" else "auto", **files))
    names(str(error.value), *facts)


def test_a_long_text_of_csv_is_read_whole(tmp_path: Path):
    text = " ".join(["word"] * 9_000 + ["x" * 100_000])
    files = write(tmp_path, {"train": ["text,label", f"{text},good", "No,bad"], "dev": ["text,label", "Oh,bad"],
                             "test": ["text,label", "Yes,good"]}, "csv")  # fmt: skip
    assert load_corpus(config(tmp_path, separator="comma", **files)).splits["train"].raw == [text, "No"]


@pytest.mark.parametrize("tokenised", [False, True])
def test_json_lines_and_parquet_give_the_same_corpus(tokenised: bool, tmp_path: Path):
    rows = {
        name: [
            {"text": split_text(text, "here") if tokenised else text, "label": label}
            for label, text in (line.split("\t") for line in some)
        ]
        for name, some in TEXTS.items()
    }
    expected = load_corpus(config(tmp_path, **write(tmp_path))).key
    files = write(tmp_path, {name: list(map(json.dumps, some)) for name, some in rows.items()}, "jsonl")
    assert load_corpus(config(tmp_path, **files)).key == expected
    labels = datasets.ClassLabel(names=["bad", "good"])
    for name, some in rows.items():
        datasets.Dataset.from_list(some).cast_column("label", labels).to_parquet(tmp_path / f"{name}.parquet")
    files = {name: f"{name}.parquet" for name in TEXTS}
    assert load_corpus(config(tmp_path, **files)).key == expected, "numbers have the schema's names"


@pytest.mark.parametrize(
    ("train", "facts"),
    [
        (["good\tyes", "bad"], ["train.tsv:2", "TAB"]),
        (["good\tyes", "good\tno"], ["train.tsv", "good", "sentence"]),
        (["\tyes"], ["train.tsv:1"]),
    ],
)
def test_what_is_wrong_with_a_file_is_named(train: list[str], facts: list[str], tmp_path: Path):
    with pytest.raises(UserError) as error:
        load_corpus(config(tmp_path, **write(tmp_path, {"train": train})))
    names(str(error.value), *facts)


def test_a_list_of_labels_is_refused_and_an_empty_text_counted(tmp_path: Path):
    write(tmp_path)
    rows = [{"text": "x y", "label": "a"}, {"text": "", "label": "a"}, {"text": "z", "label": "b"}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    texts = {"dev": ["a\tNo"], "test": ["b\tYes"]}
    corpus = load_corpus(config(tmp_path, **write(tmp_path, texts) | {"train": "train.jsonl"}))
    assert corpus.about["skipped"] == {"empty sentences": {"train": 1, "dev": 0, "test": 0}}
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "x y", "label": ["a", "b"]}))
    with pytest.raises(UserError) as error:
        load_corpus(config(tmp_path, **write(tmp_path, texts) | {"train": "train.jsonl"}))
    names(str(error.value), "train.jsonl:1", "label")


@pytest.mark.parametrize("labels", [(1, 0, 12), (True, False, True)])
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_labels_that_are_no_texts_are_their_own_names(tmp_path: Path, ending: str, labels: tuple[object, ...]):
    for name in TEXTS:
        rows = [{"text": f"{name} {label}", "label": label} for label in labels]
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = load_corpus(config(tmp_path, **{name: f"{name}.{ending}" for name in TEXTS}))
    assert list(corpus.splits["test"].tags) == [[str(label)] for label in labels]


@pytest.mark.parametrize("label", [0.37, 1.0, -1, None])
def test_what_names_no_class_is_refused(tmp_path: Path, label: object):
    files = write(tmp_path)
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": "x y", "label": label}))
    with pytest.raises(UserError) as error:
        load_corpus(config(tmp_path, **files | {"train": "train.jsonl"}))
    names(str(error.value), "train.jsonl:1", label)


def test_columns_of_conllu_have_no_label_per_sentence(tmp_path: Path):
    (tmp_path / "a.conllu").write_text("1\ta\ta\tX\t_\t_\t0\t_\t_\t_\n\n")
    with pytest.raises(UserError, match=r"a\.conllu"):
        load_corpus(config(tmp_path, train="a.conllu", dev="a.conllu", test="a.conllu"))


def test_ideographs_are_words_and_a_long_text_is_whole(tmp_path: Path):
    assert split_text("我爱北京。Hi", "here") == ["我", "爱", "北", "京", "。", "Hi"]
    long = " ".join(["word"] * 5000)
    corpus = load_corpus(
        config(tmp_path, **write(tmp_path, {"train": [f"a\t{long}", "b\tx"], "dev": ["a\ty"], "test": ["b\tz"]}))
    )
    assert corpus.splits["train"].lengths == [5000, 1]
