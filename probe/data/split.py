"""One split of a corpus, words and tags as its source has them, and what every reader holds to.

Readers are strict: what does not fit is refused with its file and line, invisible characters shown escaped. Nothing is
padded, guessed or dropped; what is skipped by rule (comments, rows without words) and what cannot be meant (byte order
marks before lines, blanks behind, what is invisible around a tag) is counted.
"""

from __future__ import annotations

import codecs
import gzip
import unicodedata
import zlib
from bisect import bisect
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from probe.config import UserError
from probe.data.sentences import Sentences
from probe.data.task import Task

WITHOUT_RANGES = "grep -vE '^[0-9]+[-.][0-9]+[[:blank:]]' FILE > NEW."
MAX_SENTENCE = 10_000  # words; more, and the empty lines between sentences are missing


@dataclass(frozen=True)
class SplitCounts:
    """How much a split holds. documents: None where the source knows none. Of spans and tags, what the task has."""

    documents: int | None
    sentences: int
    words: int
    spans: int | None = None
    tags: int | None = None  # different ones
    span_words: int | None = None
    longest: int | None = None  # words of the longest sentence


@dataclass
class Split:
    """One split: sentence i has words[i] and tags[i], and begins at line lines[i] of `origin`.

    What is read of a source are `Sentences`, since all that is done with a text keeps it in memory.
    """

    words: Sequence[list[str]]
    tags: Sequence[list[str]]
    documents: list[int] | None  # the document of each sentence, rising; None where the source knows none
    lines: MutableSequence[int]
    origin: str
    word_a_line: bool = False  # column files; elsewhere a line is a sentence
    comments: list[int] = field(default_factory=list)  # lines that were skipped because they are comments
    empty: int = 0  # rows that were skipped because they hold no word
    order_marks: int = 0  # lines after the first that began with a byte order mark, which was taken off
    trailing: int = 0  # lines with blanks or tabs behind their tag that would be a column or part of it, taken off
    invisible: int = 0  # tags with other characters around them that nobody sees, which were taken off
    separator: str = ""  # of column files, as it was found
    num_columns: int = 0  # of column files

    @property
    def lengths(self) -> list[int]:
        """How many words each sentence has."""
        return Sentences.of(self.words).lengths

    @property
    def num_words(self) -> int:
        return sum(self.lengths)

    def counts(self, task: Task) -> SplitCounts:
        documents = None if self.documents is None else len(set(self.documents))
        longest = max(self.lengths, default=0)
        if not task.has_spans:
            tags = len(set(chain.from_iterable(self.tags)))
            return SplitCounts(documents, len(self.words), self.num_words, tags=tags, longest=longest)
        of_spans = [end - start for tags in self.tags for _, start, end in task.items(tags)]
        return SplitCounts(documents, len(self.words), self.num_words, len(of_spans), None, sum(of_spans), longest)

    def place(self, position: int) -> str:
        """Where the split's word number `position` (from 0) stands, for messages."""
        for sentence, words in enumerate(self.words):
            if position < len(words):
                return self.place_in(sentence, position)
            position -= len(words)
        raise IndexError(f"{self.origin} has {self.num_words} words")

    def place_in(self, sentence: int, position: int) -> str:
        """Where word number `position` (from 0) of a sentence stands, for messages."""
        text, line = self.words[sentence][position], self.lines[sentence]
        shown = repr(text if len(text) <= 30 else text[:27] + "...")
        if not self.word_a_line:
            return f"{self.origin}:{line}, word {position + 1} of the sentence ({shown})"
        first, line = bisect(self.comments, line), line + position
        while first < len(self.comments) and self.comments[first] <= line:  # comments inside the sentence
            first, line = first + 1, line + 1
        return f"{self.origin}:{line} ({shown})"


GZIP = b"\x1f\x8b"  # a gzip file begins with it
BYTE_ORDER_MARK = "\ufeff"  # a file begins with it, and so does each part of files that were joined


def lines_of(file: Path, remedy: str) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped if its name ends in .gz, without a byte order mark before the first.

    One at a time, as `split("\\n")` would give them: the whole file at once takes many times its own room.
    """
    number, line = 0, b"\n"
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                text = line.removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")
                if number <= 2 and text.count("\0") > len(text) / 4:
                    raise UserError(f"{file}:{number}: this looks like UTF-16. {_converted(_utf_16(line, number))}")
                yield text
        if line.endswith(b"\n"):
            yield ""
    except FileNotFoundError:
        raise UserError(f"{file} does not exist. {remedy}") from None
    except UnicodeDecodeError as error:
        if number == 1 and error.object[:2] == GZIP and file.suffix != ".gz":
            named = "though its name does not end in .gz: mv FILE FILE.gz, or gunzip < FILE > NEW."
            raise UserError(f"{file} is gzip, {named}") from None
        coding = "LATIN1"
        if error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            coding = "UTF-16"
        elif 0 in error.object:
            coding = _utf_16(error.object, number)
        raise UserError(
            f"{file}:{number}: byte 0x{error.object[error.start]:02x} is not UTF-8. If it is {coding}: "
            f"{_converted(coding)}"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file} is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}. {remedy}".rstrip()) from None


def _utf_16(line: bytes, number: int) -> str:
    """Which UTF-16 without a mark a line is: of what is ASCII too, one of two bytes is 0."""
    return "UTF-16BE" if number == 1 and line.startswith(b"\0") else "UTF-16LE"


def _converted(coding: str) -> str:
    return f"iconv -f {coding} -t UTF-8 FILE > NEW."


def too_long(num_words: int) -> str:
    return (
        f"a sentence of {num_words} words or more; {MAX_SENTENCE} is the most that can be handled. "
        "Are the empty lines between sentences missing?"
    )


JOINERS = "\u200c\u200d"  # stand inside words of some scripts


def bare_tag(tag: str) -> str:
    """The tag without the blanks, byte order marks and zero-width characters around it; where there is no more, as it
    is."""
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


def hidden_in(tag: str) -> str | None:
    """The first character of a tag that nobody sees and that would silently make it another one."""
    if tag.isprintable():
        return None
    odd = (one for one in tag if unicodedata.category(one) in ("Cc", "Cf", "Cs") and one not in JOINERS)
    return next(odd, None)


def check_tag(tag: str, place: str) -> None:
    if not tag or any(character.isspace() for character in tag):
        raise UserError(f"{place}: tag {tag!r} is empty or holds white space.")
    if hidden := hidden_in(tag):
        raise UserError(f"{place}: tag {tag!r} holds {hidden!r}, which nobody sees. Take it out of the tag.")
    if tag == "_":
        raise UserError(f"{place}: tag '_' stands for no tag.")
