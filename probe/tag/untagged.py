"""Text to be tagged: running lines, JSON lines, or column files, of which only the words are read and every column is
kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from probe.config import UserError
from probe.data.columns import ColumnsError, Layout, Rows, cut_line
from probe.data.sentences import Sentences
from probe.data.split import MAX_SENTENCE, Split, bare_tag, too_long

INPUTS = ("auto", "columns", "json", "text")  # how a text to be tagged is read; auto: as what it looks like


@dataclass
class Untagged:
    """split: the words, its tags all O. how: it was read, for people. columns: of every word of a column file.
    has_tabs: between these. markers: lines between documents, cut into columns, by the number of the sentence that they
    stand before. One with as many columns as a word has got the tag O; any other is as it was."""

    split: Split
    how: str
    columns: list[list[list[str]]] | None = None
    has_tabs: bool = False
    markers: Mapping[int, list[list[str]]] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """How it was read, and how much of it there is."""
        documents = "no documents" if self.split.documents is None else f"{len(set(self.split.documents))} documents"
        return (
            f"{self.split.origin}: read as {self.how}: {len(self.split.words)} sentences, "
            f"{self.split.num_words} words, {documents}"
        )


def looks_like_columns(text: str, layout: Layout, kinds: Collection[str]) -> bool:
    """Whether a text is a column file: all lines have one column, or equally many with tags in the tag column.

    kinds: the types of spans, or the tags, that a probe knows.
    """
    try:
        rows = [columns for _, _, columns in Rows(text.split("\n"), layout, "") if columns]
    except ColumnsError:
        return False
    if not rows or len(rows[0]) == 1:
        return bool(rows)
    if not -len(rows[0]) <= layout.tag_column < len(rows[0]):
        return False
    tags = {bare_tag(row[layout.tag_column]) for row in rows}
    return all(tag == "O" or tag in kinds or tag[2:] in kinds for tag in tags)


def read_columns_of_words(text: str, layout: Layout, origin: str) -> Untagged:
    """A column file's words, by sentence; lines with a document marker separate documents. Raises UserError."""
    split = Split([], [], [], [], origin, word_a_line=True)
    sentences: list[list[str]] = []
    kept: list[list[list[str]]] = []
    markers: dict[int, list[str]] = defaultdict(list)
    document, is_open = 0, False
    assert split.documents is not None
    rows = Rows(text.split("\n"), layout, origin)
    for number, line, row in _told_of_text(rows):
        if not row:
            is_open = False
            if row is not None:
                document += 1
                markers[len(sentences)].append(line)
            continue
        if not -len(row) <= layout.word_column < len(row):
            there = f"{len(row)} columns; there is no data.word_column={layout.word_column}."
            raise UserError(f"{origin}:{number}: {there}")
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
    split.comments = [number for number, _ in rows.comments]
    if not markers:
        split.documents = None
    between = {at: [_marker_row(line, rows) for line in lines] for at, lines in markers.items()}
    how = f"columns, {rows.num_columns} a line"
    return Untagged(_settled(split, sentences), how, kept, rows.separator == "tab", between)


def _marker_row(line: str, rows: Rows) -> list[str]:
    columns = cut_line(line, line.strip(" \t"), rows.separator)
    is_row = len(columns) == rows.num_columns and rows.layout.document_marker in columns
    return [*columns, "O"] if is_row else [line]


def _told_of_text(rows: Rows) -> Iterator[tuple[int, str, list[str] | None]]:
    """The rows; what is wrong with one says how it would be read as text."""
    try:
        yield from rows
    except ColumnsError as error:
        raise UserError(f"{error.found} Running text: --input text.") from None


def read_running(lines: list[list[str]], origin: str) -> Untagged:
    """Words of running text, a sentence a line; an empty line stands between documents. Raises UserError."""
    split = Split([], [], [], [], origin)
    document = 0
    assert split.documents is not None
    for number, words in enumerate(lines, 1):
        document += not words
        if len(words) > MAX_SENTENCE:
            raise UserError(
                f"{origin}:{number}: a line of {len(words)} words. Of running text a line is a sentence, of at most "
                f"{MAX_SENTENCE} words: put each on a line of its own."
            )
        if words:
            split.lines.append(number)
            split.documents.append(document)
    return Untagged(_settled(split, filter(None, lines)), "running text")


def _settled(split: Split, sentences: Iterable[list[str]]) -> Split:
    split.words = Sentences.of(sentences)
    if not split.words:
        raise UserError(f"{split.origin} holds no word.")
    split.tags = Sentences.of(["O"] * length for length in split.lengths)
    return split
