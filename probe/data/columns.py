"""Column files: a word a line, an empty line between sentences."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probe.config import UserError
from probe.data.split import MAX_SENTENCE, Split, check_tag, read_text, too_long

BLANKS = re.compile(r"[ \t]+")  # other white space, a no-break space say, can stand inside a word


class ColumnsError(UserError):
    """A line whose columns are not those needed. columns: what it has. too_few: a column that was set is not there."""

    def __init__(self, message: str, columns: Sequence[str], too_few: bool = False) -> None:
        super().__init__(message)
        self.columns, self.too_few = columns, too_few


@dataclass(frozen=True)
class Layout:
    """How a column file is laid out. Columns by number from 0; negative ones count from the end."""

    word_column: int
    tag_column: int
    separator: str  # auto, whitespace, tab or space
    comment: str | None  # what lines begin with that are no words
    document_marker: str | None  # what stands first, or as the word, in a line between documents
    word_prefix: str | None  # what every word begins with and is taken off


def read_columns(file: Path, layout: Layout, remedy: str = "") -> Split:
    """A CoNLL column file: a word a line, an empty line between sentences. Tags are left as they are.

    Every line has as many columns as the first; those that are not asked for are ignored.
    """
    split = Split([], [], [], [], str(file), word_a_line=True)
    documents, document, marked = split.documents, 0, False
    assert documents is not None
    at_word, at_tag, separator, num_columns = layout.word_column, layout.tag_column, layout.separator, 0
    comment, marker, prefix = layout.comment, layout.document_marker, layout.word_prefix
    words: list[str] = []
    tags: list[str] = []
    known_tags: set[str] = set()
    comments: list[tuple[int, str]] = []

    for number, line in enumerate(read_text(file, remedy).split("\n"), start=1):
        line = line.removesuffix("\r")
        bare = line.strip(" \t")
        if not bare:
            words = tags = []
            continue
        if marker and bare.startswith(marker) and bare[len(marker) : len(marker) + 1] in ("", " ", "\t"):
            words = tags = []
            document, marked = document + 1, True
            continue
        if comment and line.startswith(comment):
            comments.append((number, line))
            continue
        if separator == "auto":
            separator = "tab" if "\t" in line else "whitespace"  # with tabs, a blank is part of a word
        columns = _cut(line, bare, separator)
        if marker and marker in columns:
            words = tags = []
            document, marked = document + 1, True
            continue
        if len(columns) != num_columns:
            if num_columns:
                raise ColumnsError(f"{file}:{number}: {_shown(columns)}; the lines before have {num_columns}.", columns)
            num_columns = len(columns)
            at_word, at_tag = _settle(layout, columns, f"{file}:{number}")
        word, tag = columns[at_word], columns[at_tag]
        if tag not in known_tags:
            check_tag(tag, f"{file}:{number}")
            known_tags.add(tag)
        if prefix:
            if not word.startswith(prefix):
                raise UserError(f"{file}:{number}: word {word!r} does not begin with data.word_prefix={prefix}.")
            word = word.removeprefix(prefix)
        if not word or "\r" in line:
            what = "a carriage return stands inside the line" if word else "the word is empty"
            raise UserError(f"{file}:{number}: {what} ({_shown(columns)}).")
        if not words:
            words, tags = [], []
            split.words.append(words)
            split.tags.append(tags)
            split.lines.append(number)
            documents.append(document)
        words.append(sys.intern(word))
        tags.append(sys.intern(tag))
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{file}:{split.lines[-1]}: {too_long(len(words))}")
    for number, line in comments:
        columns = _cut(line, line.strip(" \t"), separator)
        if len(columns) == num_columns and columns[at_tag] in known_tags:
            raise UserError(
                f"{file}:{number}: {line.strip()!r} begins like a comment (data.comment={comment}) but has a word's "
                "columns and a tag. If it is a word: data.comment=null, or what only comments begin with."
            )
    split.comments = [number for number, _ in comments]
    if not split.words:
        raise UserError(f"{file} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def _cut(line: str, bare: str, separator: str) -> list[str]:
    if separator == "tab":
        return line.split("\t")
    if separator == "space":
        return line.split(" ")
    return BLANKS.split(bare) if "\t" in bare or "  " in bare else bare.split(" ")


def _settle(layout: Layout, columns: list[str], place: str) -> tuple[int, int]:
    """The word's and the tag's column from the front, known from the first line."""
    places = []
    for name, number in (("word", layout.word_column), ("tag", layout.tag_column)):
        if not -len(columns) <= number < len(columns):
            message = f"{place}: {_shown(columns)}; there is no data.{name}_column={number}."
            raise ColumnsError(message, columns, too_few=True)
        places.append(number % len(columns))
    if places[0] == places[1]:
        message = f"{place}: {_shown(columns)}; a word and its tag are needed, in two columns."
        raise ColumnsError(message, columns, too_few=True)
    return places[0], places[1]


def _shown(columns: Sequence[str]) -> str:
    text = " ".join(columns)
    count = "one column" if len(columns) == 1 else f"{len(columns)} columns"
    return f"{count} ({text if len(text) <= 60 else text[:57] + '...'!r})"
