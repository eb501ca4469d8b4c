"""Reads files with a label and a text per line, separated by a tab: a label for each sentence.

A line is `label TAB text`, or `split TAB label TAB text` as in SentEval, where one file holds all three splits. If the
first line names the columns data.tags_field and data.words_field, these are read, wherever they stand.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from probe.config import UserError
from probe.data.layout import Layout
from probe.data.running_text import split_text
from probe.data.sentences import Packing
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, bare_tag, check_tag, lines_of, too_long

SPLIT_NAMES = {"train": ("tr", "train"), "dev": ("va", "dev", "valid", "validation"), "test": ("te", "test")}
EXPECTED = "A line is label TAB text, or split TAB label TAB text."


def read_labelled(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads the lines of one split, `layout.split`. Raises UserError with file and line for a line without text."""
    split = Split([], [], None, array("I"), str(file))
    words, tags = Packing(), Packing()
    with closing(lines_of(file, remedy)) as lines:
        for number, label, text in _rows(lines, layout, split):
            place = f"{file}:{number}"
            words.add(words_of(text, place))
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
    of_all = {name for names in SPLIT_NAMES.values() for name in names}
    columns: list[int] | None = None
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        cells = line.split("\t")
        if columns is None:  # the first line
            if {layout.tags_field, layout.words_field} <= set(cells):
                columns = [cells.index(layout.tags_field), cells.index(layout.words_field)]
                split.header = number
                continue
            columns = [0, 1, 2] if len(cells) > 2 and cells[0] in of_all else [0, 1]
        if len(cells) <= max(columns):
            raise UserError(f"{split.origin}:{number}: {len(cells)} columns, expected {max(columns) + 1}. {EXPECTED}")
        if len(columns) == 3 and cells[0] not in of_all:
            raise UserError(
                f"{split.origin}:{number}: {cells[0]!r} names no split, as the first line does. There are: "
                f"{', '.join(name for names in SPLIT_NAMES.values() for name in names)}."
            )
        if len(columns) == 2 or cells[0] in SPLIT_NAMES[layout.split]:
            label, text = (cells[at] for at in columns[-2:])
            yield number, label, text if split.header else "\t".join(cells[columns[-1] :])
