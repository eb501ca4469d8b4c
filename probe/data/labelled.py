"""Reads files with a label and a text per line, separated by a tab.

A line is `label TAB text`, or `split TAB label TAB text` as in SentEval, where one file holds all three splits. If the
first line names the columns data.tags_field and data.words_field, these are read, wherever they stand.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from probe.config import UserError
from probe.data.layout import COLUMN_NAMES, Layout, check_fields
from probe.data.running_text import split_text
from probe.data.sentences import Packing
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, bare_tag, check_tag, lines_of, too_long

EXPECTED = "A line is label TAB text, or split TAB label TAB text."
SPLIT_NAMES = {"train": ("tr", "train"), "dev": ("va", "dev", "valid", "validation"), "test": ("te", "test")}


def read_labelled(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads the lines of one split, `layout.split`. Raises UserError with file and line for a line without text."""
    split = Split([], [], None, array("I"), str(file))
    words, tags = Packing(), Packing()
    with closing(lines_of(file, remedy)) as lines:
        for number, label, text in _rows(lines, layout, split):
            place = f"{file}:{number}"
            words.add(split.bare_words(words_of(text, place)))
            bare = bare_tag(label)
            check_tag(bare, place, may_have_blanks=True)
            split.invisible += bare != label
            tags.add([bare])
            split.lines.append(number)
    split.words, split.tags = words.done(), tags.done()
    if not split.words:
        raise UserError(f"{file} holds no line of the {layout.split} split. {EXPECTED}")
    return split


def words_of(text: str, place: str) -> list[str]:
    """Returns the words of a text that has a label. Raises UserError if there are none, or too many."""
    words = split_text(text)
    if not words:
        raise UserError(f"{place}: the text is empty, so there is nothing to label. Remove the line.")
    if len(words) > MAX_SENTENCE:
        raise UserError(f"{place}: {too_long(len(words))}")
    return words


def _rows(lines: Iterable[str], layout: Layout, split: Split) -> Iterator[tuple[int, str, str]]:
    """Yields line number, label and text of the lines that belong to the split. Notes a header in `split`."""
    of_all = [name for names in SPLIT_NAMES.values() for name in names]
    fields = [layout.tags_field, layout.words_field]
    columns: list[int] | None = None  # of the label and the text
    has_splits = False
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        cells = line.split("\t")
        if columns is None:  # the first line
            if set(fields) <= set(cells):
                columns = [cells.index(field) for field in fields]
                split.header = number
                continue
            if set(cells) <= COLUMN_NAMES:
                check_fields(f"{split.origin}:{number}: the first line", cells, layout)
            has_splits = len(cells) > len(fields) and cells[0] in of_all
            columns = [has_splits + i for i in range(len(fields))]
        if len(cells) <= max(columns):
            found = f"{len(cells)} columns, expected {max(columns) + 1}"
            raise UserError(f"{split.origin}:{number}: {found}. {EXPECTED}")
        if has_splits and cells[0] not in of_all:
            raise UserError(
                f"{split.origin}:{number}: {cells[0]!r} names no split, as the first line does. There are: "
                f"{', '.join(of_all)}."
            )
        if not has_splits or cells[0] in SPLIT_NAMES[layout.split]:
            label, text = (cells[at] for at in columns)
            yield number, label, text if split.header else "\t".join(cells[columns[-1] :])
