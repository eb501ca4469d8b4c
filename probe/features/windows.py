"""Windows of pieces that an encoder can take; each word knows the window that serves it best.

Windows are runs of whole words; where a text needs several, they overlap and a word is taken from the one in which it
stands most central.

W words, P pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from probe.config import UserError
from probe.data.split import Split
from probe.encoders.pieces import Pieces


class Window(NamedTuple):
    """Words first..last of a split go through the encoder together; keep_first..keep_last are taken from here."""

    first: int
    last: int
    keep_first: int
    keep_last: int


def bounds(lengths: Sequence[int]) -> np.ndarray:
    """(n + 1,) offsets of n runs that stand one after another."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])


def context_bounds(split: Split, context: str) -> np.ndarray:
    """(n + 1,) word offsets of the texts that the encoder sees whole: the sentences, or the documents."""
    if context == "sentence":
        return bounds(split.lengths)
    if split.documents is None:
        raise UserError(
            f"features.context=document: {split.origin} knows no documents. "
            "Use features.context=sentence, or a source with document marks."
        )
    last_of_document = np.flatnonzero(np.diff([*split.documents, -1]))
    return np.concatenate([[0], bounds(split.lengths)[last_of_document + 1]])


def plan_windows(split: Split, pieces: Pieces, context: str, room: int, stride: float) -> Iterator[Window]:
    """Windows of at most `room` pieces that cover a split, in text order; each word is kept from exactly one.

    A text that fits is one window. A longer one gets windows as wide as they go, each beginning `stride` of a window
    after the one before and the last ending with the text; a word is kept where its smaller distance to the window's
    two ends is largest. Raises UserError for a word that alone is longer than a window.
    """
    lengths = pieces.lengths(0, len(pieces.word))
    if len(lengths) and lengths.max() > room:
        position = int(np.argmax(lengths > room))
        raise UserError(
            f"{split.place(position)}: {lengths[position]} pieces, more than the {room} that the encoder takes at "
            "once. Split the word or use an encoder with a longer window."
        )
    texts = context_bounds(split, context)
    for first, last in zip(map(int, texts[:-1]), map(int, texts[1:]), strict=True):
        if pieces.count(first, last) <= room:
            yield Window(first, last, first, last)
        else:
            windows = _overlapping(pieces.starts(first, last), room, stride)
            yield from (Window(*(first + word for word in window)) for window in windows)


def _overlapping(starts: np.ndarray, room: int, stride: float) -> list[Window]:
    """Windows over a text, its words counted from 0, whose pieces are more than `room`."""
    last = len(starts) - 1
    step = max(1, int(room * stride))
    spans: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = int(np.searchsorted(starts, starts[begin] + room, side="right")) - 1
        if end >= last:
            break
        spans.append((begin, end))
        begin = max(begin + 1, int(np.searchsorted(starts, starts[begin] + step, side="right")) - 1)
    widest_at_end = int(np.searchsorted(starts, starts[last] - room, side="left"))
    spans.append((widest_at_end, last))

    centre = (starts[:-1] + starts[1:]) / 2
    best = np.full(last, -1.0)
    chosen = np.zeros(last, dtype=np.int64)
    for number, (begin, end) in enumerate(spans):
        inside = slice(begin, end)
        margin = np.minimum(centre[inside] - starts[begin], starts[end] - centre[inside])
        better = margin > best[inside]
        best[inside] = np.where(better, margin, best[inside])
        chosen[inside] = np.where(better, number, chosen[inside])
    windows: list[Window] = []
    for number, (begin, end) in enumerate(spans):
        kept = np.flatnonzero(chosen == number)
        if len(kept):
            windows.append(Window(begin, end, int(kept[0]), int(kept[-1]) + 1))
    return windows
