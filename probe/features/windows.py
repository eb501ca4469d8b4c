"""Cuts texts into windows that an encoder can take, and chooses the best window for each word.

Windows are runs of whole words. If a text needs several, they overlap, and a word is taken from the one in which it is
most central.

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
    """Describes a window: words first..last are encoded together; keep_first..keep_last are taken from it."""

    first: int
    last: int
    keep_first: int
    keep_last: int


def bounds(lengths: Sequence[int]) -> np.ndarray:
    """Returns (n + 1,), the offsets of n consecutive runs."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])


def context_bounds(split: Split, context: str) -> np.ndarray:
    """Returns (n + 1,), the word offsets of the texts that the encoder reads whole: sentences or documents."""
    if context == "sentence":
        return bounds(split.lengths)
    if split.documents is None:
        raise UserError(
            f"features.context=document: {split.origin} marks no documents. "
            "Use features.context=sentence, or a source with document marks."
        )
    last_of_document = np.flatnonzero(np.diff([*split.documents, -1]))
    return np.concatenate([[0], bounds(split.lengths)[last_of_document + 1]])


def plan_windows(split: Split, pieces: Pieces, context: str, max_text_pieces: int, stride: float) -> Iterator[Window]:
    """Plans windows of at most `max_text_pieces` pieces that cover a split; each word is taken from exactly one.

    A text that fits is one window. A longer text gets the widest possible windows. Each begins `stride` of a window
    after the previous one, and the last ends with the text. A word is taken from the window in which its smaller
    distance to the two ends is largest. Raises UserError for a word that is longer than a window.
    """
    lengths = pieces.lengths(0, len(pieces.word))
    if len(lengths) and lengths.max() > max_text_pieces:
        position = int(np.argmax(lengths > max_text_pieces))
        raise UserError(
            f"{split.place(position)}: {lengths[position]} pieces, but the encoder takes at most {max_text_pieces} "
            "at once. Split the word or use an encoder with a longer window."
        )
    texts = context_bounds(split, context)
    for first, last in zip(map(int, texts[:-1]), map(int, texts[1:]), strict=True):
        if pieces.count(first, last) <= max_text_pieces:
            yield Window(first, last, first, last)
        else:
            windows = _overlapping(pieces.starts(first, last), max_text_pieces, stride)
            yield from (Window(*(first + word for word in window)) for window in windows)


def _overlapping(starts: np.ndarray, max_text_pieces: int, stride: float) -> list[Window]:
    """Plans overlapping windows over a text of more than `max_text_pieces` pieces; its words are counted from 0."""
    last = len(starts) - 1
    step = max(1, int(max_text_pieces * stride))
    spans: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = int(np.searchsorted(starts, starts[begin] + max_text_pieces, side="right")) - 1
        if end >= last:
            break
        spans.append((begin, end))
        begin = max(begin + 1, int(np.searchsorted(starts, starts[begin] + step, side="right")) - 1)
    widest_at_end = int(np.searchsorted(starts, starts[last] - max_text_pieces, side="left"))
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
        own = np.flatnonzero(chosen == number)
        if len(own):
            windows.append(Window(begin, end, int(own[0]), int(own[-1]) + 1))
    return windows
