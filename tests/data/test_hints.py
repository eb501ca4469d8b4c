"""Messages about odd files, followed as a user would: the settings they name are typed until the corpus is read."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import datasets
import pytest
from support.facts import names

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.settings import configs_of

FILES = {"train": "won", "dev": "lost", "test": "met"}  # and the word that stands for @ in each
TYPED = re.compile(r"""data\.\w+=(?:'[^']*'|[^\s,;:)']*[^\s.,;:)'])""")
ENGLISH, GERMAN = [["EU", "won"], ["Rome"]], [["EU", "won", "Rom"], ["EU"]]


def follow(folder: Path, text: str | bytes, *settings: str, ending: str = "txt") -> tuple[Corpus | str, list[str]]:
    """Returns the corpus, or the message that names nothing more to type, and the settings that were typed."""
    for name, word in FILES.items():
        content = text if isinstance(text, bytes) else text.replace("@", word).encode()
        (folder / f"{name}.{ending}").write_bytes(content)
    files = [f"data.{name}={name}.{ending}" for name in FILES]
    typed: dict[str, str] = {}
    for _ in range(4):
        words = [f"{name}={value}" for name, value in typed.items()]
        try:
            cfg = configs_of(["data=columns", f"data.path={folder}", *files, *settings, *words])[0][0]
            return load_corpus(cfg.data), words
        except UserError as error:
            message = str(error)
        found = dict(shlex.split(one)[0].split("=", 1) for one in TYPED.findall(message))
        if not found:
            return message, words
        assert not found.items() <= typed.items(), f"again: {message}"
        typed |= found
    raise AssertionError(f"not read with {typed}: {message}")


def refused(folder: Path, *settings: str) -> str:
    with pytest.raises(UserError) as caught:
        load_corpus(configs_of(["data=columns", f"data.path={folder}", *settings])[0][0].data)
    return str(caught.value)


KAGGLE = "Sentence #\tWord\tPOS\tTag\nSentence: 1\tEU\tNNS\tB-ORG\n\t@\tIN\tO\nSentence: 2\tRome\tNNP\tB-geo\n"
HIPE = "TOKEN\tNE-COARSE-LIT\tMISC\n{}# language = de\nEU\tB-org\t_\n@\tO\t_\nRom\tB-loc\tx\n\n{}EU\tB-org\t_\n"
TABS = "EU\tB-ORG\n@\tO\n\nRome\tB-LOC\n"
CONLLU = "# text = x\n1\tEU\tEU\tPROPN\tNNP\t_\t0\troot\t_\t_\n2\t@\t@\tVERB\tVBD\t_\t1\tobj\t_\t_\n\n"
CONLLU += "1\tRome\tRome\tPROPN\tNNP\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "settings", "words", "typed"),
    [
        ("\n# id 1 domain=en\nEU B-ORG _ B-GRP\n@ _ _ O\n\n# id 2 domain=en\n# _ _ O\n", [], None, ["# id"]),
        ("\n# id 1\tdomain=en\nEU _ _ B-GRP\n@ _ _ O\n\n# id 2\tdomain=en\nRome _ _ O\n", [], ENGLISH, ["#"]),
        ("# id 1 a\nEU B-X\n@ O\n\n# O\n", ['data.comment="#"'], None, ["# id"]),
        (HIPE.format("", ""), ["data.tag_column=1"], GERMAN, ["#", "TOKEN"]),
        (HIPE.format("", ""), [], GERMAN, ["#", "TOKEN", "tag_column=1"]),
        (HIPE.format("", "").replace("# language = de\n", ""), ["data.tag_column=1"], GERMAN, ["TOKEN"]),
        (KAGGLE, [], ENGLISH, ["word_column=1", "Sentence #"]),
        (KAGGLE.replace("\t", ","), [], ENGLISH, ["separator=comma", "word_column=1", "Sentence #"]),
        (TABS.replace("\t", ","), [], ENGLISH, ["separator=comma"]),
        (
            re.sub(r"([^\t\n]*)(\t|\n)", r'"\1"\2', KAGGLE).replace("\t", ","),
            [],
            ENGLISH,
            ["separator=comma", "Sentence #"],
        ),
        ('"EU, ""x""",B-ORG\n@,O\n,\n",",O\n', [], [['EU, "x"', "won"], [","]], ["separator=comma"]),
        ("word,tag\n" + TABS.replace("\t", ","), [], ENGLISH, ["separator=comma", "comment=word"]),
        ("token\tner\n" + TABS, [], ENGLISH, ["comment=token"]),
        (TABS.replace("\t", "\t\t", 1), [], ENGLISH, ["separator=whitespace"]),
        (TABS.replace("\t", "  ", 1).replace("\t", " "), ["data.separator=space"], ENGLISH, ["separator=whitespace"]),
        ("1\tEU\tB-ORG\tO\n2\t@\tO\tO\n\n1\tRome\tB-LOC\tO\n", [], ENGLISH, ["word_column=1", "tag_column=2"]),
        ("1\tEU\tB-ORG\t_\n2\t@\tO\t_\n\n1\tRome\tB-LOC\t_\n", [], ENGLISH, ["word_column=1", "tag_column=2"]),
        ("B-ORG\tEU\nO\t@\n\nB-LOC\tRome\n", [], ENGLISH, ["word_column=1", "tag_column=0"]),
        ("EU\tB-ORG\tO\n@\tO\tO\n\nRome\tB-LOC\tO\n", [], ENGLISH, ["tag_column=1"]),
        (TABS, ["data.tag_column=3"], ENGLISH, ["tag_column=1"]),
        (TABS, ["data.word_column=1"], ENGLISH, ["word_column=0"]),
        (TABS, ["data.labels=[O,B-PER]"], ENGLISH, ["labels=null"]),
        (TABS.replace("B-", "U-"), ["data.scheme=BIOES"], ENGLISH, ["scheme=auto"]),
        ("% by x\n" + TABS.replace("\t", " "), [], ENGLISH, ["comment=%"]),
        ("EU\tNN\n@\tVB\n\nRome\tNN\n", [], ENGLISH, ["task=tags"]),
        ("# x\n1\tEU\tB-X\n2-3\tdon't\tO\n2\tdo\tO\n3\t@\tO\n", [], [["EU", "do", "won"]], ["#", "word_column=1"]),
    ],
)
def test_what_a_message_says_reads_the_file(
    tmp_path: Path, text: str, settings: list[str], words: list[list[str]] | None, typed: list[str]
):
    corpus, found = follow(tmp_path, text, *settings)
    assert isinstance(corpus, Corpus), corpus
    assert list(corpus.splits["train"].words) == (words or [["EU", "won"], ["#"]])
    names(found, *typed)


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("### PMID:1\n{}### PMID:2\nx\tO\n", "### PMID"),
        ("###MEDLINE:95\n\n{}###MEDLINE:96\n\nx\tO\n", "###MEDLINE"),
        ("### 1\n{}### 2\nx\tO\n", "###"),
        ("# newdoc id = a\n# text = x\n{}# newdoc id = b\n# text = y\nx\tO\n", "# newdoc"),
        ("# hipe2022:document_id = a\n# language = de\n{}# hipe2022:document_id = b\nx\tO\n", "# hipe2022:document_id"),
        (
            "#begin document (a); part 000\n{}#end document\n#begin document (b)\nx\tO\n#end document\n",
            "#begin document",
        ),
        ("=== Article 1 ===\n{}=== Article 2 ===\nx\tO\n", "=== Article"),
        ("<doc id=1>\n{}</doc>\n<doc id=2>\nx\tO\n</doc>\n", "<doc"),
    ],
)
def test_lines_that_look_like_document_boundaries_are_offered_as_such(tmp_path: Path, text: str, marker: str):
    corpus, found = follow(tmp_path, text.format(TABS + "\n"))
    assert isinstance(corpus, Corpus), corpus
    assert f'data.document_marker="{marker}"' in found
    assert corpus.splits["train"].documents == [1, 1, 2]


def test_a_hint_that_loses_documents_says_so(tmp_path: Path):
    for comment in ("# made by x\n", "# newdoc id = a\n# text = x\n", "token\ttag\n"):
        for name, word in FILES.items():
            (tmp_path / f"{name}.txt").write_text(comment + TABS.replace("@", word))
        assert ("without documents" in refused(tmp_path)) == ("made" in comment)


def lines_of(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


PAIR = [{"sentence1": f"{n} a man @", "sentence2": "a dog {n} runs"} for n in range(4)]


@pytest.mark.parametrize(
    ("ending", "text", "facts"),
    [
        ("txt", TABS.replace("\tO", "\t-"), []),
        ("txt", TABS.replace("\tO", "\tOUT"), []),
        ("txt", TABS.replace("\tO", "\t0"), []),
        ("txt", TABS.replace("\tO", "\t_"), []),
        ("txt", TABS.replace("\t", ";"), []),
        ("txt", TABS.replace("\t", "|"), []),
        ("txt", TABS.replace("@\tO", "@"), []),
        ("txt", TABS.replace("EU\tB-ORG", "EU"), []),
        ("txt", TABS.replace("B-ORG", "B_ORG"), []),
        ("txt", TABS.replace("B-", "B_"), []),
        ("txt", TABS.replace("-", "/"), []),
        ("txt", TABS.replace("B-ORG", "ORG-B").replace("B-LOC", "LOC-B"), []),
        ("txt", TABS.replace("B-ORG", "(ORG*)").replace("B-LOC", "(LOC*)").replace("O\n", "*\n"), []),
        ("txt", TABS.replace("B-ORG", "B"), []),
        ("txt", TABS.replace("@", "@\tO\n...", 1).replace("...\tO", "..."), []),
        ("txt", TABS.replace("O\n", "O\n.\n"), []),
        ("txt", TABS.encode("utf-16"), []),
        ("txt", TABS.replace("EU", "Müller").encode("latin-1"), []),
        ("txt", "", []),
        ("txt", "\n\n", []),
        ("txt", "T1\tORG 0 2\tEU\nT2\tLOC 5 9\tRome @\n", ["brat"]),
        ("txt", "EU|B-ORG @|O\n", ["word"]),
        ("txt", "EU/B-ORG @/O\n\nRome/B-LOC @/O\n", ["word"]),
        ("spacy", b"\x78\x9c\xff\xfe", ["DocBin", "train.spacy"]),
        ("csv", "tokens,ner_tags\n\"['EU', '@']\",\"['B-ORG', 'O']\"\n", ["lists"]),
        ("csv", 'tokens,ner_tags\n"[""EU"", ""@""]","[""B-ORG"", ""O""]"\n', ["lists"]),
        ("jsonl", lines_of({"tokens": "['EU', '@']", "ner_tags": "['B-ORG', 'O']"}), ["lists"]),
        ("jsonl", lines_of({"text": "EU @", "tags": "B-ORG O"}), ["tags"]),
        ("jsonl", lines_of(*({"text": f"{n} @", "tags": tags} for n, tags in enumerate(["B-X O", "O O"]))), ["tags"]),
        ("json", json.dumps([{"spans": []}, {"spans": [{"start": 0, "end": 2}]}], indent=1), [2, 5, "spans"]),
        ("json", json.dumps([{"data": {"text": "@"}, "annotations": [{"start": 0}]}]), [1, "Label Studio"]),
        ("jsonl", lines_of(*(row | {"score": 2.5} for row in PAIR)), [1]),
        ("jsonl", lines_of(*(row | {"label": "same"} for row in PAIR)), [1]),
        ("jsonl", lines_of(*({"text": f"a man {n} @", "id": f"no{n}"} for n in range(4))), [1]),
        ("jsonl", lines_of({"\ud800": ["EU", "@"], "ner_tags": ["B-ORG", "O"]}), [1, r"\ud800"]),
        ("jsonl", lines_of({"tokens": ["EU\ud800", "@"], "ner_tags": ["B-ORG", "O"]}), [1, r"\ud800"]),
        ("jsonl", lines_of({"tokens": ["EU", "@"], "ner_tags": ["B-\ud800", "O"]}), [1, r"\ud800"]),
        ("jsonl", lines_of({"words": ["EU", "@"], "spans": [[0, 1, "ORG"]]}), [1, "spans"]),
        ("jsonl", lines_of({"tokens": ["EU", None], "ner_tags": ["O", "O"]}), [1, "word 2 of 'tokens' is null"]),
    ],
)
def test_what_no_setting_reads_has_no_hint_but_may_be_named(
    tmp_path: Path, ending: str, text: str | bytes, facts: list[object]
):
    message, typed = follow(tmp_path, text, ending=ending)
    assert isinstance(message, str), "it was read"
    assert typed == []
    place = f"train.{ending}"
    names(message, *(f"{place}:{fact}" if isinstance(fact, int) else fact for fact in facts or [place]))
    assert message.encode()
    assert len(message.partition("\n")[0]) < 500 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("ending", "text", "facts"),
    [
        ("txt", f"__label__POS @ {'film ' * 100}\n__label__NEG no\n", ["train.txt:1", "TAB", "fastText"]),
        ("tsv", "".join(f"a {n} film @\t{n % 2}\n" for n in range(8)), ["train.tsv", "label", "first", 8, 2]),
        ("jsonl", lines_of({"text": "half \ud800", "label": "x"}), ["train.jsonl:1"]),
    ],
)
def test_of_texts_that_no_setting_reads_the_format_is_named(
    tmp_path: Path, ending: str, text: str, facts: list[object]
):
    message, typed = follow(tmp_path, text, "data=sentences", ending=ending)
    names(message, *facts)
    assert not typed
    assert len(str(message)) < 500 + len(str(tmp_path))


SENTENCES = (
    [("EU", "B-ORG"), ("@", "O"), ("in", "O")],
    [("Rome", "B-LOC"), ("is", "O")],
    [("Bonn", "B-LOC"), ("so", "O")],
)
ROWS = [(i, word, tag) for i, sentence in enumerate(SENTENCES) for word, tag in sentence]
FIRSTS = [i and ROWS[i - 1][0] == ROWS[i][0] for i in range(len(ROWS))]


def table(header: str, line: str, end: str = "\n") -> str:
    """A line per word: {i} is its sentence, {first} the same in a sentence's first line alone, {row} the line."""
    lines = [
        line.format(i=i, word=word, tag=tag, first="" if FIRSTS[row] else f"Sentence: {i + 1}", row=row)
        for row, (i, word, tag) in enumerate(ROWS)
    ]
    return "".join(f"{one}{end}" for one in [header, *lines] if one)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (table("sentence_id,words,labels", "{i},{word},{tag}"), 0),
        (table("words,labels,sentence_id", "{word},{tag},{i}"), 2),
        (table("words\tlabels\tsentence_id", "{word}\t{tag}\ttrain-{i}"), 2),
        (table(",Sentence #,Word,POS,Tag", "{row},{first},{word},NN,{tag}"), 1),
        (table("Unnamed: 0,Sentence #,Word,Tag", "{row},Sentence: {i},{word},{tag}"), 1),
        (table("", "{i}\t{word}\t{tag}"), 0),
        (table("doc_id,sent_id,word,tag", "d1,{i},{word},{tag}"), 1),
        (table("\ufeffid\ttoken\tner", "{i}\t{word}\t{tag}", "\r\n"), 0),
        (table("tag,word,sid", '{tag},"{word}",{i}'), 2),
    ],
)
def test_numbers_and_names_of_sentences_are_found_in_any_column(tmp_path: Path, text: str, column: int):
    corpus, typed = follow(tmp_path, text, ending="csv")
    assert isinstance(corpus, Corpus), corpus
    assert f"data.sentence_column={column}" in typed
    train = corpus.splits["train"]
    assert list(train.words) == [["EU", "won", "in"], ["Rome", "is"], ["Bonn", "so"]]
    assert list(train.tags) == [["B-ORG", "O", "O"], ["B-LOC", "O"], ["B-LOC", "O"]]


def test_a_column_of_sentences_that_is_not_read_is_warned_of(tmp_path: Path):
    text = table("", "{i}\t{word}\t{tag}")
    corpus, _ = follow(tmp_path, text, "data.word_column=1")
    assert isinstance(corpus, Corpus)
    (warning,) = [note for note in corpus.notes if note.startswith("WARNING")]
    names(warning, "column 0", 3, 1, "data.sentence_column=0")
    for column in ("0", "-3"):
        corpus, _ = follow(tmp_path, text, "data.word_column=1", f"data.sentence_column={column}")
        assert isinstance(corpus, Corpus)
        assert (corpus.splits["train"].lengths, corpus.notes) == ([3, 2, 2], [])


def test_numbers_of_words_are_tags_if_they_are_no_spans(tmp_path: Path):
    text = lines_of({"tokens": ["EU", "@"], "ner_tags": [1, 0]})
    corpus, typed = follow(tmp_path, text, ending="jsonl")
    assert isinstance(corpus, Corpus), corpus
    assert (typed, list(corpus.splits["train"].tags)) == (["data.task=tags"], [["1", "0"]])
    names(refused(tmp_path, *(f"data.{name}={name}.jsonl" for name in FILES)), "train.jsonl:1", "data.labels")


FILMS = "".join(f"a {word} film {n} @,{label}\n" for n in range(4) for word, label in (("good", "pos"), ("bad", "neg")))
FILMS = "review,sentiment\n" + FILMS
REVIEW = ["data.tags_field=sentiment", "data.words_field=review"]


@pytest.mark.parametrize(
    ("ending", "text", "settings", "typed", "words"),
    [
        ("tsv", FILMS.replace(",", "\t").replace("\n", "\r\n"), ["data=sentences"], REVIEW, "a good film 0 won"),
        ("tsv", FILMS, ["data=sentences"], REVIEW, "a good film 0 won"),
        ("csv", 'label,text\npos,"EU, @"\nneg,bad @\n', ["data=sentences"], [], "EU , won"),
        ("jsonl", lines_of({"text": "EU, @", "label": "pos"}, {"text": "bad @", "label": "neg"}), [], [], "EU , won"),
    ],
)
def test_texts_and_their_labels_are_found(
    tmp_path: Path, ending: str, text: str, settings: list[str], typed: list[str], words: str
):
    corpus, found = follow(tmp_path, text, *settings, ending=ending)
    assert isinstance(corpus, Corpus), corpus
    names(found, *typed)
    assert corpus.splits["train"].words[0] == words.split()
    assert corpus.splits["train"].tags[:2] == [["pos"], ["neg"]]


@pytest.mark.parametrize(
    ("header", "label", "text"),
    [("Quality\tString", "Quality", "String"), ("class\tid\tthe text", "class", "the text")],
)
def test_a_first_line_with_a_label_of_its_own_is_warned_of(tmp_path: Path, header: str, label: str, text: str):
    between = "\t7" * (header.count("\t") - 1)
    lines = [f"{n % 2}{between}\ta @ text {n}" for n in range(6)]
    corpus, _ = follow(tmp_path, "\n".join([header, *lines]), "data=sentences", ending="tsv")
    assert isinstance(corpus, Corpus)
    (warning,) = [note for note in corpus.notes if note.startswith("WARNING")]
    names(warning, label)
    typed = [shlex.split(one)[0] for one in TYPED.findall(warning)]
    corpus, _ = follow(tmp_path, "\n".join([header, *lines]), "data=sentences", *typed, ending="tsv")
    assert isinstance(corpus, Corpus)
    assert corpus.splits["train"].words[0] == ["a", "won", "text", "0"]
    assert list(corpus.splits["train"].tags)[:2] == [["0"], ["1"]]
    assert not [note for note in corpus.notes if note.startswith("WARNING")]


def test_the_mistakes_of_all_splits_come_at_once(tmp_path: Path):
    for name in FILES:
        (tmp_path / f"{name}.conll").write_text(f"{name} O\nx B-X y\n\nz _\n" + "a b c\n" * (12 * (name == "train")))
    message = refused(tmp_path, *(f"data.{name}={name}.conll" for name in FILES))
    names(message, *(f"{name}.conll:{line}" for name in FILES for line in (2, 4 + (name == "train"))))
    assert message.count("train.conll") == 10
    message = refused(tmp_path, *(f"data.{name}={name}.no" for name in FILES))
    names(message, *(f"{name}.no" for name in FILES), "data.train=NAME", "data.dev=NAME", "data.test=NAME")
    assert message.count("dev.conll, test.conll, train.conll") == 1


@pytest.mark.parametrize(
    ("row", "typed"),
    [
        ({"id": "7", "words": ["EU", "@"], "pos": ["NN", "VB"], "labels": ["B-ORG", "O"]}, ["words", "labels"]),
        ({"tokens": ["EU", "@"], "upos": ["NN", "VB"]}, ["upos", "task=tags"]),
        ([{"tokens": ["EU", "@"], "ner_tags": ["B-ORG", "O"]}], []),
        ({"tokenized_text": ["EU", "@"], "ner": [[0, 0, "ORG"], [1, 1, "X"]]}, ["tokenized_text", "ner"]),
        ({"words": ["EU", "@"], "spans": [[0, 0, "ORG"]]}, ["words", "spans"]),
    ],
)
def test_fields_are_found(tmp_path: Path, row: object, typed: list[str]):
    corpus, found = follow(tmp_path, json.dumps(row) + "\n", ending="jsonl")
    assert isinstance(corpus, Corpus), corpus
    assert corpus.splits["train"].words == [["EU", "won"]]
    names(found, *typed)


@pytest.mark.parametrize(
    "found",
    [
        ["a.train", "a.testa", "a.testb"],
        ["train.a", "devel.a", "test.a", "train.x"],
        ["train", "validation", "test"],
    ],
)
def test_files_of_other_names_are_found(tmp_path: Path, found: list[str]):
    for name, word in zip(found, ["won", "lost", "met", "x"], strict=False):
        rows = datasets.Dataset.from_list([{"tokens": ["EU", word], "ner_tags": ["B-ORG", "O"]}])
        if found[0] == "train":
            rows.save_to_disk(str(tmp_path / name))
        else:
            (tmp_path / name).write_text(TABS.replace("@", word))
    names(refused(tmp_path), *(f"data.{split}={name}" for split, name in zip(FILES, found, strict=False)))


def test_prefixes_alone_are_read_with_a_note(tmp_path: Path):
    text = "renal\tB\nfailure\tI\n@\tO\n\nflu\tB\n"
    for one in (text, text.replace("\tI", "\tE").replace("flu\tB", "flu\tS")):
        corpus, typed = follow(tmp_path, one)
        assert isinstance(corpus, Corpus), corpus
        assert list(corpus.splits["train"].tags) == [["B-_", "I-_", "O"], ["B-_"]]
        assert len(corpus.notes) == 1
        assert not typed
