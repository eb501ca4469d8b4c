"""Describes one split of a corpus, with the words and tags of its source, and the checks that all readers share.

Readers are strict. They refuse an unexpected line with file and line number, and show invisible characters escaped.
They never pad, guess or drop. They count what they skip by rule (comments, rows without words) and what they remove
(byte order marks before lines, blanks at line ends, blanks and invisible characters around a word or a tag).
"""

from __future__ import annotations

import codecs
import gzip
import re
import unicodedata
import zlib
from array import array
from bisect import bisect
from collections.abc import Callable, Generator, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from probe.config import UserError
from probe.data.sentences import Sentences

MAX_SENTENCE = 10_000  # words; with more, the empty lines between sentences are missing
GZIP = b"\x1f\x8b"  # a gzip file begins with it
BYTE_ORDER_MARK = "\ufeff"  # a file may begin with it, and so may each part of files that were joined
JOINERS = "\u200c\u200d"  # invisible characters that are part of words in some scripts
# White space, and characters without width that are no part of a word: the soft hyphen, the zero-width space, marks of
# direction, the word joiner and the byte order mark. Joiners and the characters at the end of some flags stay.
BLANK = r"[\s\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]+"
AROUND_WORD = re.compile(rf"\A{BLANK}|{BLANK}\Z")


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

    tags[i] has a tag for each word, or one label if the task is one per sentence.

    Readers give `Sentences`, which take little memory, as a text stays in memory throughout.
    """

    words: Sequence[list[str]]
    tags: Sequence[list[str]]
    documents: list[int] | None  # the document of each sentence, ascending; None if the source marks none
    lines: MutableSequence[int]
    origin: str
    word_a_line: bool = False  # in column files and CoNLL-U; in other formats, a line has a whole sentence
    skipped_lines: list[int] = field(default_factory=list)  # comments, and lines of CoNLL-U that are not words
    not_words: int = 0  # how many of these are such lines of CoNLL-U
    header: int = 0  # the line before the first word that names the columns and was skipped; 0 if there is none
    empty: int = 0  # rows that were skipped because they have no words
    order_marks: int = 0  # lines after the first that began with a byte order mark, which was removed
    trailing: int = 0  # lines from which blanks or tabs behind the tag were removed
    around_words: int = 0  # words from which blanks or invisible characters around them were removed
    invisible: int = 0  # tags from which other invisible characters around them were removed
    separator: str = ""  # of column files, as detected
    num_columns: int = 0  # of column files
    columns: list[list[list[str]]] | None = None  # all columns of each word, if the split was read without tags
    markers: Mapping[int, list[str]] = field(default_factory=dict)  # lines between documents, by sentences before them

    @property
    def lengths(self) -> list[int]:
        """Returns the number of words of each sentence."""
        return Sentences.of(self.words).lengths

    def bare_words(self, words: Sequence[str]) -> list[str]:
        """Removes blanks and invisible characters around words, and counts such words. A word of nothing else stays."""
        bare = [(word.strip(" ") if word.isprintable() else AROUND_WORD.sub("", word)) or word for word in words]
        self.around_words += sum(map(str.__ne__, words, bare))
        return bare

    @property
    def num_words(self) -> int:
        return sum(self.lengths)

    def take(self, sentences: Sequence[int]) -> Split:
        """Returns a split of these sentences, by their numbers from 0."""
        return replace(
            self,
            words=Sentences.of(self.words[i] for i in sentences),
            tags=Sentences.of(self.tags[i] for i in sentences),
            documents=None if self.documents is None else [self.documents[i] for i in sentences],
            lines=array("I", (self.lines[i] for i in sentences)),
        )

    def pairs(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yields words and tags of each sentence."""
        return zip(self.words, self.tags, strict=True)

    def by_unit(self, units: Callable[[list[str]], list[str]]) -> Split:
        """Returns the split with an entry of `words` for each label. units: see `Task`."""
        return replace(self, words=Sentences.of(map(units, self.words)))

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
        text, line = self.words[sentence][position], self.line_of(sentence, position)
        shown = repr(text if len(text) <= 30 else text[:27] + "...")
        if not self.word_a_line:
            return f"{self.origin}:{line}, word {position + 1} of the sentence ({shown})"
        return f"{self.origin}:{line} ({shown})"

    def line_of(self, sentence: int, position: int) -> int:
        """Returns the line of word number `position` (from 0) of a sentence."""
        line = self.lines[sentence]
        if not self.word_a_line:
            return line
        first, line = bisect(self.skipped_lines, line), line + position
        while first < len(self.skipped_lines) and self.skipped_lines[first] <= line:  # inside the sentence
            first, line = first + 1, line + 1
        return line


def lines_of(file: Path, remedy: str = "") -> Generator[str, None, None]:
    """Yields the lines of a UTF-8 file, without a byte order mark before the first.

    Gzip is read if the name ends in .gz.

    The lines are those of `split("\\n")`, one at a time, because the whole file takes many times its size in memory.
    """
    number, line = 0, b"\n"
    utf_16 = "This looks like UTF-16; the file must be UTF-8."
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")
                if number <= 2 and text.count("\0") > len(text) / 4:
                    raise UserError(f"{file}:{number}: many bytes are 0. {utf_16}")
                yield text
        if line.endswith(b"\n"):
            yield ""
    except FileNotFoundError:
        raise UserError(f"{file} does not exist. {remedy}") from None
    except UnicodeDecodeError as error:
        if number == 1 and error.object[:2] == GZIP and file.suffix != ".gz":
            raise UserError(f"{file} is gzip: its name must end in .gz.") from None
        is_utf_16 = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or 0 in error.object
        hint = utf_16 if is_utf_16 else "The file must be UTF-8."
        raise UserError(f"{file}:{number}: byte 0x{error.object[error.start]:02x} is not UTF-8. {hint}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file} is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}. {remedy}".rstrip()) from None


def too_long(num_words: int) -> str:
    return (
        f"a sentence of {num_words} words or more; the most is {MAX_SENTENCE}. "
        "Are the empty lines between sentences missing?"
    )


def bare_tag(tag: str) -> str:
    """Removes blanks and invisible characters around a tag; a tag of nothing else is unchanged."""
    if tag.isprintable():
        return tag.strip(" ") or tag
    first, last = 0, len(tag)
    while first < last and _is_blank(tag[first]):
        first += 1
    while first < last and _is_blank(tag[last - 1]):
        last -= 1
    return tag[first:last] or tag


def _is_blank(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) == "Cf"


def check_tag(tag: str, place: str, may_have_blanks: bool = False) -> None:
    """Refuses a tag that is empty, is `_`, or has white space or invisible characters inside.

    may_have_blanks: whether blanks inside are allowed, as in the label of a sentence.
    """
    if not tag or any(character.isspace() and not (may_have_blanks and character == " ") for character in tag):
        raise UserError(f"{place}: tag {tag!r} is empty or has white space.")
    if tag == "_":
        raise UserError(f"{place}: tag '_' marks a word without a tag.")
    if not tag.isprintable():
        for character in tag:
            if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in JOINERS:
                hint = "Is the file UTF-16? It must be UTF-8." if character == "\0" else "Remove it from the tag."
                raise UserError(f"{place}: tag {tag!r} has the invisible character {character!r}. {hint}")
