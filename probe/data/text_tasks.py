"""Makes tasks of sentences from any tagged text: its length, swapped words, a replaced word, a type that it names.

The first three follow SentEval (Conneau et al. 2018). A draw depends on the sentence and a fixed seed alone, so equal
sentences are altered alike. A task that alters sentences uses each sentence once, in its first split, either as it is
or altered: never a sentence in one split and its altered copy in another.

To add a task, write its function and add one line to `DERIVED_TASKS`.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from probe.config import UserError
from probe.data.sentences import Sentences
from probe.data.split import Split
from probe.data.tags import spans
from probe.system.format import first_few

SEED = 0
# The longest sentences of SentEval's bins, whose outer ones are 5-8 and 26-28. Here the outer ones are open, so that
# all sentences have a label and the text remains the same.
LONGEST_IN_BIN = (8, 12, 16, 20, 25)
BINS = ("up to 8", "9-12", "13-16", "17-20", "21-25", "26 or more")
FEWEST_WORDS = 5  # of a sentence that is altered, as in SentEval
FEWEST_CHOICES = 10  # a word that is like fewer others is a function word, and is not replaced
NOUN_OR_VERB = re.compile("NNS?|VB[DGNPZ]?|NOUN|VERB")  # tags of Penn and Universal Dependencies, without names

Splits = Mapping[str, Split]
Alter = Callable[[list[str], list[str]], list[str] | None]
LeftOut = dict[str, dict[str, int]]  # reason, then split, to the number of sentences


@dataclass(frozen=True)
class TextTask:
    """Describes a task. source: the task as which the tags of the text are read. make: receives what is typed behind
    the task's name and a colon; returns the splits, and which sentences were left out.
    """

    source: str
    make: Callable[[Splits, str], tuple[dict[str, Split], LeftOut]]


def make_text_task(splits: Splits, typed: str) -> tuple[dict[str, Split], LeftOut]:
    """Replaces the tags of each sentence by one label, as data.derive says. Raises UserError for what cannot be."""
    name, _, argument = typed.partition(":")
    return DERIVED_TASKS[name].make(splits, argument)


def source_task(typed: str) -> str:
    """Returns the value of data.task with which to read the text of a value of data.derive."""
    return DERIVED_TASKS[typed.partition(":")[0]].source


def _length(splits: Splits, _: str) -> tuple[dict[str, Split], LeftOut]:
    of_bins = {
        name: [BINS[bisect_left(LONGEST_IN_BIN, length)] for length in split.lengths] for name, split in splits.items()
    }
    return _labelled(splits, of_bins), {}


def _has(splits: Splits, kind: str) -> tuple[dict[str, Split], LeftOut]:
    """Labels sentences by whether they have a span of a type."""
    kinds = {found for tags in splits["train"].tags for found, _, _ in spans(tags)}
    if kind not in kinds:
        raise UserError(
            f"data.derive=has:{kind}: {splits['train'].origin} has no span of this type. "
            f"There are: {first_few(sorted(kinds), 20)}."
        )
    return _labelled(
        splits,
        {
            name: [kind if any(found == kind for found, _, _ in spans(tags)) else "none" for tags in split.tags]
            for name, split in splits.items()
        },
    ), {}


def _bigram_shift(splits: Splits, _: str) -> tuple[dict[str, Split], LeftOut]:
    """Swaps two neighbouring words of half of the sentences."""

    def swap(words: list[str], _: list[str]) -> list[str] | None:
        places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
        if not places:
            return None
        at = places[_draw("bigram_shift place", words) % len(places)]
        return [*words[:at], words[at + 1], words[at], *words[at + 2 :]]

    return _altered(splits, "bigram_shift", swap, "swapped")


def _odd_word(splits: Splits, _: str) -> tuple[dict[str, Split], LeftOut]:
    """Replaces a word in half of the sentences by another that train has with the same tag, in the same case, and
    about as often.

    If the tags are parts of speech, only common nouns and verbs are replaced; if they are those of spans, only words
    outside of spans. Both words are of train, so that no sentence is given away by a word's novelty.
    """
    train = splits["train"]
    frequent = Counter(
        (word, tag)
        for words, tags in zip(train.words, train.tags, strict=True)
        for word, tag in zip(words, tags, strict=True)
        if word.isalpha()
    )
    are_nouns_known = any(NOUN_OR_VERB.fullmatch(tag) for _, tag in frequent)
    are_spans = any(tag == "O" for _, tag in frequent)
    like: dict[tuple[Hashable, ...], list[str]] = {}

    def kind(word: str, tag: str) -> tuple[Hashable, ...]:
        return tag, frequent[word, tag].bit_length(), word.istitle(), word.isupper()

    for word, tag in sorted(frequent):
        if NOUN_OR_VERB.fullmatch(tag) if are_nouns_known else tag == "O" or not are_spans:
            like.setdefault(kind(word, tag), []).append(word)

    def odd(words: list[str], tags: list[str]) -> list[str] | None:
        choices = [like.get(kind(word, tag), []) for word, tag in zip(words, tags, strict=True)]
        places = [i for i, of_word in enumerate(choices) if len(of_word) >= FEWEST_CHOICES]
        if not places:
            return None
        at = places[_draw("odd_word place", words) % len(places)]
        others = [word for word in choices[at] if word.lower() != words[at].lower()]
        return [*words[:at], others[_draw("odd_word word", words) % len(others)], *words[at + 1 :]]

    return _altered(splits, "odd_word", odd, "replaced")


def _altered(splits: Splits, task: str, alter: Alter, label: str) -> tuple[dict[str, Split], LeftOut]:
    """Alters half of the sentences that can be. alter: returns a sentence altered, or None if it cannot be.

    A sentence is left out if it is short, cannot be altered, occurred before, or would become a sentence of the text.
    Case is ignored in this, because many encoders drop it.
    """
    texts = {_bare(words) for split in splits.values() for words in split.words}
    seen: set[tuple[str, ...]] = set()
    made: dict[str, Split] = {}
    left_out: LeftOut = {"sentences that cannot be altered": {}, "sentences that occurred before": {}}
    for name, split in splits.items():
        chosen, sentences, labels = [], [], []
        cannot = repeated = 0
        for number, (words, tags) in enumerate(zip(split.words, split.tags, strict=True)):
            new = alter(words, tags) if len(words) >= FEWEST_WORDS else None
            if _bare(words) in seen:
                repeated += 1
            elif new is None or _bare(new) in texts:
                cannot += 1
            else:
                seen.add(_bare(words))
                is_altered = _draw(task, [word.lower() for word in words]) % 2 == 1
                if is_altered:
                    texts.add(_bare(new))
                chosen.append(number)
                sentences.append(new if is_altered else words)
                labels.append(label if is_altered else "original")
        left_out["sentences that cannot be altered"][name] = cannot
        left_out["sentences that occurred before"][name] = repeated
        if not chosen:
            raise UserError(f"data.derive={task}: {split.origin} has no sentence that can be altered.")
        made[name] = replace(split.take(chosen), words=Sentences.of(sentences), tags=_packed(labels))
    return made, left_out


def _labelled(splits: Splits, labels: Mapping[str, Iterable[str]]) -> dict[str, Split]:
    return {name: replace(split, tags=_packed(labels[name])) for name, split in splits.items()}


def _packed(labels: Iterable[str]) -> Sentences:
    return Sentences.of([label] for label in labels)


def _bare(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.lower() for word in words)


def _draw(purpose: str, words: Sequence[str]) -> int:
    """Draws a number by sha256, the same in every version of Python."""
    return int.from_bytes(hashlib.sha256(json.dumps([SEED, purpose, *words]).encode()).digest())


DERIVED_TASKS = {
    "length": TextTask("tags", _length),
    "bigram_shift": TextTask("tags", _bigram_shift),
    "odd_word": TextTask("tags", _odd_word),
    "has": TextTask("spans", _has),
}
TASKS_OF_ANY_TAGS = tuple(name for name, task in DERIVED_TASKS.items() if task.source == "tags")
