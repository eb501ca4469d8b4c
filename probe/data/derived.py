"""Derives corpora from a corpus: one with a control task instead of its tags, or one with a sample of train.

The words do not change, so features of the original text can be read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.sentences import Sentences
from probe.data.split import Split
from probe.system.format import first_few
from probe.system.grouping import group_by


@dataclass(frozen=True)
class Sample:
    """Describes which sentences of `train` are used for training: the first `share` of its units in `order`."""

    train: Split
    share: float
    order: list[list[int]]  # sentences of each unit: a document, or one sentence where documents are not known

    def sentences(self, share: float) -> list[int]:
        """Returns the sentences of a share, in the order of the text. A larger share includes a smaller one."""
        units = self.order[: round(share * len(self.order))]
        return sorted(itertools.chain.from_iterable(units))


def control_task(text: Corpus, seed: int, lower_cases: bool = False) -> Corpus:
    """Replaces the tags by a control task (Hewitt & Liang 2019), which can only be memorised.

    Each distinct word gets one tag for all of train, dev and test, drawn from the tag distribution of train. With
    spans, each distinct mention gets a type drawn in the same manner and keeps its bounds. So the task differs from
    Hewitt & Liang's: bounds can be learnt. With labels of sentences or pairs, each distinct one gets a label. The draw
    depends only on the word, mention or sentence, the seed and train's distribution. With `lower_cases`, words are
    lower-cased first, as the encoder does. Else variants that differ in case would have contradictory tags for the same
    input.
    """
    task = text.task
    frequent = Counter(kind for tags in text.splits["train"].tags for kind, _, _ in task.items(tags))
    if len(frequent) < 2:
        raise UserError(
            f"data.control={seed}: {text.name} has a single type, {next(iter(frequent))}, so the control task would "
            "equal the task. Type data.control=null."
        )
    kinds = sorted(frequent)
    up_to = list(itertools.accumulate(frequent[kind] for kind in kinds))

    def draw(words: Sequence[str]) -> str:
        seen = [word.lower() for word in words] if lower_cases else words
        digest = hashlib.sha256(json.dumps([seed, *seen]).encode()).digest()
        return kinds[bisect(up_to, int.from_bytes(digest) % up_to[-1])]

    def retag(words: Sequence[str], tags: Sequence[str]) -> list[str]:
        if not task.has_spans:
            return [draw([word]) for word in words]
        new = ["O"] * len(words)
        for _, start, end in task.items(tags):
            kind = draw(words[start:end])
            new[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
        return new

    def control_tags(split: Split) -> Iterator[list[str]]:
        if task.is_per_word:
            yield from itertools.starmap(retag, zip(split.words, split.tags, strict=True))
            return
        units = split.unit_words()
        for tags in split.tags:
            yield [draw(next(units)) for _ in tags]

    splits = {name: replace(split, tags=Sentences.of(control_tags(split))) for name, split in text.splits.items()}
    about = {name: value for name, value in text.about.items() if name != "not_in_train"}
    return replace(text, splits=splits, about=about | {"control_lower_cased": lower_cases})


def sampled(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Sample]:
    """Reduces train to a share of its text: whole documents where they are known, else sentences.

    They are taken in order of sha256 of the seed and their index. Raises UserError if the sample is empty, lacks a type
    (or tag) of train, or is all of train for a share below 1.
    """
    train = corpus.splits["train"]
    by = "sentence" if train.documents is None else "document"
    sentences = range(len(train.words))
    unit_of = train.documents or sentences
    units = [*group_by(sentences, lambda sentence: unit_of[sentence]).values()]
    places = sorted(range(len(units)), key=lambda place: hashlib.sha256(f"train {seed} {place}".encode()).digest())
    sample = Sample(train, share, [units[place] for place in places])
    first: dict[str, int] = {}  # how many units are needed until each kind occurs
    for number, of_unit in enumerate(sample.order, 1):
        for sentence in of_unit:
            for kind, _, _ in corpus.task.items(train.tags[sentence]):
                first.setdefault(kind, number)
    taken = round(share * len(units))
    if share < 1 and taken == len(units):
        raise UserError(f"data.train_fraction={share}: this takes all {len(units)} {by}s. Type data.train_fraction=1.")
    lacking = sorted(kind for kind, number in first.items() if number > taken)
    if lacking:
        least = math.ceil(1000 * max(first.values()) / len(units)) / 1000
        none = f"and none with {first_few(lacking)}"
        raise UserError(
            f"data.train_fraction={share}: this takes {taken} of {len(units)} {by}s {none if taken else ''}".rstrip()
            + f". The smallest fraction with all {corpus.task.kinds} is {least} (seed={seed})."
        )
    if not taken:
        raise UserError(
            f"data.train_fraction={share}: this takes none of {len(units)} {by}s. The smallest fraction that takes one "
            f"is {math.ceil(1000 / len(units)) / 1000}."
        )
    part = train.take(sample.sentences(share))
    return replace(corpus, splits={**corpus.splits, "train": part}), sample
