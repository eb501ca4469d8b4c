"""The majority tag against ten lines that say the same, and by hand."""

from __future__ import annotations

from collections import Counter

from probe.data.corpus import Corpus
from probe.data.task import SPANS, TAGS
from probe.probes.majority_tag import MajorityTag


def test_each_word_gets_its_most_frequent_tag(tiny_corpus: Corpus):
    train, dev = tiny_corpus.splits["train"], tiny_corpus.splits["dev"]
    pairs = [
        pair for words, tags in zip(train.words, train.tags, strict=True) for pair in zip(words, tags, strict=True)
    ]
    by_word: dict[str, Counter[str]] = {}
    for word, tag in sorted(pairs):
        by_word.setdefault(word, Counter())[tag] += 1
    default = Counter(tag for _, tag in pairs).most_common(1)[0][0]
    unknown = [[*words, "zzz"] for words in dev.words]
    expected = [[by_word[w].most_common(1)[0][0] if w in by_word else default for w in words] for words in unknown]
    assert MajorityTag(train.words, train.tags, TAGS).predict(unknown) == expected


def test_the_longest_known_mention_is_taken():
    def split(text: str) -> tuple[list[str], list[str]]:
        words, tags = zip(*(pair.split("/") for pair in text.split()), strict=True)
        return list(words), list(tags)

    train = [
        split("New/B-LOC York/I-LOC met/O Bob/B-PER Smith/I-PER"),
        split("New/B-ORG York/I-ORG Times/I-ORG won/O"),
        split("New/B-LOC York/I-LOC"),
        split("may/O be/O May/B-PER may/O"),
        split("May/O May/O 5/O"),
    ]
    memory = MajorityTag([words for words, _ in train], [tags for _, tags in train], SPANS)
    asked = [
        ("New York Times in New York", "B-ORG I-ORG I-ORG O B-LOC I-LOC"),
        ("May Bob Smith may", "O B-PER I-PER O"),
        ("Ann Smith", "O I-PER"),  # the word by itself: it was never a mention alone
        ("New", "B-LOC"),
        ("", ""),
    ]
    assert memory.predict([text.split() for text, _ in asked]) == [tags.split() for _, tags in asked]


def test_nothing_remembered_is_everything_the_most_frequent_tag():
    memory = MajorityTag([["a", "b"]], [["O", "O"]], SPANS)
    assert memory.predict([["c", "a"]]) == [["O", "O"]]
    assert len(memory) == 2
