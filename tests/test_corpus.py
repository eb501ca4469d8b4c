"""Column files and Hub rows: read right, or refused with their place."""

from __future__ import annotations

import time
from pathlib import Path

import datasets
import pytest
from conftest import write_columns

from probe import hub
from probe.config import DataConfig, UserError
from probe.corpus import Corpus, load_corpus, read_columns, split_from_rows, to_iob2


def config(path: Path | str | None, **changes) -> DataConfig:
    values: dict = {
        "hub": None,
        "revision": None,
        "train": "train.conll",
        "dev": "dev.conll",
        "test": "test.conll",
    }
    return DataConfig(name="x", path=None if path is None else str(path), **{**values, **changes})


def written(tmp_path: Path, content: str | bytes) -> Path:
    file = tmp_path / "some.conll"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_what_is_written_is_read(tiny_corpus: Corpus, tmp_path: Path):
    read = load_corpus(config(write_columns(tmp_path, tiny_corpus)))
    for name, split in tiny_corpus.splits.items():
        assert read.splits[name].words == split.words
        assert read.splits[name].tags == split.tags
    assert read.counts()["train"]["documents"] == 30


def test_iob1_becomes_iob2_and_document_marks_are_no_words(tmp_path: Path):
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nBonn NNP I-NP I-LOC\nParis NNP I-NP B-LOC\nsaid VBD I-VP O\n\n"
    split = read_columns(
        written(tmp_path, text + "-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\nHill NNP I-NP I-PER"),
        "data.train",
    )
    assert split.words == [["EU", "Bonn", "Paris", "said"], ["Peter", "Hill"]]
    assert split.tags == [["B-ORG", "B-LOC", "B-LOC", "O"], ["B-PER", "I-PER"]]
    assert split.documents == [1, 2]
    assert split.lines == [3, 10]


def test_crlf_bom_tabs_and_a_missing_last_empty_line_are_fine(tmp_path: Path):
    split = read_columns(written(tmp_path, b"\xef\xbb\xbfAna\tB-PER\r\nwon\tO\r\n\r\nLeeds\tB-LOC"), "data.train")
    assert split.words == [["Ana", "won"], ["Leeds"]]
    assert split.documents is None


def test_a_blank_inside_a_word_stays_where_tabs_separate(tmp_path: Path):
    assert read_columns(written(tmp_path, "New York\tB-LOC\n"), "data.train").words == [["New York"]]


def test_a_no_break_space_stays_inside_its_word(tmp_path: Path):
    assert read_columns(written(tmp_path, "10\u00a0000 O\n"), "data.train").words == [["10\u00a0000"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Ana B-PER\nwon\n", r"some.conll:2: one column \('won'\)"),
        ("Ana B-PER\nwon S-LOC\n", "some.conll:2: tag 'S-LOC' is not"),
        (b"Ana B-PER\nM\xfcller B-PER\n", "some.conll:2: byte 0xfc is not UTF-8"),
        ("a b c B-PER\nwon O\n", r"some.conll:2: 2 columns .*have 4"),
        ("a\tb\tB-PER\n\tb\tO\n", "some.conll:2: 3 columns"),
        ("Ana B-PER\rwon O\r", "some.conll:1: .*carriage return"),
        ("\n\n", "holds no sentence"),
        ("", "holds no sentence"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(tmp_path: Path, content: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        read_columns(written(tmp_path, content), "data.train")


def test_missing_folders_files_and_entities_are_named(tiny_data: Path):
    with pytest.raises(UserError, match="data.path=/nowhere: there is no such folder"):
        load_corpus(config("/nowhere"))
    with pytest.raises(UserError, match=r"nope.conll does not exist.*data.dev=NAME"):
        load_corpus(config(tiny_data, dev="nope.conll"))
    (tiny_data / "plain.conll").write_text("the O\n")
    with pytest.raises(UserError, match="no entity in the test split"):
        load_corpus(config(tiny_data, test="plain.conll"))


def test_fingerprint_tells_words_tags_bounds_and_documents_apart(tiny_corpus: Corpus):
    def changed(**parts) -> str:
        import copy

        other = copy.deepcopy(tiny_corpus)
        for name, change in parts.items():
            change(getattr(other.splits["dev"], name))
        return other.fingerprint()

    def join_first_two(sentences: list[list[str]]) -> None:
        sentences[0] += sentences.pop(1)

    prints = {
        tiny_corpus.fingerprint(),
        changed(words=lambda words: words[0].__setitem__(0, "other")),
        changed(tags=lambda tags: tags[0].__setitem__(0, "B-NEW")),
        changed(documents=lambda documents: documents.__setitem__(0, -1)),
        changed(words=join_first_two, tags=join_first_two),
    }
    assert len(prints) == 5
    assert changed(tags=lambda tags: tags[0].__setitem__(0, "B-NEW")) != tiny_corpus.fingerprint()
    assert tiny_corpus.text_fingerprint(True) != tiny_corpus.text_fingerprint(False)


def rows(names: list[str] | None) -> datasets.Dataset:
    tag = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(tag)})
    return datasets.Dataset.from_dict(
        {"tokens": [["Ana", "won"], [], ["Leeds"]], "ner_tags": [[1, 2], [], [0]]}, features
    )


def test_hub_rows_take_their_label_names_from_the_schema_whatever_id_zero_is():
    split = split_from_rows(rows(["B-LOC", "B-PER", "O"]), "made")
    assert split.words == [["Ana", "won"], ["Leeds"]]
    assert split.tags == [["B-PER", "O"], ["B-LOC"]]
    assert split.lines == [1, 3]


def test_hub_rows_with_bare_numbers_are_refused():
    with pytest.raises(UserError, match="bare values without names"):
        split_from_rows(rows(None), "made")


@pytest.mark.parametrize("names", [["O", "B-PER", "S-PER"], ["O", "person", "B-LOC"]])
def test_hub_labels_that_are_no_iob_are_refused(names: list[str]):
    with pytest.raises(UserError, match="is not O, B-TYPE or I-TYPE"):
        split_from_rows(rows(names), "made")


def test_hub_ids_without_a_name_are_refused_not_read_from_the_end():
    made = rows(["O", "B-PER", "I-PER"]).add_item({"tokens": ["x", "y"], "ner_tags": [0, -1]})
    with pytest.raises(UserError, match="made:4: tag -1 has no name"):
        split_from_rows(made, "made")


def test_parquet_in_the_form_of_the_hub_keeps_names(tmp_path: Path):
    rows(["O", "B-PER", "I-PER"]).to_parquet(str(tmp_path / "train.parquet"))
    loaded = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "train.parquet"), split="train", cache_dir=str(tmp_path)
    )
    assert split_from_rows(loaded, "made").tags == [["B-PER", "I-PER"], ["O"]]


def test_without_the_hub_the_error_comes_at_once_and_names_the_ways_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    hub.reachable.cache_clear()
    clock = time.monotonic()
    try:
        with pytest.raises(UserError, match=r"data.path=DIR.*data=demo encoder=minilm_l6"):
            load_corpus(config(None, hub="lhoestq/conll2003"))
    finally:
        hub.reachable.cache_clear()
    assert time.monotonic() - clock < 60  # a guard against hanging; the five seconds are measured, not asserted


def test_ill_formed_starts_begin_a_span():
    assert to_iob2(["I-PER", "I-PER", "I-LOC", "O", "I-LOC", "B-LOC"]) == [
        "B-PER", "I-PER", "B-LOC", "O", "B-LOC", "B-LOC",
    ]  # fmt: skip
