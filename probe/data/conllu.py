"""Reads CoNLL-U, the format of Universal Dependencies (https://universaldependencies.org/format.html)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from probe.config import UserError
from probe.data.columns import EMPTY_NODE, RANGE, ColumnsError, WordRows, read_word_rows
from probe.data.layout import Layout
from probe.data.split import Split, lines_of

FORM, UPOS = 1, 3  # columns


def read_conllu(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads words from column FORM and tags from data.tag_column, whose default is UPOS if data.task=tags."""
    with closing(lines_of(file, remedy)) as lines:
        return _read(WordRows(lines, _in_conllu(layout), str(file), _is_no_word), with_tags=True)


def read_conllu_without_tags(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    return _read(WordRows(lines, _in_conllu(layout), origin, _is_no_word), with_tags=False)


def _in_conllu(layout: Layout) -> Layout:
    is_default = layout.task == "tags" and layout.tag_column == Layout.tag_column
    return replace(
        layout,
        word_column=FORM,
        tag_column=UPOS if is_default else layout.tag_column,
        separator="tab",
        comment="#",
        document_marker="# newdoc",
        word_prefix=None,
    )


def _is_no_word(columns: list[str], position: int, place: str) -> bool:
    """Returns whether a line is a multiword range or an empty node. Raises UserError for a wrong word index."""
    if RANGE.fullmatch(columns[0]) or EMPTY_NODE.fullmatch(columns[0]):
        return True
    if columns[0] != str(position):
        raise UserError(
            f"{place}: the first column is {columns[0]!r}, not {position}: CoNLL-U counts the words of a sentence from "
            "1, and separates columns by tabs and sentences by empty lines. Give other column files another ending."
        )
    return False


def _read(rows: WordRows, with_tags: bool) -> Split:
    try:
        return read_word_rows(rows, with_tags)
    except ColumnsError as error:
        raise UserError(f"{error.found} CoNLL-U has ten columns, of which UPOS is data.tag_column=3.") from None
