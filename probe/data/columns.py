"""Reads column files: a word per line, an empty line between sentences."""

from __future__ import annotations

import json
import re
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from probe.config import UserError
from probe.data.layout import Layout
from probe.data.sentences import Packing
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, bare_tag, check_tag, lines_of, too_long

BLANKS = re.compile(r"[ \t]+")  # other white space, such as a no-break space, can be part of a word
RANGE = re.compile(r"\d+-\d+")  # the index of several words, in CoNLL-U
EMPTY_NODE = re.compile(r"\d+\.\d+")  # the index of a word that is not in the text, in CoNLL-U
COMMENT = re.compile(r"#|%+|//|;+")  # what comments often begin with
NEW_DOCUMENT = re.compile(r"# ?newdoc")
# Names of columns in first lines. A line that consists of such names, one for words and one for tags, is a header.
WORD_NAMES = {"token", "tokens", "word", "words", "form", "wordform"}
TAG_NAMES = set(
    "tag tags label labels iob bio entity ner nertag ner_tag ner_tags pos postag pos_tag pos_tags upos xpos "
    "chunk chunktag chunk_tag chunk_tags".split()
)
OTHER_NAMES = {"id", "idx", "index", "lemma", "sentence_id", "sent_id"}
CONLLU = " This looks like CoNLL-U, whose files are named NAME.conllu."


class ColumnsError(UserError):
    """Says that a line does not have the columns that are needed.

    found: the message without its hint.
    """

    def __init__(self, found: str, hint: str) -> None:
        super().__init__(f"{found}{hint}")
        self.found = found


class WordRow(NamedTuple):
    """Holds a line with a word. number: of the line. document: the number of document marks before it."""

    number: int
    line: str
    columns: list[str]
    begins_sentence: bool
    document: int


@dataclass
class WordRows:
    """Iterates over the lines of a column file that have a word. Afterwards, the other fields say what was skipped.

    is_skipped: returns whether to skip a line, given its columns, the position of its word in the sentence (from 1) and
    its place for messages. separator: of the first line, where the layout says "auto". first, num_columns: the first
    line with a word, and its number of columns. header: number of the line that names the columns, 0 if there is none.
    order_marks: number of lines that began with a byte order mark. trailing: number of lines with empty trailing
    columns, which are removed. comments: by line number. skipped: line numbers. markers: lines between documents, by
    the number of sentences before them.
    """

    lines: Iterable[str]
    layout: Layout
    origin: str
    is_skipped: Callable[[list[str], int, str], bool] | None = None
    separator: str = ""
    first: str = ""
    num_columns: int = 0
    header: int = 0
    order_marks: int = 0
    trailing: int = 0
    comments: list[tuple[int, str]] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    markers: dict[int, list[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[WordRow]:
        """Yields the rows. Raises UserError for another number of columns, and for a sentence that is too long."""
        document = sentences = length = begin = 0
        for number, line, columns in self._cut():
            if "\r" in line:
                shown = _shown(cut_line(line, line, self.separator), line)
                found = f"{self.origin}:{number}: a carriage return inside the line ({shown})."
                raise UserError(f"{found} Lines must end in LF or CRLF.")
            if not columns:
                length = 0
                if columns is not None:
                    document += 1
                    self.markers.setdefault(sentences, []).append(line)
                continue
            if self.is_skipped is not None and self.is_skipped(columns, length + 1, f"{self.origin}:{number}"):
                self.skipped.append(number)
                continue
            if not length:
                sentences, begin = sentences + 1, number
            length += 1
            if length > MAX_SENTENCE:
                raise UserError(f"{self.origin}:{begin}: {too_long(length)}")
            yield WordRow(number, line, columns, length == 1, document)

    def _cut(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """Yields each line's number, the line and its columns: [] for a line between documents, None between sentences.

        Empty trailing columns are removed from the first line if the column of the words or the tags is counted from
        the end. They are removed from later lines if these have more columns than the first.
        """
        comment, marker, separator = self.layout.comment, self.layout.document_marker, self.layout.separator
        num_columns = 0
        for number, line in enumerate(self.lines, start=1):
            line = line.removesuffix("\r")
            if line.startswith(BYTE_ORDER_MARK):
                self.order_marks += without_mark(line) != line
                line = without_mark(line)
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
            if not num_columns and not self.header and names_columns(bare):
                self.header = number
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
                    raise ColumnsError(found, _width_hint(line, self.first, separator))
                if not num_columns:
                    num_columns = len(columns)
                    self.first, self.num_columns, self.separator = line, num_columns, separator
            yield number, line, columns


def read_columns(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads words and tags of a column file; the tags are not converted. Ignores the columns that were not chosen."""
    with closing(lines_of(file, remedy)) as lines:
        return read_word_rows(WordRows(lines, layout, str(file)))


def read_columns_without_tags(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """Reads the words of a column file and saves all columns of each word. Every tag is O."""
    return read_word_rows(WordRows(lines, layout, origin), with_tags=False)


def read_word_rows(rows: WordRows, with_tags: bool = True) -> Split:
    """Reads words and tags. Raises UserError with the line of the first mistake.

    Without tags, the tag column is ignored, all columns are saved, and a word may lack data.word_prefix.
    """
    layout, origin = rows.layout, rows.origin
    split = Split([], [], [], array("I"), origin, word_a_line=True, columns=None if with_tags else [])
    documents, prefix = split.documents, layout.word_prefix
    assert documents is not None
    all_words, all_tags = Packing(), Packing()
    words: list[str] = []  # of the current sentence
    tags: list[str] = []
    known_tags: set[str] = set()
    at_word, at_tag, tag = -1, -1, "O"
    range_of = ""  # the first index of a CoNLL-U range on the line before
    for row in rows:
        number, line, columns = row.number, row.line, row.columns
        if at_word < 0:
            shown = f"{origin}:{number}: {_shown(columns, line)}"
            at_word = _column_from_front(layout.word_column, "word", columns, shown)
            if with_tags:
                at_tag = _column_from_front(layout.tag_column, "tag", columns, shown)
                _check_two_columns(at_word, at_tag, columns, shown, line)
        if row.begins_sentence:
            if words:
                all_words.add(words)
                all_tags.add(tags)
            words, tags = [], []
            split.lines.append(number)
            documents.append(row.document)
        if with_tags:
            tag = columns[at_tag]
            if tag not in known_tags:
                tag = _checked_tag(tag, columns, split, f"{origin}:{number}")
                known_tags.add(tag)
            range_of = _check_is_word(columns, range_of, bool(words and at_word), f"{origin}:{number}")
        word = columns[at_word]
        if prefix:
            if with_tags and not word.startswith(prefix):
                raise UserError(
                    f"{origin}:{number}: word {word!r} does not begin with data.word_prefix={prefix}. "
                    "If not every word does: data.word_prefix=null."
                )
            word = word.removeprefix(prefix)
        if not word:
            hint = " If another column has the words: data.word_column=N."
            raise ColumnsError(f"{origin}:{number}: the word is empty ({_shown(columns, line)}).", hint)
        words += split.bare_words([word])
        tags.append(tag)
        if split.columns is not None:
            split.columns += [[]] if row.begins_sentence else []
            split.columns[-1].append(columns)
    if not words:
        raise UserError(f"{origin} holds no sentence.")
    all_words.add(words)
    all_tags.add(tags)
    split.words, split.tags = all_words.done(), all_tags.done()
    if with_tags:
        _check_comments(rows, at_tag, known_tags)
    split.skipped_lines = sorted([*(number for number, _ in rows.comments), *rows.skipped])
    split.not_words, split.header = len(rows.skipped), rows.header
    split.separator, split.num_columns = rows.separator, rows.num_columns
    split.order_marks, split.trailing = rows.order_marks, split.trailing + rows.trailing
    split.markers = rows.markers
    if not rows.markers:
        split.documents = None
    return split


def names_columns(line: str) -> bool:
    """Returns whether a line consists of names of columns, those of a word and a tag among them: `# token<TAB>tag`."""
    names = BLANKS.split(COMMENT.sub("", line, count=1).strip().lower().replace("-", "_"))
    return bool(
        WORD_NAMES.intersection(names)
        and TAG_NAMES.intersection(names)
        and set(names) <= WORD_NAMES | TAG_NAMES | OTHER_NAMES
    )


def without_mark(line: str) -> str:
    """Returns the line without the byte order marks before it. A word that consists of such a mark stays."""
    rest = line.lstrip(BYTE_ORDER_MARK)
    return line if rest[:1] in (" ", "\t") else rest


def cut_line(line: str, bare: str, separator: str) -> list[str]:
    if separator == "tab":
        return line.split("\t")
    if separator == "space":
        return line.split(" ")
    return BLANKS.split(bare) if "\t" in bare or "  " in bare else bare.split(" ")


def _last_needed(layout: Layout, columns: list[str]) -> int:
    """Returns the number of columns of the first line, without empty trailing ones if columns count from the end."""
    last = len(columns)
    while last and min(layout.tag_column, layout.word_column) < 0 and not columns[last - 1].strip(" "):
        last -= 1
    return last


def _column_from_front(number: int, name: str, columns: list[str], shown: str) -> int:
    if not -len(columns) <= number < len(columns):
        found = f"{shown}; there is no data.{name}_column={number}."
        raise ColumnsError(found, f" Columns count from 0 to {len(columns) - 1}.")
    return number % len(columns)


def _check_two_columns(at_word: int, at_tag: int, columns: list[str], shown: str, line: str) -> None:
    if at_word == at_tag:
        hint = " To choose them: data.word_column=N data.tag_column=N."
        if len(columns) == 1:
            other = " Tabs or blanks separate columns. To skip lines without a word: data.comment=PREFIX."
            hint = _comment_hint((line,)) or other
        raise ColumnsError(f"{shown}; a word and its tag are needed, in two columns.", hint)


def _checked_tag(tag: str, columns: Sequence[str], split: Split, place: str) -> str:
    """Removes blanks and invisible characters around the tag, and counts them. Raises ColumnsError for a bad tag."""
    bare = bare_tag(tag)
    if bare != tag:
        if bare == tag.strip():
            split.trailing += 1
        else:
            split.invisible += 1
    try:
        check_tag(bare, place)
    except UserError as error:
        raise ColumnsError(str(error), _tag_hint(bare, columns)) from None
    return bare


def _check_is_word(columns: list[str], range_of: str, has_index: bool, place: str) -> str:
    """Refuses lines of CoNLL-U that are not words. Returns the first index if the line has a range, else ""."""
    index = columns[0]
    if has_index and range_of and index == range_of:
        raise UserError(f"{place}: the line before it holds several words ({index}-...).{CONLLU}")
    if has_index and "." in index and EMPTY_NODE.fullmatch(index):
        raise UserError(f"{place}: {index} is the index of a word that is not in the text.{CONLLU}")
    return index.partition("-")[0] if "-" in index and RANGE.fullmatch(index) else ""


def _check_comments(rows: WordRows, at_tag: int, known_tags: set[str]) -> None:
    """Refuses a comment that has a word's columns and a known tag: it may be a word that begins like a comment."""
    for number, line in rows.comments:
        columns = cut_line(line, line.strip(" \t"), rows.separator)
        if len(columns) == rows.num_columns and columns[at_tag] in known_tags:
            raise UserError(
                f"{rows.origin}:{number}: {line.strip()!r} begins like a comment (data.comment={rows.layout.comment}) "
                "but has the columns of a word and a tag. If it is a word: data.comment=null."
            )


def _comment_hint(lines: Iterable[str]) -> str:
    """Suggests the setting for the first line that looks like a comment; returns "" if none does."""
    for line in lines:
        if mark := COMMENT.match(line):
            document = NEW_DOCUMENT.match(line)
            marker = f", or data.document_marker={quoted(document[0])}" if document else ""
            return f" If {mark[0]} begins a comment: data.comment={quoted(mark[0])}{marker}."
    return ""


def _width_hint(line: str, first: str, separator: str) -> str:
    """Suggests settings that may read a line with another number of columns than the first line."""
    if hint := _comment_hint((line, first)):
        return hint
    for name in ("tab", "whitespace"):
        widths = {len(cut_line(each, each.strip(" \t"), name)) for each in (line, first)}
        if name != separator and len(widths) == 1 and widths != {1}:
            return f" With data.separator={name} both have {widths.pop()}."
    return " To change the separator: data.separator=tab|whitespace|space. To skip lines: data.comment=PREFIX."


def quoted(value: str) -> str:
    """Quotes a setting's value for the shell where that is needed."""
    return value if re.fullmatch(r"[\w./:@%+-]+", value) else shlex.quote(json.dumps(value, ensure_ascii=False))


def _tag_hint(tag: str, columns: Sequence[str]) -> str:
    if tag == "_" and (RANGE.fullmatch(columns[0]) or EMPTY_NODE.fullmatch(columns[0])):
        return CONLLU
    if tag and tag != "_":
        two = " If it is two columns: data.separator=whitespace." if BLANKS.search(tag) else ""
        return f"{two} If another column has the tags: data.tag_column=N." if any(map(str.isspace, tag)) else ""
    filled = ", ".join(str(i) for i, column in enumerate(columns) if column not in ("", "_"))
    return f" Columns that are not empty: {filled}. If another has the tags: data.tag_column=N."


def _shown(columns: Sequence[str], line: str) -> str:
    """Describes a line for messages: its number of columns and its text, invisible characters escaped."""
    count = "one column" if len(columns) == 1 else f"{len(columns)} columns"
    return f"{count} ({line if len(line) <= 60 else line[:57] + '...'!r})"
