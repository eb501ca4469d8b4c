"""Tasks of sentences that a tagged text gives of itself: length, swapped words, a replaced word, a type it names."""

from __future__ import annotations

import functools
import random
import string
from collections import Counter
from pathlib import Path

import pytest
from support.facts import names

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.task import SENTENCE
from probe.settings import config_of

ALTERED = {"bigram_shift": "swapped", "odd_word": "replaced"}


@functools.cache
def demo(derive: str | None, preset: str = "demo") -> Corpus:
    return load_corpus(config_of([f"data={preset}", *([f"data.derive={derive}"] if derive else [])]).data)


def lower(words: list[str]) -> str:
    return " ".join(words).lower()


def labels(corpus: Corpus, split: str) -> list[str]:
    return [label for (label,) in corpus.splits[split].tags]


def test_length_has_sentevals_bins_and_keeps_the_text():
    corpus, source = demo("length"), demo(None)
    assert corpus.task is SENTENCE
    assert corpus.text_fingerprint(True) == source.text_fingerprint(True), "one extraction serves both"
    assert corpus.splits["dev"].documents == source.splits["dev"].documents
    bins: dict[str, set[int]] = {}
    for words, label in zip(corpus.splits["train"].words, labels(corpus, "train"), strict=True):
        bins.setdefault(label, set()).add(len(words))
    bounds = sorted((min(lengths), max(lengths)) for lengths in bins.values())
    assert [high for _, high in bounds[:-1]] == [8, 12, 16, 20, 25]
    assert [low for low, _ in bounds[1:]] == [9, 13, 17, 21, 26]


def test_a_sentence_names_a_type_or_none():
    corpus, source = demo("has:PER"), demo(None)
    assert corpus.text_fingerprint(True) == source.text_fingerprint(True)
    expected = ["PER" if "B-PER" in tags else "none" for tags in source.splits["test"].tags]
    assert labels(corpus, "test") == expected


@pytest.mark.parametrize("derive", ALTERED)
def test_half_of_the_sentences_are_altered_in_one_place(derive: str):
    corpus, source = demo(derive), demo(None)
    for name, split in corpus.splits.items():
        at_line = dict(zip(source.splits[name].lines, source.splits[name].words, strict=True))
        share = Counter(labels(corpus, name))[ALTERED[derive]] / len(split.words)
        assert 0.45 < share < 0.55, name
        for line, words, label in zip(split.lines, split.words, labels(corpus, name), strict=True):
            original = at_line[line]
            changed = [i for i, (old, new) in enumerate(zip(original, words, strict=True)) if old != new]
            if label == "original":
                assert not changed
            elif derive == "odd_word":
                assert len(changed) == 1
            else:
                first, second = changed
                assert second == first + 1
                assert (words[first], words[second]) == (original[second], original[first])


@pytest.mark.parametrize("derive", ALTERED)
def test_no_sentence_is_in_two_splits_or_twice_altered_or_not(derive: str, tmp_path: Path):
    """Files in which every split repeats sentences of the others, and one that is another with two words swapped."""
    choose = random.Random(0)
    vocabulary = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
    sentences = [choose.sample(vocabulary, choose.choice((6, 10))) for _ in range(150)]
    sentences += [[words[1], words[0], *words[2:]] for words in sentences[:30]]
    sentences += [[word.title() for word in words] for words in sentences[:30]]
    for name in ("train", "dev", "test"):
        chosen = choose.choices(sentences, k=200)
        text = "".join("".join(f"{word} O\n" for word in words) + "\n" for words in chosen)
        (tmp_path / f"{name}.txt").write_text(text)
    typed = ["data=columns", f"data.path={tmp_path}", f"data.derive={derive}"]
    corpus = load_corpus(config_of(typed).data)
    by_line = {
        name: dict(zip(split.lines, split.words, strict=True))
        for name, split in load_corpus(config_of([*typed[:2], "data.derive=length"]).data).splits.items()
    }
    used, texts = [], []
    for name, split in corpus.splits.items():
        used += [lower(by_line[name][line]) for line in split.lines]
        texts += [lower(words) for words in split.words]
    assert len(used) == len(set(used)), "each sentence is used once, as it is or altered"
    assert len(texts) == len(set(texts))
    unaltered = {lower(words) for split in by_line.values() for words in split.values()}
    altered = [
        lower(words)
        for name, split in corpus.splits.items()
        for words, label in zip(split.words, labels(corpus, name), strict=True)
        if label != "original"
    ]
    assert not unaltered & set(altered), "an altered sentence is no sentence of the text"
    (before,) = [counts for what, counts in corpus.about["skipped"].items() if "before" in what]
    assert before["test"] > 0


def test_a_replacement_has_the_same_tag_case_and_frequency_and_is_of_train(tmp_path: Path):
    source = demo(None)
    corpus = demo("odd_word")
    frequent = Counter(
        pair
        for words, tags in zip(source.splits["train"].words, source.splits["train"].tags, strict=True)
        for pair in zip(words, tags, strict=True)
    )
    for name, split in corpus.splits.items():
        rows = zip(source.splits[name].lines, source.splits[name].words, source.splits[name].tags, strict=True)
        at_line = {line: (words, tags) for line, words, tags in rows}
        for line, words in zip(split.lines, split.words, strict=True):
            original, tags = at_line[line]
            for old, new, tag in zip(original, words, tags, strict=True):
                if old != new:
                    assert tag == "O", "names are not replaced"
                    assert frequent[new, tag].bit_length() == frequent[old, tag].bit_length() > 0
                    assert (old.istitle(), old.isupper()) == (new.istitle(), new.isupper())


def test_with_parts_of_speech_only_nouns_and_verbs_are_replaced(tmp_path: Path):
    choose = random.Random(1)
    kinds = {"NN": "stone house", "NNP": "Ana Bo", "DT": "the a", "VBD": "saw met"}
    words = {
        kind: [f"{word}{c}" for word in some.split() for c in string.ascii_lowercase] for kind, some in kinds.items()
    }
    for name in ("train", "dev", "test"):
        lines = []
        for _ in range(200):
            tags = ["NNP", "VBD", "DT", "NN", "DT", "NN"]
            lines += [f"{choose.choice(words[tag])} {tag}" for tag in tags] + [""]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    typed = ["data=columns", f"data.path={tmp_path}"]
    corpus = load_corpus(config_of([*typed, "data.derive=odd_word"]).data)
    source = load_corpus(config_of([*typed, "data.task=tags"]).data)
    dev, made = source.splits["dev"], corpus.splits["dev"]
    rows = zip(dev.lines, dev.words, dev.tags, strict=True)
    at_line = {line: (old, tags) for line, old, tags in rows}
    replaced = set()
    for line, new in zip(made.lines, made.words, strict=True):
        old, tags = at_line[line]
        replaced |= {tag for a, b, tag in zip(old, new, tags, strict=True) if a != b}
    assert replaced == {"NN", "VBD"}


def test_the_draws_of_the_demo_do_not_change_between_versions():
    """Else committed results would be of another text under the same settings."""
    made = {derive: demo(derive).fingerprint()[:12] for derive in ("length", "bigram_shift", "odd_word", "has:PER")}
    assert made == {
        "length": "2e0f02b4d4fb",
        "bigram_shift": "9f4fadf5016e",
        "odd_word": "67eb1eb05fe4",
        "has:PER": "2fae9ae0c7ce",
    }


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        (["data.derive=size"], ["data.derive", "size", "length", "odd_word"]),
        (["data.derive=has"], ["data.derive", "has"]),
        (["data.derive=has:CITY"], ["CITY", "PER", "LOC"]),
        (["data.derive=length", "data.task=pairs"], ["data.derive=length", "pairs"]),
    ],
)
def test_what_cannot_be_made_is_refused(typed: list[str], facts: list[str]):
    with pytest.raises(UserError) as error:
        load_corpus(config_of(["data=demo", *typed]).data)
    names(str(error.value), *facts)


def test_parts_of_speech_have_no_spans_and_other_tasks_are_named(tmp_path: Path):
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.conll").write_text(f"{name} NN\nsleeps VBZ\n\n")
    typed = ["data=columns", f"data.path={tmp_path}", *(f"data.{n}={n}.conll" for n in ("train", "dev", "test"))]
    with pytest.raises(UserError) as error:
        load_corpus(config_of([*typed, "data.derive=has:NN"]).data)
    names(str(error.value), "train.conll:1", "data.derive=has:NN", "length", "bigram_shift", "odd_word")
    assert "data.task=tags" not in str(error.value)


@pytest.mark.parametrize(
    ("preset", "labels_of"),
    [("demo_person", 2), ("demo_bigram_shift", 2), ("demo_odd_word", 2), ("demo_length", 6)],
)
def test_the_demo_has_a_preset_of_each(preset: str, labels_of: int):
    corpus = demo(None, preset)
    counts = corpus.counts()
    assert corpus.task is SENTENCE
    assert counts["train"].tags == labels_of
    assert 1500 < counts["train"].sentences <= 1600
    assert corpus.name.startswith("demo ")


def test_the_tasks_of_conll2003_are_made_of_its_columns(tmp_path: Path):
    lines = {"eng.train": "Ana NNP I-NP I-PER\nsaw VBD I-VP O\n\n", "eng.testa": "Bo NNP I-NP O\n\n"}
    lines["eng.train"] += "It PRP I-NP O\n" + 9 * "is VBZ I-VP O\n" + "\n"
    lines["eng.testb"] = lines["eng.testa"].replace("Bo", "Di")
    for file, text in lines.items():
        (tmp_path / file).write_text(text)
    found = {}
    for preset in ("conll2003_length", "conll2003_person"):
        corpus = demo_of(preset, tmp_path)
        found[preset] = labels(corpus, "train")
    assert found == {"conll2003_length": ["up to 8", "9-12"], "conll2003_person": ["PER", "none"]}
    assert config_of(["data=conll2003_odd_word"]).data.tags_field == "pos_tags"


def demo_of(preset: str, folder: Path) -> Corpus:
    return load_corpus(config_of([f"data={preset}", f"data.path={folder}"]).data)
