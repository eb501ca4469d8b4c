"""Describes one split of a corpus, with the words and tags of its source, and the checks that all readers share.

Readers are strict. They refuse an unexpected line with file and line number, and show invisible characters escaped.
They never pad, guess or drop. They count what they skip by rule (comments, rows without words) and what they remove
(blanks at line ends, blanks and invisible characters around a word or a tag).
"""

from __future__ import annotations

import contextlib
import gzip
import operator
import re
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probe.config import UserError

MAX_SENTENCE = 10_000  # words; with more, the empty lines between sentences are missing
BYTE_ORDER_MARK = "\ufeff"  # a file may begin with it, and so may each part of files that were joined
JOINERS = "\u200c\u200d"  # invisible characters that are part of words in some scripts
# White space, and characters without width that are no part of a word: the soft hyphen, the zero-width space, marks of
# direction, the word joiner and the byte order mark. Joiners and the characters at the end of some flags stay.
AROUND_WORD = "".join(filter(str.isspace, map(chr, range(0x3001))))
AROUND_WORD += "\u00ad\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
MOST_BYTES = 1 << 28  # of a line
MOST_MISTAKES = 10  # that an error lists for one file
CUT_WORDS = "words cut where a span begins or ends"  # a count of `Split.skipped`
BROKEN = re.compile("[\t\n\r\ud800-\udfff]")  # a word with it could not be read back
OF_SENTENCES = ("words", "tags", "documents", "lines", "raw", "ids", "starts", "word_lines")  # fields of `Split`


@dataclass(frozen=True)
class SplitCounts:
    """Holds the size of a split. documents: None if the source marks none. spans or tags: None, by task."""

    documents: int | None
    sentences: int
    words: int
    spans: int | None = None
    tags: int | None = None  # distinct ones
    span_words: int | None = None
    longest: int | None = None  # words of the longest sentence


@dataclass
class Split:
    """Holds one split: sentence i has words[i] and tags[i], and begins at line lines[i] of `origin`.

    tags[i] has a tag for each word, or one label if the task is one per sentence. Readers intern the strings, since a
    text stays in memory: each distinct word is stored once.
    """

    words: list[list[str]]
    tags: list[list[str]]
    documents: list[int] | None  # the document of each sentence, ascending; None if the source marks none
    lines: MutableSequence[int]
    origin: str
    raw: list[Any] | None = None  # the text in which each sentence stands, if it was read as one; or messages
    ids: list[Any] | None = None  # of each sentence with one label, or of a text to be tagged, if the source has them
    document_names: set[str] = field(default_factory=set)  # of all documents that the source names
    starts: list[Sequence[int]] | None = None  # where each sentence's words begin in its text, if they were cut from it
    # The line of each word, in column files and CoNLL-U; in other formats, a line has a whole sentence.
    word_lines: list[Sequence[int]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # what was skipped or removed, by its name
    separator: str = ""  # of files with columns, as detected
    num_columns: int = 0  # of column files
    columns: list[list[list[str]]] | None = None  # all columns of each word, if the split was read without tags
    markers: dict[int, list[str]] = field(default_factory=dict)  # lines between documents, by sentences before them

    @property
    def texts(self) -> Iterator[Any]:
        """Yields each sentence as its model reads it: a text, or messages. Blanks join what was given as words."""
        return iter(self.raw) if self.raw else map(" ".join, self.words)

    @property
    def lengths(self) -> list[int]:
        """Returns the number of words of each sentence."""
        return list(map(len, self.words))

    @property
    def num_words(self) -> int:
        return sum(self.lengths)

    def take(self, sentences: Sequence[int]) -> Split:
        """Returns a split of these sentences, by their numbers from 0."""
        parts = ((name, getattr(self, name)) for name in OF_SENTENCES)
        taken: dict[str, Any] = {name: part and [part[i] for i in sentences] for name, part in parts}
        return replace(self, **taken)

    def by_unit(self, units: Callable[[list[str]], list[str]]) -> Split:
        """Returns the split with an entry of `words` for each label. units: see `Task`."""
        return replace(self, words=list(map(units, self.words)))

    def counts(self, of_tags: Mapping[str, int]) -> SplitCounts:
        documents = None if self.documents is None else len(set(self.documents))
        return SplitCounts(documents, len(self.words), self.num_words, longest=max(self.lengths, default=0), **of_tags)

    def places_of(self, tag: str) -> Iterator[str]:
        """Yields the places of a tag, for messages."""
        for sentence, tags in enumerate(self.tags):
            for position, found in enumerate(tags):
                if found == tag:
                    yield self.place_in(sentence, position)

    def place(self, position: int) -> str:
        """Returns file and line of the split's word number `position` (from 0), for messages."""
        for sentence, words in enumerate(self.words):
            if position < len(words):
                return self.place_in(sentence, position)
            position -= len(words)
        raise IndexError(f"{self.origin} has {self.num_words} words")

    def place_in(self, sentence: int, position: int) -> str:
        """Returns file and line of word number `position` (from 0) of a sentence, for messages."""
        text = self.words[sentence][position]
        if len(self.tags[sentence]) < len(self.words[sentence]):  # one label for all of them
            return f"{self.origin}:{self.lines[sentence]}"
        shown = repr(text if len(text) <= 30 else text[:27] + "...")
        if not self.word_lines:
            return f"{self.origin}:{self.lines[sentence]}, word {position + 1} of the sentence ({shown})"
        return f"{self.origin}:{self.word_lines[sentence][position]} ({shown})"


def lines_of(file: Path) -> Generator[str, None, None]:
    """Yields the lines of a UTF-8 file, gzipped if its name ends in .gz, without a byte order mark before the first.

    The lines are those of `split("\\n")`, one at a time, because the whole file takes many times its size in memory.
    """
    number, line = 0, b"\n"
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(MOST_BYTES), b""), 1):
                if len(line) == MOST_BYTES:
                    raise UserError(f"{file}:{number}: a line of {MOST_BYTES >> 20} MiB or more.")
                yield line.removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")
        if line.endswith(b"\n"):
            yield ""
    except UnicodeDecodeError as error:
        found = f"{file}:{number}: byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise UserError(f"{found}. The file must be UTF-8; if it is gzip, its name must end in .gz.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file} is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None


def too_long(num_words: int) -> str:
    return (
        f"a sentence of {num_words} words or more; the most is {MAX_SENTENCE}. "
        "Are line ends missing, or empty lines between sentences?"
    )


class SplitBuilder:
    """Makes a split of one sentence after another, with the checks that all formats share.

    known_tags: each distinct tag as it was written, and without what was around it. document: the number of the current
    document; 0 before the first mark of one. blanks: whether a tag may have blanks inside.
    """

    def __init__(self, origin: str, blanks: bool = False) -> None:
        self.split = Split([], [], [], array("I"), origin)
        self.known_tags: dict[str, str] = {}
        self.document = 0
        self._inside = {*JOINERS, " "} if blanks else {*JOINERS}
        self._documents: list[int] = []
        self._mistakes: list[str] = []

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Keeps a mistake for `done`, so that the next ones are found too. Raises UserError at the tenth."""
        try:
            yield
        except UserError as error:
            if len(self._mistakes) < MOST_MISTAKES:
                self._mistakes.append(str(error))
            if len(self._mistakes) == MOST_MISTAKES:
                raise UserError("\n".join(self._mistakes)) from None

    def add(
        self,
        lines: Sequence[int],
        words: Sequence[str],
        tags: Sequence[str],
        raw: Any = None,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Adds a sentence. lines: of each word, or the line of all. raw, starts: see `Split`. Raises UserError."""
        split = self.split
        if not words:
            split.skipped["empty sentences"] += 1
            return
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{split.origin}:{lines[0]}: {too_long(len(words))}")
        bare = [(word.strip(" ") if word.isprintable() else word.strip(AROUND_WORD)) or word for word in words]
        split.skipped["blanks around words"] += sum(map(str.__ne__, words, bare))
        if "" in bare or BROKEN.search("".join(bare)):
            number = next(number for number, word in enumerate(bare) if not word or BROKEN.search(word))
            what = f"word {number + 1} ({bare[number]!r}) is empty, or has a tab, a line end or half a character"
            raise UserError(f"{self._place(lines, number)}: {what}.")
        for number, tag in enumerate(tags):
            if tag not in self.known_tags:
                self.known_tags[tag] = self._checked(tag, self._place(lines, number))
        bare_tags = [self.known_tags[tag] for tag in tags]
        split.skipped["blanks around tags"] += sum(map(str.__ne__, tags, bare_tags))
        split.words.append(list(map(sys.intern, bare)))
        split.tags.append(bare_tags)
        split.lines.append(lines[0])
        self._documents.append(self.document)
        if raw is not None:
            split.raw = split.raw or []
            split.raw.append(raw)
        if starts is not None:
            split.starts = split.starts or []
            inside = (word.find(bare_word) for word, bare_word in zip(words, bare, strict=True))
            split.starts.append(array("I", map(operator.add, starts, inside)))

    def done(self) -> Split:
        """Returns the split. Raises UserError for the mistakes that were kept, and if it has no sentence."""
        if self._mistakes:
            raise UserError("\n".join(self._mistakes))
        if not self.split.lines:
            raise UserError(f"{self.split.origin} holds no sentence.")
        if self.split.starts and len(self.split.starts) < len(self.split.words):
            raise UserError(f"{self.split.origin}: some rows have a list of words, others a text with spans.")
        # A text has the same documents whether a mark stands before the first of them or not.
        first = self._documents[0]
        self.split.documents = [number - first + 1 for number in self._documents] if self.document else None
        return self.split

    def _place(self, lines: Sequence[int], number: int) -> str:
        return f"{self.split.origin}:{lines[number if number < len(lines) else 0]}"

    def _checked(self, tag: str, place: str) -> str:
        """Returns the tag without blanks and invisible characters around it. Raises UserError for others inside."""
        bare = bare_tag(tag)
        if bare in ("", "_"):
            raise UserError(f"{place}: tag {bare!r} marks a word without a tag.")
        for character in bare:
            if (character == " " or not character.isprintable()) and character not in self._inside:
                found = f"tag {bare!r} has a blank or the invisible character {character!r}"
                raise UserError(f"{place}: {found}.")
        return bare


def bare_tag(tag: str) -> str:
    """Removes blanks and invisible characters around a tag; a tag of nothing else is unchanged."""
    return tag.strip(AROUND_WORD + JOINERS) or tag
