"""Derives a corpus with a control task instead of its tags.

The words do not change, so features of the original text can be read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.sentences import Sentences
from probe.data.split import Split


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
