"""Text to be tagged: running lines, or column files of which only the words are read and every column is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from probe.config import UserError
from probe.data.columns import Layout, cut_line
from probe.data.sentences import Sentences
from probe.data.split import MAX_SENTENCE, Split, too_long

INPUTS = ("auto", "columns", "text")  # how a text to be tagged is read; auto: as what it looks like


@dataclass
class Untagged:
    """split: the words, its tags all O. columns: of every word as they were given; None for running text."""

    split: Split
    columns: list[list[list[str]]] | None = None

    @property
    def told(self) -> str:
        """How it was read, for people."""
        how = "running text" if self.columns is None else f"columns, {len(self.columns[0][0])} a line"
        documents = "no documents" if self.split.documents is None else f"{len(set(self.split.documents))} documents"
        return (
            f"{self.split.origin}: read as {how}: {len(self.split.words)} sentences, {self.split.num_words} words, "
            f"{documents}"
        )


def looks_like_columns(text: str, layout: Layout, kinds: Collection[str]) -> bool:
    """Whether a text is a column file: all lines have one column, or equally many with tags in the tag column.

    kinds: the types of spans, or the tags, that a probe knows.
    """
    rows = list(_rows(text, layout))
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return widths == {1}
    if not -len(rows[0]) <= layout.tag_column < len(rows[0]):
        return False
    tags = {row[layout.tag_column] for row in rows}
    return all(tag == "O" or tag in kinds or tag[2:] in kinds for tag in tags)


def read_columns_of_words(text: str, layout: Layout, origin: str) -> Untagged:
    """A column file's words, by sentence; lines with a document marker separate documents. Raises UserError."""
    split = Split([], [], [], [], origin, word_a_line=True)
    sentences: list[list[str]] = []
    kept: list[list[list[str]]] = []
    document, width, is_open, marked = 0, 0, False, False
    assert split.documents is not None
    separator = _separator(text, layout)
    for number, line in enumerate(_lines(text), 1):
        if not line.strip(" \t"):
            is_open = False
            continue
        if _is_mark(line, layout):
            is_open, marked, document = False, True, document + 1
            continue
        if layout.comment and line.startswith(layout.comment):
            split.comments.append(number)
            continue
        row = cut_line(line, line.strip(" \t"), separator)
        if width and len(row) != width:
            raise UserError(
                f"{origin}:{number}: {len(row)} columns; the lines before have {width}. Running text: --input text."
            )
        width = len(row)
        if not -width <= layout.word_column < width:
            raise UserError(f"{origin}:{number}: {width} columns; there is no data.word_column={layout.word_column}.")
        word = row[layout.word_column].removeprefix(layout.word_prefix or "")
        if not word:
            raise UserError(f"{origin}:{number}: the word is empty ({line[:60]!r}).")
        if not is_open:
            is_open = True
            sentences.append([])
            split.lines.append(number)
            split.documents.append(document)
            kept.append([])
        sentences[-1].append(word)
        kept[-1].append(row)
        if len(sentences[-1]) > MAX_SENTENCE:
            raise UserError(f"{origin}:{split.lines[-1]}: {too_long(len(sentences[-1]))}")
    if not marked:
        split.documents = None
    return Untagged(_settled(split, sentences), kept)


def read_running(lines: list[list[str]], origin: str) -> Untagged:
    """Words of running text, a sentence a line; an empty line stands between documents. Raises UserError."""
    split = Split([], [], [], [], origin)
    document = 0
    assert split.documents is not None
    for number, words in enumerate(lines, 1):
        document += not words
        if words:
            split.lines.append(number)
            split.documents.append(document)
    return Untagged(_settled(split, filter(None, lines)))


def _settled(split: Split, sentences: Iterable[list[str]]) -> Split:
    split.words = Sentences.of(sentences)
    if not split.words:
        raise UserError(f"{split.origin} holds no word.")
    split.tags = Sentences.of(["O"] * length for length in split.lengths)
    return split


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def _rows(text: str, layout: Layout) -> Iterator[list[str]]:
    """The columns of every line that holds a word."""
    separator = _separator(text, layout)
    for line in _lines(text):
        is_comment = layout.comment is not None and line.startswith(layout.comment)
        if line.strip(" \t") and not is_comment and not _is_mark(line, layout):
            yield cut_line(line, line.strip(" \t"), separator)


def _separator(text: str, layout: Layout) -> str:
    """For "auto", tabs where there are any, as a blank is part of a word then; else white space."""
    return layout.separator if layout.separator != "auto" else "tab" if "\t" in text else "whitespace"


def _is_mark(line: str, layout: Layout) -> bool:
    return layout.document_marker is not None and layout.document_marker in line.split()
