"""Guesses which column of a column file has the words or the tags, for messages that name a setting to type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from probe.data.columns import cut_line
from probe.data.split import BYTE_ORDER_MARK, Split, bare_tag, lines_of
from probe.data.tags import PREFIXED

NUMBER = re.compile(r"\d+([-.]\d+)?")
NEARLY_ALL = 0.9


def table_of(split: Split) -> list[list[str]]:
    """Reads the columns of every word of the split from its file. Returns no rows for a split without columns."""
    if not split.word_a_line:
        return []
    lines, skipped = list(lines_of(Path(split.origin))), set(split.skipped_lines)
    rows = []
    for first, words in zip(split.lines, split.words, strict=True):
        number = first
        for _ in words:
            while number in skipped:
                number += 1
            line = lines[number - 1].removesuffix("\r").removeprefix(BYTE_ORDER_MARK)
            rows.append(cut_line(line, split.separator)[: split.num_columns])
            number += 1
    return rows


def span_columns(table: Sequence[Sequence[str]]) -> list[int]:
    """Returns the columns that hold only O and tags with a scheme's prefix; the column with most spans comes first."""
    found = []
    for at, column in enumerate(zip(*table, strict=False)):
        counts = Counter(map(bare_tag, column))
        outside = counts.pop("O", 0)
        if outside and counts and all(PREFIXED.fullmatch(tag) for tag in counts):
            found.append((-counts.total(), at))
    return [at for _, at in sorted(found)]


def nearly_all_numbers(values: Sequence[str]) -> bool:
    return sum(NUMBER.fullmatch(value) is not None for value in values) >= NEARLY_ALL * len(values)


def wordlike_column(table: Sequence[Sequence[str]]) -> int | None:
    """Returns the column with most distinct values among those that do not hold numbers; None if all hold numbers."""
    distinct = {
        at: len(set(column)) for at, column in enumerate(zip(*table, strict=False)) if not nearly_all_numbers(column)
    }
    return max(distinct, key=lambda at: distinct[at], default=None)
