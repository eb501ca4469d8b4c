"""The bundled corpus: its counts, its tags, and that names need their context."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from support.inputs import data_config

from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split, SplitCounts
from probe.scoring.tags import spans
from probe.settings import config_of


@pytest.fixture(scope="module")
def demo() -> Corpus:
    return load_corpus(data_config("bundled"))


def names(split: Split) -> Counter[tuple[str, str]]:
    return Counter(
        (" ".join(words[start:end]), kind)
        for words, tags in zip(split.words, split.tags, strict=True)
        for kind, start, end in spans(tags)
    )


def test_counts(demo: Corpus):
    assert demo.counts() == {
        "train": SplitCounts(150, 1600, 30934, spans=2451, span_words=3544, longest=37),
        "dev": SplitCounts(36, 372, 6622, spans=533, span_words=773, longest=34),
        "test": SplitCounts(34, 357, 6505, spans=494, span_words=747, longest=40),
    }


def test_tags_are_iob2_over_four_types_and_each_type_is_common(demo: Corpus):
    for split in demo.splits.values():
        for tags in split.tags:
            for before, tag in zip(["O", *tags], tags, strict=False):
                assert re.fullmatch(r"O|[BI]-(PER|ORG|LOC|MISC)", tag)
                if tag.startswith("I-"):
                    assert before[2:] == tag[2:], "I- must continue a span of its type"
        kinds = Counter(kind for _, kind in names(split).elements())
        assert all(count / kinds.total() > 0.1 for count in kinds.values())
        assert set(kinds) == {"PER", "ORG", "LOC", "MISC"}


def test_no_sentence_stands_twice(demo: Corpus):
    sentences = Counter(" ".join(words).lower() for split in demo.splits.values() for words in split.words)
    assert [sentence for sentence, count in sentences.items() if count > 1] == []


def test_names_of_dev_and_test_are_mostly_unseen_in_training(demo: Corpus):
    seen = {name for name, _ in names(demo.splits["train"])}
    for split in ("dev", "test"):
        found = {name for name, _ in names(demo.splits[split])}
        assert len(found - seen) / len(found) > 0.6


def test_one_surface_form_stands_as_different_types_and_in_lower_case(demo: Corpus):
    types: dict[str, set[str]] = defaultdict(set)
    for split in demo.splits.values():
        for name, kind in names(split):
            types[name].add(kind)
    for form in ("Jordan", "Washington", "Paris", "Amazon", "Orange", "Chelsea", "Georgia", "Lincoln"):
        assert len(types[form]) >= 2, form
    assert sum(len(kinds) > 1 for kinds in types.values()) >= 40
    plain = {
        word
        for split in demo.splits.values()
        for words, tags in zip(split.words, split.tags, strict=True)
        for word, tag in zip(words, tags, strict=True)
        if tag == "O"
    }
    assert {"orange", "may", "reading", "target", "gap", "turkey", "china", "bath"} <= plain
    assert {"May", "Mobile", "Reading"} <= plain | {w.capitalize() for w in plain}


def test_a_sentence_is_labelled_by_whether_it_names_a_person(demo: Corpus):
    labelled = load_corpus(config_of(["data=demo_person"]).data)
    for name, split in labelled.splits.items():
        assert list(split.texts) == [" ".join(words) for words in demo.splits[name].words]
    for name, split in demo.splits.items():
        expected = [["yes" if any("PER" in tag for tag in tags) else "no"] for tags in split.tags]
        assert list(labelled.splits[name].tags) == expected
