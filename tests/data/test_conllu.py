"""CoNLL-U: words, tags and documents, without multiword ranges and empty nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.facts import names
from support.inputs import data_config, write_file

from probe.config import UserError
from probe.data.corpus import load_corpus
from probe.data.guesses import columns_of
from probe.data.layout import Layout
from probe.data.readers import READERS, read_file, reader_of
from probe.settings import config_of

TAGS = Layout(task="tags")
TEXT = """# newdoc id = a
# sent_id = 1
# text = Sue doesn't like New York.
1	Sue	Sue	PROPN	NNP	_	4	nsubj	_	_
2-3	doesn't	_	_	_	_	_	_	_	_
2	does	do	AUX	VBZ	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
4	like	like	VERB	VB	_	0	root	_	_
4.1	likes	like	VERB	VBZ	_	_	_	_	_
# an odd place for a comment
5	New York	New York	PROPN	NNP	_	4	obj	_	SpaceAfter=No

# newpar
1	#1	#1	X	CD	_	0	root	_	_

# newdoc
0.1	He	he	PRON	PRP	_	_	_	_	_
1	Wins	win	VERB	VBZ	_	0	root	_	_
"""


def test_words_upos_and_documents_are_read_without_ranges_and_empty_nodes(tmp_path: Path):
    split = read_file(write_file(tmp_path, TEXT, "some.conllu"), TAGS)
    assert split.words == [["Sue", "does", "n't", "like", "New York"], ["#1"], ["Wins"]]
    assert split.tags == [["PROPN", "AUX", "PART", "VERB", "PROPN"], ["X"], ["VERB"]]
    assert split.documents == [1, 1, 2]
    assert list(split.lines) == [4, 14, 18]
    assert split.skipped["lines of CoNLL-U"] == 3
    assert [*map(list, split.word_lines)] == [[4, 6, 7, 8, 11], [14], [18]]
    assert split.place(4).endswith(":11 ('New York')"), "skipped lines are lines too"
    assert split.place(6).endswith(":18 ('Wins')")
    assert list(columns_of(split)[1]) == [word for words in split.words for word in words]


@pytest.mark.parametrize(("column", "tags"), [(4, "NNP"), (-4, "4"), (-3, "nsubj")])
def test_another_column_of_tags_can_be_chosen(tmp_path: Path, column: int, tags: str):
    split = read_file(write_file(tmp_path, TEXT, "some.conllu"), replace(TAGS, tag_column=column))
    assert split.tags[0][0] == tags


def test_spans_are_in_the_last_column_unless_another_is_chosen(tmp_path: Path):
    text = "1\tAna\tAna\tB-PER\t_\t_\t_\t_\t_\tB-ORG\n"
    file = write_file(tmp_path, text, "some.conllu")
    assert read_file(file, Layout()).tags == [["B-ORG"]]
    assert read_file(file, Layout(tag_column=3)).tags == [["B-PER"]]


def test_crlf_and_gzip_and_a_text_without_documents(tmp_path: Path):
    text = TEXT.replace("# newdoc", "# olddoc").replace("\n", "\r\n")
    split = read_file(write_file(tmp_path, text, "some.conllu"), TAGS)
    assert split.documents is None
    assert split.words[0][-1] == "New York"
    assert reader_of(Path("x/en_ewt-ud-train.conllu.gz")) is READERS["conllu"]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("1\tAna\tAna\tPROPN\n3\twon\twin\tVERB\n", ["some.conllu:2", "'3'", 2]),
        ("1\tAna\tAna\tPROPN\n1\twon\twin\tVERB\n", ["some.conllu:2", "'1'", 2]),  # no empty line between sentences
        ("Ana\tPROPN\n", ["some.conllu:1", "'Ana'"]),
        ("1 Ana Ana PROPN\n", ["some.conllu:1", "'1 Ana Ana PROPN'", "tabs"]),
        ("1\tAna\tAna\t_\n", ["some.conllu:1", "'_'"]),
        ("1\tAna\tAna\tPROPN\n2\twon\twin\n", ["some.conllu:2", "3 columns", 4]),
        ("1\t\tAna\tPROPN\n", ["some.conllu:1", "word"]),
        ("1-2\tdon't\t_\t_\n# text\n", ["some.conllu"]),
        ("# text\n", ["some.conllu"]),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(tmp_path: Path, text: str, facts: list[object]):
    with pytest.raises(UserError) as caught:
        read_file(write_file(tmp_path, text, "some.conllu"), TAGS)
    names(caught.value, *facts)
    assert "\n" not in str(caught.value)


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for name in ("train", "dev", "test"):
        write_file(tmp_path, TEXT.replace("Wins", f"Wins{name}"), f"en_ewt-ud-{name}.conllu")
    return tmp_path


def test_universal_dependencies_have_parts_of_speech(treebank: Path):
    settings = ["data=ud_pos", f"data.path={treebank}", "data.subset=en_ewt"]
    corpus = load_corpus(config_of(settings).data)
    assert (corpus.task.name, corpus.name) == ("tags", "en_ewt UPOS")
    assert corpus.splits["train"].words[2] == ["Winstrain"]
    assert corpus.splits["train"].tags == [["PROPN", "AUX", "PART", "VERB", "PROPN"], ["X"], ["VERB"]]
    assert corpus.about["skipped"] == {
        "comments": {"train": 4, "dev": 4, "test": 4},
        "lines of CoNLL-U": {"train": 3, "dev": 3, "test": 3},
    }
    xpos = load_corpus(config_of([*settings, "data.tag_column=4"]).data)
    assert xpos.splits["dev"].tags == [["NNP", "VBZ", "RB", "VB", "NNP"], ["CD"], ["VBZ"]]


def test_another_treebanks_files_are_named(treebank: Path):
    with pytest.raises(UserError, match=r"de_gsd-ud-train\.conllu.*en_ewt-ud-train\.conllu"):
        load_corpus(config_of(["data=ud_pos", f"data.path={treebank}", "data.subset=de_gsd"]).data)


def test_a_text_to_be_tagged_keeps_its_columns(tmp_path: Path):
    read = READERS["conllu"].read_lines
    assert read is not None
    split = read(TEXT.split("\n"), Layout(without_tags=True), "text")
    assert split.words[0] == ["Sue", "does", "n't", "like", "New York"]
    assert {tag for tags in split.tags for tag in tags} == {"O"}
    assert split.columns is not None
    assert [row[3] for row in split.columns[0]] == ["PROPN", "AUX", "PART", "VERB", "PROPN"]


# The table of all formats.


def test_a_layout_without_settings_is_that_of_the_columns_preset(tmp_path: Path):
    assert Layout.of(data_config(tmp_path)) == Layout()


def test_every_ending_has_one_reader():
    endings = [ending for reader in READERS.values() for ending in reader.endings]
    assert len(endings) == len(set(endings))
    for reader in READERS.values():
        assert {reader_of(Path(f"train{ending}")) for ending in reader.endings} <= {reader}
    assert reader_of(Path("eng.train")) is READERS["columns"]


def test_settings_of_other_formats_change_nothing(tmp_path: Path):
    others: dict[str, Any] = {
        "word_column": 7, "separator": "space", "comment": "1", "document_marker": "Sue",
        "word_prefix": "x", "words_field": "x", "tags_field": "x", "document_field": "x", "labels": ["x"],
    }  # fmt: skip
    file, layout = write_file(tmp_path, TEXT, "some.conllu"), replace(TAGS, tag_column=3)
    assert read_file(file, replace(layout, **others)) == read_file(file, layout)
