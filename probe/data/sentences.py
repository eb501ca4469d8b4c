"""Packs the words or tags of many sentences into a byte or two each, since a text stays in memory.

In lists of `str`, a word and its tag take 8 bytes each, and a sentence 56 for each of the two lists: some 23 bytes per
word at 20 words per sentence. Here they take 3 or 4, plus each distinct string once.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

CAPACITY = {"B": 1 << 8, "H": 1 << 16, "I": 1 << 32}  # types of `array`, and how many different numbers each can hold


class Sentences(Sequence[list[str]]):
    """Behaves like a list of lists of strings. Each list is built on access.

    distinct: each distinct string, in order of first occurrence. numbers: (W,) each word's index into it, in the
    narrowest type that fits. ends: (S + 1,) the positions where each of the S sentences begins, and where the last one
    ends.
    """

    def __init__(self, distinct: list[str], numbers: array[int], ends: array[int]) -> None:
        self.distinct, self.numbers, self.ends = distinct, numbers, ends

    @classmethod
    def of(cls, rows: Iterable[Sequence[str]]) -> Sentences:
        if isinstance(rows, cls):
            return rows
        packing = Packing()
        for row in rows:
            packing.add(row)
        return packing.done()

    @property
    def lengths(self) -> list[int]:
        """Returns the number of words of each sentence."""
        return [last - first for first, last in pairwise(self.ends)]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __iter__(self) -> Iterator[list[str]]:
        numbers, string_of = self.numbers, self.distinct.__getitem__
        return (list(map(string_of, numbers[first:last])) for first, last in pairwise(self.ends))

    @overload
    def __getitem__(self, at: int) -> list[str]: ...
    @overload
    def __getitem__(self, at: slice) -> list[list[str]]: ...
    def __getitem__(self, at: int | slice) -> list[str] | list[list[str]]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        number = range(len(self))[at]  # from the front; raises IndexError
        return list(map(self.distinct.__getitem__, self.numbers[self.ends[number] : self.ends[number + 1]]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(list.__eq__, self, map(list, other)))

    def __repr__(self) -> str:
        return f"Sentences of {len(self.numbers)} words, {len(self.distinct)} of them different: {len(self)}"


class Packing:
    """Builds `Sentences` from one sentence after another."""

    def __init__(self) -> None:
        self._number_of = _Numbered()
        self._numbers, self._ends = array("B"), array("I", [0])

    def add(self, row: Iterable[str]) -> None:
        numbers = list(map(self._number_of.__getitem__, row))
        if len(self._number_of) > CAPACITY[self._numbers.typecode]:
            wider = next(code for code, most in CAPACITY.items() if most >= len(self._number_of))
            self._numbers = array(wider, self._numbers)
        self._numbers.fromlist(numbers)
        self._ends.append(len(self._numbers))

    def done(self) -> Sentences:
        return Sentences(list(self._number_of), self._numbers, self._ends)


class _Numbered(dict[str, int]):
    """Maps each string to the number of distinct strings before it. The strings are interned, so splits share them."""

    def __missing__(self, text: str) -> int:
        number = self[sys.intern(text)] = len(self)
        return number
