"""Control tasks, against the rules that they are said to follow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.data.tasks import TAGS


def of_tags(num_words: int) -> Corpus:
    """A part-of-speech corpus of as many different words, tagged N, V and X in 6:3:1."""
    words = [[f"w{10 * i + k}" for k in range(10)] for i in range(num_words // 10)]
    tags = [list("NNNNNNVVVX") for _ in words]
    split = Split(words, tags, None, list(range(len(words))), "made")
    return Corpus("speech", {name: replace(split) for name in ("train", "dev", "test")}, TAGS)


def test_a_word_has_one_control_tag_drawn_by_frequency():
    control = of_tags(5000).control(1)
    by_word: dict[str, set[str]] = {}
    for split in control.splits.values():
        for words, tags in zip(split.words, split.tags, strict=True):
            for word, tag in zip(words, tags, strict=True):
                by_word.setdefault(word, set()).add(tag)
    assert all(len(tags) == 1 for tags in by_word.values())
    drawn = Counter(tag for tags in by_word.values() for tag in tags)
    # 5,000 draws: four standard errors of a share are below 0.03.
    assert {tag: pytest.approx(n / 5000, abs=0.03) for tag, n in drawn.items()} == {"N": 0.6, "V": 0.3, "X": 0.1}


def test_a_control_depends_on_its_seed_and_on_nothing_else(tiny_corpus: Corpus):
    one, again, other = (tiny_corpus.control(seed) for seed in (1, 1, 2))
    assert one.key == again.key != other.key
    assert one.key != tiny_corpus.key
    assert one.text_fingerprint(True) == tiny_corpus.text_fingerprint(True), "the same features"


def test_a_control_of_spans_gives_each_mention_one_type(tiny_corpus: Corpus):
    control = tiny_corpus.control(3)
    by_mention: dict[tuple[str, ...], set[str]] = {}
    for name, split in control.splits.items():
        before = tiny_corpus.splits[name]
        for words, tags, old in zip(split.words, split.tags, before.tags, strict=True):
            assert [tag[:2] for tag in tags] == [tag[:2] for tag in old]
            for kind, start, end in control.task.items(tags):
                by_mention.setdefault(tuple(words[start:end]), set()).add(kind)
    assert all(len(kinds) == 1 for kinds in by_mention.values())
    assert len(set().union(*by_mention.values())) > 1


def cased(corpus: Corpus) -> Corpus:
    """The corpus with every other sentence in capitals."""
    splits = {
        name: replace(
            split,
            words=[[w.upper() for w in words] if i % 2 else list(words) for i, words in enumerate(split.words)],
        )
        for name, split in corpus.splits.items()
    }
    return replace(corpus, splits=splits)


def test_a_control_ignores_case_where_the_encoder_does(tiny_corpus: Corpus):
    text, types = cased(tiny_corpus), {}
    for lower_cases in (True, False):
        by_mention: dict[str, set[str]] = {}
        control = text.control(3, lower_cases)
        for split in control.splits.values():
            for words, tags in zip(split.words, split.tags, strict=True):
                for kind, start, end in control.task.items(tags):
                    by_mention.setdefault(" ".join(words[start:end]).lower(), set()).add(kind)
        types[lower_cases] = max(map(len, by_mention.values()))
    assert types == {True: 1, False: 2}, "as written, a mention has two types, or the test shows nothing"
    lower = tiny_corpus.control(3, True)
    assert lower.key == tiny_corpus.control(3).key, "its words have no capitals"


def test_a_control_of_a_single_type_is_refused(tiny_corpus: Corpus):
    for split in tiny_corpus.splits.values():
        split.tags = [["O" if tag[2:] != "PER" else tag for tag in tags] for tags in split.tags]
    with pytest.raises(UserError, match=r"data\.control=1:.*\bPER\b.*data\.control=null"):
        tiny_corpus.control(1)
