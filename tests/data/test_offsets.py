"""Texts with spans of characters, as each annotation tool exports them: read, refused, and written back."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.facts import names
from support.inputs import data_config

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.layout import Layout
from probe.data.offsets import texts_with_spans
from probe.data.readers import read_file
from probe.data.split import AROUND_WORD, CUT_WORDS, Split
from probe.settings import configs_of
from probe.tag.io import SPAN_FORMS

TEXT = "EU hit Ana-Lu's unXy\r\n(Ana)."
SPANS = [(0, 2, "ORG"), (7, 10, "PER"), (18, 19, "X"), (23, 26, "PER")]
LINES = [["EU", "hit", "Ana", "-", "Lu", "'", "s", "un", "X", "y"], ["(", "Ana", ")", "."]]
TAGS = [["B-ORG", "O", "B-PER", "O", "O", "O", "O", "O", "B-X", "O"], ["O", "B-PER", "O", "O"]]
Spans = list[tuple[int, int, str]]


def doccano(text: str, spans: Spans) -> dict:
    return {"id": 7, "text": text, "label": [list(span) for span in spans], "Comments": []}


def doccano_relations(text: str, spans: Spans) -> dict:
    entities = [{"id": 1, "label": kind, "start_offset": start, "end_offset": end} for start, end, kind in spans]
    return {"id": 7, "text": text, "entities": entities, "relations": [], "Comments": []}


def region(text: str, start: int, end: int, kind: str) -> dict:
    return {"start": start, "end": end, "text": text[start:end].replace("\n", "\\n"), "labels": [kind]}


def label_studio(text: str, spans: Spans) -> dict:
    labels = [
        {"id": "x", "from_name": "label", "to_name": "text", "type": "labels", "value": region(text, *span)}
        for span in spans
    ]
    relation = {"from_id": "x", "to_id": "x", "type": "relation", "direction": "right"}
    cancelled = {"id": 2, "was_cancelled": True, "result": []}
    done = {"id": 1, "completed_by": 1, "was_cancelled": False, "result": [*labels, relation]}
    return {"id": 7, "annotations": [cancelled, done], "drafts": [], "predictions": [], "data": {"text": text}}


def label_studio_min(text: str, spans: Spans) -> dict:
    row = {"text": text, "id": 7, "annotator": 1, "annotation_id": 1, "created_at": "2026-01-01T00:00:00Z"}
    return row | ({"label": [region(text, *span) for span in spans]} if spans else {})


def prodigy(text: str, spans: Spans) -> dict:
    tokens = [{"text": text, "start": 0, "end": len(text), "id": 0, "ws": False}]
    found = [
        {"start": start, "end": end, "token_start": 0, "token_end": 0, "label": kind} for start, end, kind in spans
    ]
    row = {"text": text, "_input_hash": 1, "tokens": tokens, "_view_id": "ner_manual", "answer": "accept"}
    return row | ({"spans": found} if spans else {})


def spacy_example(text: str, spans: Spans) -> list:
    return [text, {"entities": [list(span) for span in spans]}]


def spacy_doc(text: str, spans: Spans) -> dict:
    ents = [{"start": start, "end": end, "label": kind} for start, end, kind in spans]
    return {"text": text, "ents": ents, "tokens": [{"id": 0, "start": 0, "end": len(text)}]}


ROWS: list[Callable[[str, Spans], Any]] = [
    doccano,
    doccano_relations,
    label_studio,
    label_studio_min,
    prodigy,
    spacy_example,
    spacy_doc,
]


def write(folder: Path, rows: list[Any], name: str = "train") -> Path:
    """Writes rows as one array on a line, as Label Studio and programs do."""
    file = folder / f"{name}.json"
    file.write_text(json.dumps(rows, ensure_ascii=False))
    return file


def write_brat(folder: Path, texts: list[tuple[str, Spans]]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, (text, spans) in enumerate(texts):
        (folder / f"{number:03}.txt").write_bytes(text.encode())
        quoted = [text[start:end].replace("\n", " ").replace("\r", " ") for start, end, _ in spans]
        lines = [f"T{i}\t{span[2]} {span[0]} {span[1]}\t{quoted[i]}\n" for i, span in enumerate(spans)]
        (folder / f"{number:03}.ann").write_bytes(
            "".join([*lines, "R1\tIn Arg1:T0 Arg2:T0\n", "#1\tNote T0\tx\n"]).encode()
        )
    return folder


def spans_in(split: Split) -> list[tuple[str, Spans]]:
    return [(text, [span[:3] for span in spans]) for text, spans, _ in texts_with_spans(split, split.tags)]


def refused(file: Path, **settings: Any) -> str:
    with pytest.raises(UserError) as error:
        read_file(file, Layout(**settings))
    return str(error.value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
@pytest.mark.parametrize("ending", ["json", "jsonl", "indented"])
def test_every_tool_gives_the_same_words_tags_and_documents(row: Callable, ending: str, tmp_path: Path):
    rows = [row(TEXT, SPANS), row("no span", [])]
    file = tmp_path / f"train.{ending.replace('indented', 'json')}"
    forms = {
        "json": json.dumps(rows),
        "jsonl": "\n".join(map(json.dumps, rows)),
        "indented": json.dumps(rows, indent=2),
    }
    file.write_text(forms[ending])
    split = read_file(file, Layout())
    assert split.words == [*LINES, ["no", "span"]]
    assert split.tags == [*TAGS, ["O", "O"]]
    assert split.documents == [1, 1, 2], "a text of several lines is a document"
    assert split.skipped[CUT_WORDS] == 2


def test_a_folder_of_brat_has_a_document_per_pair(tmp_path: Path):
    split = read_file(write_brat(tmp_path / "train", [(TEXT, SPANS), ("no span", [])]), Layout())
    assert (split.words, split.tags) == ([*LINES, ["no", "span"]], [*TAGS, ["O", "O"]])
    assert split.documents == [1, 1, 2]
    assert split.skipped["annotations that are no spans"] == 4
    (tmp_path / "train/001.txt").unlink()
    names(refused(tmp_path / "train"), "001.txt")
    (tmp_path / "train/000.ann").write_text("T1\tORG 0 2;7 10\tEU Ana\n")
    names(refused(tmp_path / "train"), "000.ann:1", "0 2;7 10")


def test_a_docbin_of_spacy_itself_is_read(tmp_path: Path):
    spacy = pytest.importorskip("spacy")
    nlp, texts = (
        spacy.blank("en"),
        [("EU hit Ana.", [(0, 2, "ORG"), (7, 10, "PER")]), ("\U0001f600 Ana", [(2, 5, "PER")])],
    )
    docs = spacy.tokens.DocBin()
    for text, spans in texts:
        doc = nlp.make_doc(text)
        doc.ents = [doc.char_span(*span) for span in spans]
        docs.add(doc)
    docs.add(nlp.make_doc("not annotated"))
    docs.to_disk(tmp_path / "train.spacy")
    split = read_file(tmp_path / "train.spacy", Layout())
    assert spans_in(split) == texts
    assert split.skipped["texts without annotation"] == 1


def test_entities_of_a_docbin_are_read_or_spacy_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "train.spacy").write_bytes(b"x")
    modules = {name: ModuleType(name) for name in ("spacy", "spacy.tokens", "spacy.vocab")}
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    names(refused(tmp_path / "train.spacy"), "train.spacy", "pip install spacy")
    entity = SimpleNamespace(start_char=0, end_char=2, label_="ORG")
    doc = SimpleNamespace(text="EU hit", ents=[entity], has_annotation=lambda what: what == "ENT_IOB")
    other = SimpleNamespace(text="not annotated", ents=[], has_annotation=lambda what: False)

    class DocBin:
        def from_disk(self, file: Path) -> DocBin:
            if file.read_bytes() != b"x":
                raise ValueError("odd bytes")
            return self

        def get_docs(self, vocab: object) -> list[SimpleNamespace]:
            return [doc, other]

    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(modules["spacy.tokens"], "DocBin", DocBin, raising=False)
    monkeypatch.setattr(modules["spacy.vocab"], "Vocab", object, raising=False)
    split = read_file(tmp_path / "train.spacy", Layout())
    assert spans_in(split) == [("EU hit", [(0, 2, "ORG")])]
    assert split.skipped["texts without annotation"] == 1
    (tmp_path / "train.spacy").write_bytes(b"y")
    names(refused(tmp_path / "train.spacy"), "train.spacy", "odd bytes")


WORDS = ["Ana", "EU", "U.S.", "don't", "un", "believable", ",", ".", "(", ")", '"', "-", "\u3002", "\\n"]
BLANKS = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\x1c"]
EMOJI = ["\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f"]
MARKS = ["e\u0301", "o\u0308", "\u05e9\u05c1", "\u0915\u094d\u200d\u0937", "\u0645\u06cc\u200c\u062e"]
OTHERS = ["\u6211\u7231\u5317\u4eac", "\U00020001", "\u30ac\u30b9", "\u200b", "\u00ad", "\u2060"]
PARTS = [*WORDS, *BLANKS, *EMOJI, *MARKS, *OTHERS]


def made_up(number: int) -> tuple[str, Spans]:
    """A text of odd parts with spans anywhere, also inside words and side by side, that begin and end with no blank."""
    draw = random.Random(number)
    text = "".join(draw.choices(PARTS, k=draw.randint(3, 30))) + "x"
    edges = sorted(draw.sample(range(len(text) + 1), min(len(text), draw.randint(2, 8))))
    pairs = [pair for pair in pairwise(edges) if text[slice(*pair)].strip(AROUND_WORD) == text[slice(*pair)]]
    return text, [(*pair, draw.choice(["ORG", "PER", "B-x"])) for pair in pairs if draw.random() < 0.8]


MADE_UP = [made_up(number) for number in range(400)]


def in_utf16(text: str, at: int) -> int:
    return len(text[:at].encode("utf-16-le")) // 2


@pytest.mark.parametrize("row", [*ROWS, SPAN_FORMS["doccano"], SPAN_FORMS["spacy"], "browser", "brat"])
def test_offsets_come_out_as_they_came_in(row: Any, tmp_path: Path):
    assert sum(len(spans) for _, spans in MADE_UP) > 400
    layout, texts = Layout(), MADE_UP
    if row == "brat":
        file = write_brat(tmp_path / "train", texts)
    elif row == "browser":
        layout = Layout(offsets="utf16")
        counted = [
            (text, [(in_utf16(text, s), in_utf16(text, e), kind) for s, e, kind in spans]) for text, spans in texts
        ]
        file = write(tmp_path, [doccano(*pair) for pair in counted])
    else:
        is_doubtful = row in (doccano, doccano_relations, SPAN_FORMS["doccano"])
        layout = Layout(offsets="characters") if is_doubtful else layout
        file = write(tmp_path, [row(*pair) for pair in texts])
    split = read_file(file, layout)
    assert spans_in(split) == texts
    again = [SPAN_FORMS["spans"](*text) for text in texts_with_spans(split, split.tags)]
    assert spans_in(read_file(write(tmp_path, again, "again"), Layout())) == texts


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([doccano("ok", []), doccano("EU", [(0, 9, "X")])], ["text 2 (id 7)", 9, 2]),
        ([doccano("EU", [(1, 1, "X")])], ["text 1", '[1, 1, "X"]']),
        ([doccano("EU", [(-1, 1, "X")])], ["text 1", -1]),
        ([doccano("EU won", [(2, 3, "X")])], ["text 1", '[2, 3, "X"]']),
        ([{"text": "EU", "label": [[0, 1.5, "X"]]}], ["text 1", 1.5]),
        ([{"text": "EU", "label": [["0", "2", "X"]]}], ["text 1", '"2"']),
        ([{"text": "EU", "label": [[True, 2, "X"]]}], ["text 1", "true"]),
        ([{"text": "EU", "label": [[0, 2, ""]]}], ["text 1", '[0, 2, ""]']),
        ([{"text": "EU", "label": [[0, 2]]}], ["text 1", "[0, 2]"]),
        ([{"text": "EU", "spans": [{"start": 0, "end": 2}]}], ["text 1", '"end": 2']),
        ([{"text": "EU", "spans": [{"start": 0, "end": 2, "label": ["A", "B"]}]}], ["text 1", '["A", "B"]']),
        ([{"text": "EU", "label": ["good"]}], ["text 1", "good"]),
        ([{"text": "EU", "label": [None]}], ["text 1", "null"]),
        ([{"text": "EU", "entities": [[0, 2, "X"]], "spans": [[0, 1, "Y"]]}], ["data.tags_field=entities"]),
        ([{"text": "EU", "meta": {}}], ["text 1", "data.tags_field"]),
        ([{"text": "EU", "answer": "Rome", "label": "x"}], ["text 1", "data.tags_field"]),
        ([{"text": "half \ud800 \U0001f600", "label": [[0, 4, "X"]]}], ["train.json:1"]),
        ([{"text": "a b", "spans": [[0, 1, "A B"], [2, 3, "A_B"]]}], ["text 1", "A_B"]),
        ([{"text": "a", "spans": [[0, 1, "A\u200bB"]]}], ["train.json:1"]),
        ([{"text": "half \ud800", "spans": []}], ["train.json:1"]),
        ([{"text": "x " * 10_001, "spans": []}], ["train.json:1", 10001]),
        ([{"tokens": ["a"], "ner_tags": ["O"]}, {"text": "a", "spans": []}], ["train.json"]),
        ([label_studio("EU", []) | {"annotations": [{"result": []}, {"result": []}]}], ["text 1 (id 7)", 2]),
        ([label_studio("EU", []) | {"annotations": [{"result": [{"type": "labels"}]}]}], ["text 1 (id 7)"]),
        ([label_studio("EU", []) | {"annotations": [{"value": 1}]}], ["text 1 (id 7)"]),
        ([label_studio("EU", []) | {"annotations": None}], ["text 1 (id 7)"]),
        ([label_studio("EU won", [(0, 2, "X")]) | {"data": {"text": "The EU won"}}], ["text 1", '"EU"', '"Th"']),
        ([label_studio("EU won", [(0, 2, "X")]) | {"data": {"html": "EU won"}}], ["data.words_field", "html"]),
    ],
)
def test_a_span_that_does_not_fit_is_refused_with_file_and_text(rows: list[Any], facts: list[object], tmp_path: Path):
    file = tmp_path / "train.json"
    file.write_text(json.dumps(rows))
    message = refused(file)
    names(message, "train.json", *facts)
    assert message.count("\n") < len(rows)


def test_regions_of_html_are_refused_not_dropped(tmp_path: Path):
    row = label_studio("EU won", [(0, 2, "X")])
    result = row["annotations"][1]["result"][0]
    result["type"] = "hypertextlabels"
    result["value"] = {"start": "/p[1]/text()[1]", "end": "/p[1]/text()[1]", "startOffset": 0, "endOffset": 2}
    names(refused(write(tmp_path, [row])), "text 1", "startOffset")


def test_overlapping_spans_are_refused_unless_the_longest_are_asked_for(tmp_path: Path):
    spans = [(0, 3, "A"), (0, 8, "B"), (9, 10, "C"), (9, 10, "D"), (4, 10, "E")]
    file = write(tmp_path, [prodigy("New York x", spans)])
    names(refused(file), "text 1", "data.overlaps=longest")
    split = read_file(file, Layout(overlaps="longest"))
    assert spans_in(split) == [("New York x", [(0, 8, "B"), (9, 10, "C")])]
    assert split.skipped["overlapping spans"] == 3


def test_blanks_around_a_span_are_removed_and_counted(tmp_path: Path):
    file = write(tmp_path, [prodigy(" EU \u200b won", [(0, 5, "Big Org")])])
    split = read_file(file, Layout())
    assert spans_in(split) == [(" EU \u200b won", [(1, 3, "Big_Org")])]
    assert split.skipped["blanks around spans"] == 1


def test_what_was_not_annotated_or_accepted_is_counted_and_not_read(tmp_path: Path):
    rejected = [prodigy("no", [(0, 2, "X")]) | {"answer": answer} for answer in ("reject", "ignore")]
    open_task = label_studio("open", []) | {"annotations": []}
    split = read_file(write(tmp_path, [*rejected, open_task, label_studio("EU", [(0, 2, "X")])]), Layout())
    assert split.words == [["EU"]]
    expected = {"texts that were not accepted": 2, "texts without annotation": 1, "annotations that are no spans": 1}
    assert +split.skipped == expected


@pytest.mark.parametrize("row", [doccano, doccano_relations])
def test_an_emoji_before_a_span_without_its_text_asks_what_is_counted(row: Callable, tmp_path: Path):
    file = write(tmp_path, [row("\U0001f600 EU won", [(2, 4, "X")])])
    names(refused(file), "text 1 (id 7)", "data.offsets=utf16", "data.offsets=characters")
    assert spans_in(read_file(file, Layout(offsets="characters")))[0][1] == [(2, 4, "X")]
    file = write(tmp_path, [row("EU \U0001f600 won", [(0, 2, "X")])])
    assert spans_in(read_file(file, Layout()))[0][1] == [(0, 2, "X")], "before the emoji there is no doubt"


def test_offsets_of_a_browser_disagree_with_the_quoted_text(tmp_path: Path):
    row = label_studio("\U0001f600 EU won", [(2, 4, "X")])
    row["annotations"][1]["result"][0]["value"] |= {"start": 3, "end": 5}
    file = write(tmp_path, [row])
    names(refused(file), "text 1", '"U "', "data.offsets=utf16")
    assert spans_in(read_file(file, Layout(offsets="utf16")))[0][1] == [(2, 4, "X")]
    half = write(tmp_path, [doccano("\U0001f600 EU won", [(1, 4, "X")])])
    names(refused(half, offsets="utf16"), "text 1", '[1, 4, "X"]')


def corpus_of(folder: Path, **changes: object) -> Corpus:
    return load_corpus(data_config(folder, **changes))


def test_one_export_is_split_by_text_or_by_document(tmp_path: Path):
    texts = [f"Ana {number} left\nand EU won" for number in range(20)]
    rows = [prodigy(text, [(0, 3, "PER")]) | {"meta": {}, "doc": f"d{i // 2}"} for i, text in enumerate(texts)]
    write(tmp_path, rows)
    alone: dict[str, Any] = {
        "train": "train.json",
        "dev": None,
        "test": None,
        "dev_fraction": 0.1,
        "test_fraction": 0.2,
    }
    corpus = corpus_of(tmp_path, **alone)
    assert [len(split.words) for split in corpus.splits.values()] == [28, 4, 8]
    assert corpus.about["taken_from_train"]["dev"]["by"] == "document"
    assert spans_in(corpus.splits["dev"]) == [(text, [(0, 3, "PER")]) for text, _ in spans_in(corpus.splits["dev"])]
    by_field = corpus_of(tmp_path, **alone, document_field="doc")
    documents = by_field.splits["test"].documents
    assert documents is not None
    assert [documents.count(number) for number in sorted({*documents})] == [4, 4]
    names(refused(tmp_path / "train.json", document_field="page"), "data.document_field", "page")


def test_texts_of_one_line_are_no_documents(tmp_path: Path):
    split = read_file(write(tmp_path, [prodigy("Ana left", [(0, 3, "PER")]), prodigy("so\tdid EU\n", [])]), Layout())
    assert split.documents is None
    assert split.words == [["Ana", "left"], ["so", "did", "EU"]]


def test_a_span_over_a_line_end_keeps_its_lines_together(tmp_path: Path):
    split = read_file(write(tmp_path, [prodigy("New\r\nYork won\nx", [(0, 9, "LOC")])]), Layout())
    assert split.words == [["New", "York", "won"], ["x"]]


@pytest.mark.parametrize("task", ["tags", "sentence"])
def test_other_tasks_refuse_spans_and_name_the_one_that_reads_them(task: str, tmp_path: Path):
    for name in ("train", "dev", "test"):
        write(tmp_path, [doccano("Ana left", [(0, 3, "PER")]), doccano(f"{name} won", [])], name)
        write_brat(tmp_path / name, [("Ana left", [(0, 3, "PER")]), (f"{name} won", [])])
    for files in (
        {"train": "train.json", "dev": "dev.json", "test": "test.json"},
        {n: n for n in ("train", "dev", "test")},
    ):
        with pytest.raises(UserError) as error:
            corpus_of(tmp_path, task=task, **files)
        names(error.value, "data.task=spans")
        assert corpus_of(tmp_path, **files).splits["train"].tags[0] == ["B-PER", "O"]


@pytest.mark.parametrize(
    ("row", "typed"),
    [
        ({"content": "EU won", "entities": [[0, 2, "ORG"]]}, ["data.words_field=content"]),
        ({"text": "EU won", "ner": [{"start": 0, "end": 2, "label": "ORG"}]}, ["data.tags_field=ner"]),
    ],
)
def test_other_names_of_the_fields_are_found(row: dict, typed: list[str], tmp_path: Path):
    files = {
        name: write(tmp_path, [row, {**row, "content": name, "text": name, next(reversed(row)): []}], name).name
        for name in ("train", "dev", "test")
    }
    with pytest.raises(UserError) as error:
        corpus_of(tmp_path, **files)
    names(error.value, *typed)
    settings = [part.rstrip(".") for part in str(error.value).split() if part.startswith("data.") and "=" in part]
    words = [f"data.{name}={file}" for name, file in files.items()]
    cfg = configs_of(["data=json", f"data.path={tmp_path}", *words, *settings])[0][0]
    assert load_corpus(cfg.data).splits["train"].tags[0] == ["B-ORG", "O"]


def test_a_parquet_file_of_texts_is_read(tmp_path: Path):
    import datasets

    rows = [SPAN_FORMS["spans"](*text) for text in texts_with_spans(*parts_of(tmp_path))]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "train.parquet")
    assert spans_in(read_file(tmp_path / "train.parquet", Layout())) == [(TEXT, SPANS), ("no span", [])]


def parts_of(folder: Path) -> tuple[Split, Any]:
    split = read_file(write(folder, [prodigy(TEXT, SPANS), prodigy("no span", [])]), Layout())
    return split, split.tags


def test_words_that_are_cut_inside_are_counted_and_warned_of(tmp_path: Path):
    for name, number in {"train": 9, "dev": 2, "test": 3}.items():
        write(tmp_path, [prodigy(f"n{i}believable {name}", [(2, 6, "X")]) for i in range(number)], name)
    corpus = corpus_of(tmp_path, train="train.json", dev="dev.json", test="test.json")
    assert corpus.about["skipped"][CUT_WORDS] == {"train": 18, "dev": 4, "test": 6}
    assert any(note.startswith("WARNING") and "18" in note for note in corpus.notes)
