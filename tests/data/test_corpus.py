"""A corpus of three splits: read right whatever its shape, or refused with file and line."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commands import num_calls
from support.facts import names
from support.inputs import (
    SCHEMES,
    Span,
    data_config,
    make_split,
    random_spans,
    write_columns,
    write_splits,
    written,
)

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split, SplitCounts
from probe.scoring.tags import spans

# The original files of CoNLL-2003; their licence keeps them out of here.
CONLL2003 = os.environ.get("CONLL2003_DIR", "")


def test_what_is_written_is_read(tiny_corpus: Corpus, tmp_path: Path):
    read = load_corpus(data_config(write_columns(tmp_path, tiny_corpus)))
    for name, split in tiny_corpus.splits.items():
        assert read.splits[name].words == split.words
        assert read.splits[name].tags == split.tags
    assert read.counts()["train"].documents == 30
    assert read.about == {"scheme": "IOB2", "asked_scheme": "auto", "ill_formed": {"train": 0, "dev": 0, "test": 0}}
    assert read.notes == []


def test_the_demo_corpus_keeps_its_fingerprints():
    """The keys of every store and run that exist depend on them."""
    demo = load_corpus(data_config("bundled"))
    assert demo.key == "94548f7b2aff1a442dc2ef1254f5b2f0ec41626a66a4182383cd4f2fac44d459"
    assert demo.text_fingerprint(True) == "d3fe51feaa2ec55429b32ddd4cf690a10b5b80c9337cfaf3e627d000073cf0c3"
    assert demo.text_fingerprint(False) == "fad106c3351a919f63e916df7b99c92dad1e827f1d37d224734076df637fcc9a"


@pytest.mark.skipif(not CONLL2003, reason="needs CONLL2003_DIR, a folder with eng.train, eng.testa and eng.testb")
def test_conll2003_has_its_standard_counts_in_every_scheme():
    files = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
    corpus = load_corpus(data_config(CONLL2003, **files))
    assert corpus.counts() == {
        "train": SplitCounts(946, 14041, 203621, spans=23499, span_words=34043, longest=113),
        "dev": SplitCounts(216, 3250, 51362, spans=5942, span_words=8603, longest=109),
        "test": SplitCounts(231, 3453, 46435, spans=5648, span_words=8112, longest=124),
    }
    assert corpus.about["scheme"] == "IOB1"
    assert corpus.key == "021c6c7bf378f2589e52bf67bff66fa4d11c3cb1fa1953687e0159dc1a41eda7"
    for name, split in corpus.splits.items():
        lines = (Path(CONLL2003) / files[name]).read_text().splitlines()
        raw: list[list[str]] = [[]]
        for line in lines:
            if not line or line.startswith("-DOCSTART-"):
                raw.append([])
            else:
                raw[-1].append(line.split(" ")[3])
        from seqeval.metrics.sequence_labeling import get_entities

        before = [get_entities(tags) for tags in raw if tags]
        assert before == [[(kind, a, b - 1) for kind, a, b in spans(tags)] for tags in split.tags]
    pos = load_corpus(data_config(CONLL2003, **files, task="tags", tag_column=1))
    assert pos.text_fingerprint(True) == corpus.text_fingerprint(True), "POS and NER share their features"


def test_fingerprint_tells_words_tags_bounds_and_documents_apart(tiny_corpus: Corpus):
    def changed(**parts) -> str:
        other = copy.deepcopy(tiny_corpus)
        for name, change in parts.items():
            change(getattr(other.splits["dev"], name))
        return dataclasses.replace(other).key

    def join_first_two(sentences: list[list[str]]) -> None:
        sentences[0] += sentences.pop(1)

    prints = {
        tiny_corpus.key,
        changed(words=lambda words: words[0].__setitem__(0, "other")),
        changed(tags=lambda tags: tags[0].__setitem__(0, "B-NEW")),
        changed(documents=lambda documents: documents.__setitem__(0, -1)),
        changed(words=join_first_two, tags=join_first_two),
    }
    assert len(prints) == 5
    assert tiny_corpus.text_fingerprint(True) != tiny_corpus.text_fingerprint(False)


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        ({}, {"dev": "nope"}, r"nope\b.*data\.dev=NAME.*data\.dev_fraction=0\.1"),
        ({}, {"train": "nope"}, r"nope\b.*dev\.conll, test\.conll, train\.conll.*data\.train=NAME"),
        ({}, {"train": "."}, r"data\.train=NAME"),
        ({}, {"dev": None}, r"dev split.*data\.dev=null data\.dev_fraction=0\.1"),
        ({}, {"dev_fraction": 0.1}, r"dev\.conll.*data\.dev=null"),
        ({"test": "the O\n"}, {}, r"test\.conll: .*\bO\b"),
        ({"test": "a O\nAna B-PER\n", "dev": "a O\nAna B-PER\n"}, {}, r"dev and test .*dev\.conll, .*test\.conll"),
        ({}, {"test": "train.conll"}, r"train and test .*train\.conll"),
        ({"dev": "x O\ny S-LOC\nz U-LOC\n"}, {}, r"dev\.conll:3 \('z'\): .*'U-LOC'.*BIOES.*S-LOC"),
        ({"dev": "x O\ny S-PER\n"}, {}, r"dev\.conll:2 \('y'\): .*'S-PER'.*BIOES"),
        ({"dev": "x O\n\ny LOC\n"}, {}, r"dev\.conll:3 \('y'\): .*'LOC'"),
        ({"dev": "x O\ny B-LOC\n"}, {"labels": ["O", "B-PER"]}, r"dev\.conll:2 \('y'\): .*'B-LOC'.*data\.labels"),
        ({"dev": "I O\ny I-PER\n"}, {"ill_formed": "error"}, r"\b1 tag.*IOB2 .*dev\.conll:2 \('y'\) I-PER"),
        ({"dev": "I O\ny B-PER\n"}, {"scheme": "BIOES", "ill_formed": "error"}, r"\b3 tag.*BIOES"),
        ({name: f"{name} NN\n" for name in ("train", "dev", "test")}, {}, r"train\.conll:1 .*'NN'"),
        ({"train": "a NN\n"}, {"task": "tags"}, r"\btrain\b.*\bNN\b"),
        ({"dev": "d 1\ne 2\n"}, {"task": "tags"}, r"\bdev\b.*\b1 \(1\), 2 \(1\).*dev\.conll:1 "),
        ({"train": "a B-PER\n"}, {"dev": None, "dev_fraction": 0.5}, r"\b1\b.*\bdev\b"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, texts: dict, changes: dict, message: str):
    with pytest.raises(UserError, match=message) as caught:
        load_corpus(data_config(write_splits(tmp_path, **texts), **changes))
    assert len(str(caught.value).splitlines()) <= 2


def test_paths_that_are_no_folder_are_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.path=/nowhere:"):
        load_corpus(data_config("/nowhere"))
    with pytest.raises(UserError, match=r"data\.path="):
        load_corpus(data_config(write_splits(tmp_path) / "train.conll"))
    with pytest.raises(UserError, match=r"data\.path.*data\.hub"):
        load_corpus(data_config(None))


def test_ill_formed_tags_are_counted_and_read_as_conlleval_does(tmp_path: Path):
    dev = "a O\nb I-PER\n\nc I-LOC\nd B-PER\ne I-LOC\n\nf I-PER\ng I-PER\n"
    corpus = load_corpus(data_config(write_splits(tmp_path, dev=dev, train="x B-PER\ny B-LOC\nz B-LOC\n")))
    assert corpus.about["scheme"] == "IOB2"
    assert corpus.about["ill_formed"] == {"train": 0, "dev": 4, "test": 0}
    assert corpus.splits["dev"].tags == [["O", "B-PER"], ["B-LOC", "B-PER", "B-LOC"], ["B-PER", "I-PER"]]
    assert len(corpus.notes) == 1
    assert "dev.conll:2 ('b') I-PER; " in corpus.notes[0]
    assert "dev.conll:6 ('e') I-LOC" in corpus.notes[0]
    assert "dev.conll:8" not in corpus.notes[0]


def test_types_that_only_test_has_are_said_and_recorded(tmp_path: Path):
    corpus = load_corpus(data_config(write_splits(tmp_path, test="x B-PER\ny B-NEW\nz I-NEW\n")))
    assert corpus.about["not_in_train"] == {"test": {"NEW": 1}}
    assert "test.conll:2 ('y')" in corpus.notes[0]


def test_tags_that_are_no_spans_stay_as_they_are(tmp_path: Path):
    texts = {"train": "a DT\nb NN\nc I-odd\n", "dev": "d NN\ne VB\n", "test": "f DT\n"}
    corpus = load_corpus(data_config(write_splits(tmp_path, **texts), task="tags"))
    assert corpus.splits["train"].tags == [["DT", "NN", "I-odd"]]
    assert corpus.counts()["train"] == SplitCounts(None, sentences=1, words=3, tags=3, longest=3)
    assert corpus.about == {"not_in_train": {"dev": {"VB": 1}}}
    assert "dev.conll:2 ('e')" in corpus.notes[0]


def test_dev_and_test_taken_from_train_are_always_the_same(tiny_corpus: Corpus, tmp_path: Path):
    folder = write_columns(tmp_path, tiny_corpus)
    cfg = data_config(folder, dev=None, test=None, dev_fraction=0.2, test_fraction=0.1)
    corpus = load_corpus(cfg)
    assert corpus.about["taken_from_train"] == {
        "dev": {"fraction": 0.2, "by": "document", "seed": 0, "sentences": 12},
        "test": {"fraction": 0.1, "by": "document", "seed": 0, "sentences": 6},
    }
    for name, number in {"dev": 12, "test": 6}.items():
        (note,) = [note for note in corpus.notes if f"data.{name}_fraction" in note]
        names(note, name, f"{number} sentences", "train", "by document")
    parts = corpus.splits
    assert [len(set(parts[name].documents or [])) for name in parts] == [21, 6, 3]
    together = sorted(
        (line, words, tags)
        for split in parts.values()
        for line, words, tags in zip(split.lines, split.words, split.tags, strict=True)
    )
    whole = tiny_corpus.splits["train"]
    assert [(words, tags) for _, words, tags in together] == list(zip(whole.words, whole.tags, strict=True))
    assert all(list(split.lines) == sorted(split.lines) for split in parts.values()), "in the order of the text"
    assert load_corpus(cfg).key == corpus.key
    assert list(parts["dev"].lines[:4]) == [83, 85, 110, 114], "in every release: which ones is part of what a run is"


def test_one_sentence_is_taken_at_least(tmp_path: Path):
    folder = write_splits(tmp_path, train="a B-PER\nx O\n\nb B-PER\nx O\n\nc B-PER\nx O\n")
    corpus = load_corpus(data_config(folder, dev=None, dev_fraction=0.01))
    assert [len(split.words) for split in corpus.splits.values()] == [2, 1, 1]


# Corpora of other shapes.


def same_spans(corpus: Corpus, expected: dict[str, list[tuple[list[str], list[Span]]]]) -> None:
    for name, sentences in expected.items():
        split = corpus.splits[name]
        found = list(zip(split.words, [list(spans(tags)) for tags in split.tags], strict=True))
        assert found == sentences


SENTENCES = {
    "train": [(["Ana", "Hill", "won"], [("PER", 0, 2)]), (["in", "Leeds", "Acme"], [("LOC", 1, 2), ("ORG", 2, 3)])],
    "dev": [(["Bo", "Li"], [("PER", 0, 1), ("PER", 1, 2)])],
    "test": [(["Hull"], [("LOC", 0, 1)]), (["#", "1"], [("ORG", 0, 2)])],
}


@pytest.mark.parametrize(
    ("line", "above", "scheme", "changes"),
    [
        ("en:{word}\t{tag}\n", "", "IOB2", {"word_prefix": "en:"}),
        ("{i}\t{word}\t{tag}\tO\n", "# x.de [2009]\n", "IOB1", {"word_column": 1, "tag_column": 2, "comment": "#"}),
        ("{word} {tag}\n", "", "BIOES", {}),
    ],
)
def test_columns_of_other_shapes_and_schemes_are_read(
    tmp_path: Path, line: str, above: str, scheme: str, changes: dict
):
    files = {}
    for name, sentences in SENTENCES.items():
        text = ""
        for words, found in sentences:
            rows = enumerate(zip(words, written(len(words), found, scheme), strict=True), 1)
            text += above + "".join(line.format(i=i, word=word, tag=tag) for i, (word, tag) in rows) + "\n"
        files[name] = f"{name}/part.txt"
        (tmp_path / name).mkdir()
        (tmp_path / files[name]).write_text(text)
    corpus = load_corpus(data_config(tmp_path, **files, **changes))
    same_spans(corpus, SENTENCES)
    assert corpus.about["scheme"] == scheme
    assert corpus.about.get("skipped") == ({"comments": {"train": 2, "dev": 1, "test": 2}} if above else None)


# Fuzz: what is well-formed comes back; what is damaged is refused, never lost.

# Without U+FEFF: where a line begins with it, it is a byte order mark and taken off, which has a test of its own.
# Without white space and invisible characters at the ends of words, which are taken off too.
CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters=" \t\n\r\ufeff")
VISIBLE = st.characters(
    blacklist_categories=["Cs", "Cf", "Zs", "Zl", "Zp"], blacklist_characters="\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85"
)
WORDS = (
    VISIBLE
    | st.builds("{}{}{}".format, VISIBLE, st.text(CHARACTERS, max_size=4), VISIBLE)
    | st.sampled_from(["\u00a0", "\u200b", "x\u200d"])
)
FUZZ = settings(
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def layouts(draw: st.DrawFn) -> dict:
    num_columns = draw(st.integers(2, 8))
    word, tag = draw(st.permutations(range(num_columns)))[:2]
    return {
        "num_columns": num_columns,
        "word_column": word - draw(st.sampled_from([0, num_columns])),
        "tag_column": tag - draw(st.sampled_from([0, num_columns])),
        "separator": draw(st.sampled_from(["auto", "whitespace", "tab", "space"])),
        "with_tabs": draw(st.booleans()),
        "word_prefix": draw(st.sampled_from([None, "en:"])),
        "comment": draw(st.sampled_from([None, "%%"])),
        "documents": draw(st.booleans()),
        "newline": draw(st.sampled_from(["\n", "\r\n"])),
        "bom": draw(st.booleans()),
        "gz": draw(st.booleans()),
        "last_newline": draw(st.booleans()),
        "scheme": draw(st.sampled_from(SCHEMES)),
        "empty_lines": draw(st.integers(1, 3)),
    }


def render(sentences: list[tuple[list[str], list[Span]]], layout: dict) -> bytes:
    """Column text; the other columns hold what must not matter."""
    separator = {"tab": "\t", "space": " ", "whitespace": " \t "}.get(layout["separator"])
    separator = separator or ("\t" if layout["with_tabs"] else "  ")
    lines: list[str] = []
    for number, (words, found) in enumerate(sentences):
        if layout["documents"] and number % 2 == 0:
            lines += ["-DOCSTART-" + separator + "O", ""]
        if layout["comment"]:
            lines.append("%% B-PER O that has more columns than any line of words")
        for word, tag in zip(words, written(len(words), found, layout["scheme"]), strict=True):
            columns = ["B-X"] * layout["num_columns"]
            columns[layout["word_column"]] = (layout["word_prefix"] or "") + word
            columns[layout["tag_column"]] = tag
            lines.append(separator.join(columns))
        lines += [""] * layout["empty_lines"]
    text = layout["newline"].join(lines).rstrip("\r\n") + (layout["newline"] if layout["last_newline"] else "")
    content = (b"\xef\xbb\xbf" if layout["bom"] else b"") + text.encode()
    return gzip.compress(content, 1) if layout["gz"] else content


def write_layout(folder: Path, train: list, layout: dict) -> dict:
    """Three files in a layout, and the settings to read them."""
    others = {"dev": [(["Bo", "Li"], [("PER", 0, 2)])], "test": [(["Hull"], [("LOC", 0, 1)])]}
    files = {}
    for name, sentences in {"train": train, **others}.items():
        files[name] = f"{name}.conll" + (".gz" if layout["gz"] else "")
        (folder / files[name]).write_bytes(render(sentences, layout))
    keys = ("word_column", "tag_column", "separator", "word_prefix", "comment")
    return files | {key: layout[key] for key in keys}


@FUZZ
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=6),
    layouts(),
    st.randoms(use_true_random=False),
)
def test_any_well_formed_corpus_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list, layout: dict, choose: random.Random
):
    folder = tmp_path_factory.mktemp("fuzz")
    train = [(words, random_spans(choose, len(words), layout["scheme"] != "IO")) for words in texts]
    train.append((["Ana", "won"], [("LOC", 0, 1), ("PER", 1, 2)]))
    if layout["word_column"] % layout["num_columns"] == 0 and layout["comment"] and not layout["word_prefix"]:
        train = [([word.replace("%", "c") for word in words], found) for words, found in train]
    corpus = load_corpus(data_config(folder, **write_layout(folder, train, layout)))
    same_spans(corpus, {"train": train})
    assert sum(corpus.about["ill_formed"].values()) == 0
    if layout["documents"]:
        assert corpus.splits["train"].documents == [1 + i // 2 for i in range(len(train))]
    if layout["comment"]:
        assert corpus.about["skipped"]["comments"]["train"] == len(train)


def test_a_damaged_file_is_refused_or_keeps_every_word(tmp_path_factory: pytest.TempPathFactory):
    kept = []

    @FUZZ
    @given(layouts(), st.randoms(use_true_random=False))
    def damaged(layout: dict, choose: random.Random) -> None:
        kept.append(keeps_every_word(tmp_path_factory.mktemp("fuzz"), layout, choose))

    damaged()
    assert kept.count(True) > 10
    assert kept.count(False) > 10


def keeps_every_word(folder: Path, layout: dict, choose: random.Random) -> bool:
    """Whether a file was read after some of its bytes were changed; if so, all that it has."""
    layout["gz"] = False
    train = [(["Ana", "won", "\u00a0", "in", "Leeds"], [("PER", 0, 1), ("LOC", 4, 5)]), (["Acme"], [("ORG", 0, 1)])] * 2
    cfg = data_config(folder, **write_layout(folder, train, layout))
    file = folder / "train.conll"
    content = bytearray(file.read_bytes())
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(content) + 1)
        kind = choose.choice(["insert", "delete", "cut", "repeat"])
        if kind == "insert":
            content[at:at] = choose.choice([b"\n", b"\r", b"\t", b" ", b"\x00", b"\xff", b"%%", b"-DOCSTART-", b"I-"])
        else:
            to = at + choose.randint(0, 12)
            content[at:to] = {"delete": b"", "cut": b"\n", "repeat": content[at:to] * 2}[kind]
    file.write_bytes(content)
    try:
        split = load_corpus(cfg).splits["train"]
    except UserError:
        return False
    lines = [line.strip(b" \t\r") for line in bytes(content).removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    lines = [line for line in lines if line]
    may_be_marks = sum(b"-DOCSTART-" in line for line in lines)
    skipped = split.skipped["comments"] + split.skipped["lines of CoNLL-U"]
    assert len(lines) - may_be_marks <= split.num_words + skipped <= len(lines)
    return True


def good_row(tagged: list[tuple[str, str | int]]) -> dict:
    return {"tokens": [word for word, _ in tagged], "ner_tags": [tag for _, tag in tagged], "document_id": "a"}


WORD_AND_TAG = st.lists(st.tuples(WORDS, st.sampled_from(["O", "B-PER", 0, 1])), max_size=3)
ODD_TAGS: st.SearchStrategy[list] = st.lists(
    st.sampled_from(["O", "B-PER", 0, 1, -1, None, 0.5, [], "", "_"]), max_size=3
)
ANY_ROW: st.SearchStrategy[dict] = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.none() | st.lists(WORDS | st.none() | st.integers(), max_size=3),
        "ner_tags": st.none() | ODD_TAGS,
        "document_id": st.sampled_from(["a", 1, None, [1], {}]),
    },
)


def test_rows_of_any_kind_are_refused_or_kept(tmp_path_factory: pytest.TempPathFactory):
    kept = []

    @FUZZ
    @given(
        st.lists(st.builds(good_row, WORD_AND_TAG) | st.builds(good_row, WORD_AND_TAG) | ANY_ROW, max_size=4),
        st.booleans(),
    )
    def any_kind(rows: list, documents: bool) -> None:
        kept.append(keeps_every_row(write_splits(tmp_path_factory.mktemp("fuzz")), rows, documents))

    any_kind()
    assert kept.count(True) > 10
    assert kept.count(False) > 10


def keeps_every_row(folder: Path, rows: list, documents: bool) -> bool:
    """Whether rows were read beside one that is good; if so, every one that has words."""
    rows.append({"tokens": ["Ana"], "ner_tags": ["B-PER"], "document_id": 2})
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    field = "document_id" if documents else None
    try:
        corpus = load_corpus(data_config(folder, train="train.jsonl", labels=["O", "B-PER"], document_field=field))
    except UserError:
        return False
    split: Split = corpus.splits["train"]
    assert len(split.words) + split.skipped["empty sentences"] == len(rows)
    assert split.words == [row["tokens"] for row in rows if row["tokens"]]
    return len(rows) > 1


def test_the_work_per_word_does_not_grow_with_the_corpus(tmp_path: Path):
    def calls_a_word(num_sentences: int) -> float:
        made = Corpus("made", {name: make_split(num_sentences, seed) for seed, name in enumerate(files)})
        cfg = data_config(write_columns(tmp_path / str(num_sentences), made))
        return num_calls(lambda: load_corpus(cfg)) / sum(split.num_words for split in made.splits.values())

    files = ("train", "dev", "test")
    assert calls_a_word(2000) == pytest.approx(calls_a_word(200), rel=0.1)
