"""Finds out whether the sentences of a text stand in the order of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from probe.scoring.significance import DOCUMENT

IN_ORDER = 4.0  # standard deviations; of shuffled sentences, fewer than one text in 400 has as many
FEWEST_SENTENCES = 30  # with fewer, no order can be seen
MOST_SENTENCES = 5_000  # from the first on: enough to see an order
SHUFFLES = 100
RARE = 50  # a word is looked at if at most one sentence in RARE has it, or two


def order_of(stated: str | None, neighbours: Mapping[str, float] | None, split: str) -> str | None:
    """Returns the order of a split's sentences, as stated, else DOCUMENT if neighbours show it; None: not known.

    neighbours: what `neighbours_in_common` found, by split.
    """
    return stated or (DOCUMENT if (neighbours or {}).get(split, 0.0) >= IN_ORDER else None)


def neighbours_in_common(sentences: Sequence[Sequence[str]]) -> float:
    """Returns how much more neighbouring sentences have in common than shuffled ones, in standard deviations.

    Sentences of a document share rare words: names, subjects. So a large number says that the text is in the order of
    documents. A small one has two causes: either no sentence continues another, or the sentences were shuffled.
    """
    texts = sentences[:MOST_SENTENCES]
    of_word: dict[str, list[int]] = {}
    for number, words in enumerate(texts):
        for word in {*words}:
            of_word.setdefault(word, []).append(number)
    most = max(2, len(texts) // RARE)
    rare = [at for at in of_word.values() if 2 <= len(at) <= most]
    if not rare:
        return 0.0
    line = np.repeat(np.arange(len(rare)), [*map(len, rare)]) * (len(texts) + 1)
    places = np.concatenate(rare)
    draw = np.random.default_rng(0)
    # Each word has a stretch of numbers for its sentences. In it, neighbours that share the word are one apart.
    orders: list[np.ndarray] = [np.arange(len(texts)), *(draw.permutation(len(texts)) for _ in range(SHUFFLES))]
    shared = np.array([int((np.diff(np.sort(line + order[places])) == 1).sum()) for order in orders])
    return float((shared[0] - shared[1:].mean()) / max(1.0, shared[1:].std()))
