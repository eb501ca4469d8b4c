"""Column files: a word a line, an empty line between sentences."""

from __future__ import annotations

import json
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe.config import UserError
from probe.data.sentences import Packing
from probe.data.split import (
    BYTE_ORDER_MARK,
    MAX_SENTENCE,
    WITHOUT_RANGES,
    Split,
    bare_tag,
    check_tag,
    hidden_in,
    lines_of,
    too_long,
)
from probe.data.tags import PREFIXED

BLANKS = re.compile(r"[ \t]+")  # other white space, a no-break space say, can stand inside a word
RANGE = re.compile(r"\d+-\d+")  # the index of several words, in CoNLL-U
EMPTY_NODE = re.compile(r"\d+\.\d+")  # the index of a word that is not in the text, in CoNLL-U
COMMENT = re.compile(r"#|%+|//|;+")  # what comments often begin with
NUMBER = re.compile(r"\d+([-.]\d+)?")
NEARLY_ALL = 0.9
NEW_DOCUMENT = re.compile(r"# ?newdoc")


class ColumnsError(UserError):
    """A line whose columns are not those needed.

    found: what it is, without the settings that may help. columns: what the line has. too_few: a column that was set is
    not there.
    """

    def __init__(self, found: str, hint: str, columns: Sequence[str], too_few: bool = False) -> None:
        super().__init__(f"{found}{hint}")
        self.found, self.columns, self.too_few = found, columns, too_few


@dataclass(frozen=True)
class Layout:
    """How a column file is laid out. Columns by number from 0; negative ones count from the end."""

    word_column: int
    tag_column: int
    separator: str  # auto, whitespace, tab or space
    comment: str | None  # prefix of comment lines
    document_marker: str | None  # begins a line between documents, or is one of its columns
    word_prefix: str | None  # prefix of every word, removed


@dataclass
class Rows:
    """The lines of a column file, cut into columns, for all who read one; and what was passed over on the way.

    separator: as the first line with a word settles "auto". first, num_columns: that line, and how many columns it has.
    order_marks: lines with a byte order mark before them. trailing: lines without their empty trailing columns.
    comments: by number.
    """

    lines: Iterable[str]
    layout: Layout
    origin: str
    separator: str = ""
    first: str = ""
    num_columns: int = 0
    order_marks: int = 0
    trailing: int = 0
    comments: list[tuple[int, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """The number of each line, the line and its columns; no columns between documents, None between sentences.

        Every line has as many columns as the first. Empty trailing ones are dropped: of the first line where the word's
        or the tag's column is counted from the end, of later lines beyond the first's number. Raises ColumnsError.
        """
        comment, marker, separator = self.layout.comment, self.layout.document_marker, self.layout.separator
        num_columns = 0
        for number, line in enumerate(self.lines, start=1):
            line = line.removesuffix("\r")
            if line.startswith(BYTE_ORDER_MARK):
                self.order_marks += _without_mark(line) != line
                line = _without_mark(line)
            bare = line.strip(" \t")
            if not bare:
                yield number, line, None
                continue
            if marker and bare.startswith(marker) and bare[len(marker) : len(marker) + 1] in ("", " ", "\t"):
                yield number, line, []
                continue
            if comment and line.startswith(comment):
                self.comments.append((number, line))
                continue
            if separator == "auto":
                separator = "tab" if "\t" in bare else "whitespace"  # with tabs, a blank is part of a word
            columns = cut_line(line, bare, separator)
            if marker and marker in columns:
                yield number, line, []
                continue
            if len(columns) != num_columns:
                bound = num_columns or _last_needed(self.layout, columns)
                if len(columns) > bound and not "".join(columns[bound:]).strip(" "):
                    columns = columns[:bound]
                    self.trailing += 1
                if num_columns and len(columns) != num_columns:
                    found = f"{self.origin}:{number}: {_shown(columns, line)}; the lines before have {num_columns}."
                    raise ColumnsError(found, _hint(line, self.first, separator), columns)
                if not num_columns:
                    num_columns = len(columns)
                    self.first, self.num_columns, self.separator = line, num_columns, separator
            yield number, line, columns


def read_columns(file: Path, layout: Layout, remedy: str = "") -> Split:
    """A CoNLL column file: a word a line, an empty line between sentences. Tags are left as they are.

    Columns not asked for are ignored; see `Rows` for what is read as what.
    """
    split = Split([], [], [], array("I"), str(file), word_a_line=True)
    documents, document, marked = split.documents, 0, False
    assert documents is not None
    places: tuple[int, int] | None = None
    prefix = layout.word_prefix
    all_words, all_tags = Packing(), Packing()
    words: list[str] = []  # of the sentence at hand
    tags: list[str] = []
    known_tags: set[str] = set()
    several = ""

    def end_sentence() -> None:
        if words:
            all_words.add(words)
            all_tags.add(tags)
            words.clear()
            tags.clear()

    rows = Rows(lines_of(file, remedy), layout, str(file))
    for number, line, columns in rows:
        if "\r" in line:
            change = "'\\r' '\\n'" if "\r" in line.rstrip("\r") else "-d '\\r'"
            shown = _shown(cut_line(line, line, rows.separator), line)
            found = f"{file}:{number}: a carriage return stands inside the line ({shown})."
            raise UserError(f"{found} To mend that: tr {change} < FILE > NEW.")
        if not columns:
            end_sentence()
            if columns is not None:
                document, marked = document + 1, True
            continue
        if places is None:
            places = at_word, at_tag = _settle(layout, columns, f"{file}:{number}: {_shown(columns, line)}", line)
        word, tag = columns[at_word], columns[at_tag]
        if tag not in known_tags:
            if tag != (bare := bare_tag(tag)):
                if bare == tag.strip():
                    split.trailing += 1
                else:
                    split.invisible += 1
                tag = bare
            try:
                check_tag(tag, f"{file}:{number}")
            except UserError as error:
                raise ColumnsError(str(error), _tag_hint(tag, columns), columns) from None
            known_tags.add(tag)
        if several and columns[0] == several and words and at_word:
            raise UserError(
                f"{file}:{number - 1}: a line for several words ({columns[0]}-...) stands before them, so they would "
                f"be read twice. To leave such lines out: {WITHOUT_RANGES}"
            )
        several = columns[0].partition("-")[0] if "-" in columns[0] and RANGE.fullmatch(columns[0]) else ""
        if "." in columns[0] and words and at_word and EMPTY_NODE.fullmatch(columns[0]):
            raise UserError(
                f"{file}:{number}: {columns[0]} counts a word that the text does not have (an empty node of CoNLL-U). "
                f"To leave such lines out: {WITHOUT_RANGES}"
            )
        if prefix:
            if not word.startswith(prefix):
                raise UserError(
                    f"{file}:{number}: word {word!r} does not begin with data.word_prefix={prefix}. "
                    "If not every word does: data.word_prefix=null."
                )
            word = word.removeprefix(prefix)
        if not word:
            hint = " If another column has the words: data.word_column=N."
            raise ColumnsError(f"{file}:{number}: the word is empty ({_shown(columns, line)}).", hint, columns)
        if not words:
            split.lines.append(number)
            documents.append(document)
        words.append(word)
        tags.append(tag)
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{file}:{split.lines[-1]}: {too_long(len(words))}")
    end_sentence()
    split.words, split.tags = all_words.done(), all_tags.done()
    for number, line in rows.comments:
        columns = cut_line(line, line.strip(" \t"), rows.separator)
        if len(columns) == rows.num_columns and columns[at_tag] in known_tags:
            raise UserError(
                f"{file}:{number}: {line.strip()!r} begins like a comment (data.comment={layout.comment}) but has a "
                "word's columns and a tag. If it is a word: data.comment=null, or what only comments begin with."
            )
    split.comments = [number for number, _ in rows.comments]
    split.separator, split.num_columns = rows.separator, rows.num_columns
    split.order_marks, split.trailing = rows.order_marks, split.trailing + rows.trailing
    if not split.words:
        raise UserError(f"{file} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def table_of(split: Split) -> list[list[str]]:
    """The columns of every line of a column file that holds a word of the split, in their order."""
    lines, skipped = list(lines_of(Path(split.origin), "")), set(split.comments)
    rows = []
    for first, words in zip(split.lines, split.words, strict=True):
        number = first
        for _ in words:
            while number in skipped:
                number += 1
            line = _without_mark(lines[number - 1].removesuffix("\r"))
            rows.append(cut_line(line, line.strip(" \t"), split.separator)[: split.num_columns])
            number += 1
    return rows


def span_columns(table: Sequence[Sequence[str]]) -> list[int]:
    """The columns that hold O and a scheme's B-, I- and nothing else, those with most spans first."""
    width = min(map(len, table))
    found = []
    for at in range(width):
        counts = Counter(bare_tag(row[at]) for row in table)
        outside = counts.pop("O", 0)
        if outside and counts and all(PREFIXED.fullmatch(tag) for tag in counts):
            found.append((-counts.total(), at))
    return [at for _, at in sorted(found)]


def nearly_all_numbers(values: Sequence[str]) -> bool:
    return sum(NUMBER.fullmatch(value) is not None for value in values) >= NEARLY_ALL * len(values)


def wordlike_column(table: Sequence[Sequence[str]]) -> int | None:
    """Of the columns that do not hold numbers the one with most different values, if there are any."""
    kinds = {
        at: len(set(column)) for at, column in enumerate(zip(*table, strict=False)) if not nearly_all_numbers(column)
    }
    return max(kinds, key=lambda at: kinds[at], default=None)


def _without_mark(line: str) -> str:
    """The line without the byte order mark before it; where the mark is all of a word it stays."""
    rest = line.lstrip(BYTE_ORDER_MARK)
    return line if rest[:1] in (" ", "\t") else rest


def cut_line(line: str, bare: str, separator: str) -> list[str]:
    if separator == "tab":
        return line.split("\t")
    if separator == "space":
        return line.split(" ")
    return BLANKS.split(bare) if "\t" in bare or "  " in bare else bare.split(" ")


def _last_needed(layout: Layout, columns: list[str]) -> int:
    """How many columns the first line has, without empty trailing ones where a column is counted from the end."""
    last = len(columns)
    while last and min(layout.tag_column, layout.word_column) < 0 and not columns[last - 1].strip(" "):
        last -= 1
    return last


def _settle(layout: Layout, columns: list[str], shown: str, line: str) -> tuple[int, int]:
    """The word's and the tag's column from the front, known from the first line."""
    places = []
    for name, number in (("word", layout.word_column), ("tag", layout.tag_column)):
        if not -len(columns) <= number < len(columns):
            found = f"{shown}; there is no data.{name}_column={number}."
            raise ColumnsError(found, f" Columns count from 0 to {len(columns) - 1}.", columns, too_few=True)
        places.append(number % len(columns))
    if places[0] == places[1]:
        hint = _hint(line, "", "") if len(columns) == 1 else " Another: data.word_column=N data.tag_column=N."
        raise ColumnsError(f"{shown}; a word and its tag are needed, in two columns.", hint, columns, too_few=True)
    return places[0], places[1]


def _hint(line: str, first: str, separator: str) -> str:
    """What to type for a line whose columns are not those of the first line, as far as the two show it."""
    for one, which in ((line, "this"), (first, "the first line")):
        if mark := COMMENT.match(one):
            document = NEW_DOCUMENT.match(one)
            marker = f"; if it begins a document: data.document_marker={quoted(document[0])}" if document else ""
            return f" If {which} is a comment: data.comment={quoted(mark[0])}{marker}."
    for name in ("tab", "whitespace") if first else ():
        widths = {len(cut_line(one, one.strip(" \t"), name)) for one in (line, first)}
        if name != separator and len(widths) == 1 and widths != {1}:
            return f" With data.separator={name} both have {widths.pop()}."
    if len(cut_line(line, line.strip(" \t"), "whitespace")) == 1:
        separated = "" if first else " Columns are separated by tabs or blanks:"
        if separated and (other := re.search("[,;|]", line) or re.search(r"(?<=[^\s:]):(?=[^\s:])", line)):
            return f"{separated} tr '{other[0]}' '\\t' < FILE > NEW."
        if separated and re.search(r"\S[^\S\r]+\S", line):
            return rf"{separated} perl -CSD -pe 's/[^\S\r\n]+/\t/g' FILE > NEW."
        return (
            " A word needs its tag; for what is no word: data.comment=PREFIX, or between documents "
            "data.document_marker=PREFIX."
        )
    return " Mend the line, or say what sets it apart: data.comment=PREFIX, data.separator=tab|whitespace|space."


def quoted(value: str) -> str:
    """A setting's value as one types it."""
    return value if re.fullmatch(r"[\w./:@%+-]+", value) else shlex.quote(json.dumps(value, ensure_ascii=False))


def _tag_hint(tag: str, columns: Sequence[str]) -> str:
    if tag == "_" and (RANGE.fullmatch(columns[0]) or EMPTY_NODE.fullmatch(columns[0])):
        return f" {columns[0]} counts no word of its own, as in CoNLL-U. To leave such lines out: {WITHOUT_RANGES}"
    if (hidden := hidden_in(tag)) == "\0":
        return " If the file is UTF-16: iconv -f UTF-16LE -t UTF-8 FILE > NEW."
    if hidden:
        return f" From all lines: perl -CSD -pe 's/\\x{{{ord(hidden):x}}}//g' FILE > NEW."
    if tag and tag != "_":
        blanks = "data.separator=whitespace" if BLANKS.search(tag) else r"perl -CSD -pe 's/[^\S\t\n]/ /g' FILE > NEW"
        return f" If it is two columns: {blanks}; if another column has the tags: data.tag_column=N."
    filled = ", ".join(str(i) for i, column in enumerate(columns) if column not in ("", "_"))
    return f" Every word needs one; the columns that hold something here are {filled}: data.tag_column=N."


def _shown(columns: Sequence[str], line: str) -> str:
    """A line for messages, its invisible characters escaped."""
    count = "one column" if len(columns) == 1 else f"{len(columns)} columns"
    return f"{count} ({line if len(line) <= 60 else line[:57] + '...'!r})"
