"""Reads column files and CoNLL-U: a word per line, an empty line between sentences."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace

from probe.config import UserError
from probe.data.layout import Layout
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, SplitBuilder, too_long

BLANKS = re.compile(r"[ \t]+")  # other white space, such as a no-break space, can be part of a word
NO_WORD = re.compile(r"\d+[-.]\d+")  # the index of several words, or of a word that is not in the text, in CoNLL-U
NAME = re.compile(r"sent\D*\d+", re.I)  # of a sentence, in the first column of its first line or of all: Sentence: 7
FORM, UPOS = 1, 3  # columns of CoNLL-U


def read_columns(lines: Iterable[str], layout: Layout, origin: str, is_conllu: bool = False) -> Split:
    """Reads words and tags; the tags are not converted. Ignores the columns that were not chosen.

    With `layout.without_tags`, every tag is O, all columns are saved, and a word may lack data.word_prefix.
    """
    builder = SplitBuilder(origin)
    split, comments = builder.split, list[tuple[int, str]]()
    split.columns = [] if layout.without_tags else None
    at_word, at_tag, at_name = -1, -1, None
    name = ""  # of the current sentence
    numbers: list[int] = []  # of its lines
    rows: list[list[str]] = []  # their columns

    def tag_of(cell: str) -> str:
        if layout.tag_feature is None:
            return cell
        start = f"{layout.tag_feature}="
        return next((part.removeprefix(start) for part in cell.split("|") if part.startswith(start)), "_")

    def end_sentence() -> None:
        if not rows:
            return
        words = [row[at_word] for row in rows]
        tags = ["O"] * len(rows) if layout.without_tags else [tag_of(row[at_tag]) for row in rows]
        with builder.collecting():
            if layout.word_prefix:
                words = [_without_prefix(*pair, layout, origin) for pair in zip(words, numbers, strict=True)]
            builder.add(numbers, words, tags)
            split.word_lines.append(array("I", numbers))
        if split.columns is not None:
            split.columns.append(rows.copy())
        numbers.clear()
        rows.clear()

    with builder.collecting():
        for number, line, columns in _rows_of(lines, layout, builder, comments):
            if not columns:
                end_sentence()
                if columns is not None:
                    builder.document += 1
                    split.markers.setdefault(len(split.lines), []).append(line)
                continue
            # In CoNLL-U with another ending, an index of several words, such as 1-2, stands before the first of them.
            if rows and at_word > 0 and rows[-1][0].startswith(f"{columns[0]}-") and NO_WORD.fullmatch(rows[-1][0]):
                del rows[-1], numbers[-1]
                split.skipped["lines of CoNLL-U"] += 1
            if is_conllu and _is_no_word(columns, len(rows) + 1, f"{origin}:{number}"):
                split.skipped["lines of CoNLL-U"] += 1
                continue
            if at_word < 0:
                at_word, at_tag, at_name = _chosen(columns, layout, f"{origin}:{number}: {shown(columns, line)}")
            if at_name is not None and columns[at_name] not in ("", name):
                name = columns[at_name]
                end_sentence()
            if len(rows) == MAX_SENTENCE:
                raise UserError(f"{origin}:{numbers[0]}: {too_long(MAX_SENTENCE + 1)}")
            numbers.append(number)
            rows.append(columns)
        end_sentence()
        for number, line in [] if layout.without_tags else comments:
            columns = cut_line(line, split.separator)
            if len(columns) == split.num_columns and tag_of(columns[at_tag]) in builder.known_tags:
                found = f"{origin}:{number}: {line.strip()!r} begins like a comment (data.comment)"
                raise UserError(f"{found} but has the columns of a word and a tag.")
    split.skipped["comments"] = len(comments)
    return builder.done()


def _rows_of(
    lines: Iterable[str], layout: Layout, builder: SplitBuilder, comments: list[tuple[int, str]]
) -> Iterator[tuple[int, str, list[str] | None]]:
    """Yields each line's number, the line and its columns: [] for a line between documents, None between sentences.

    Adds the lines that are comments to `comments`. Empty columns behind the last one are removed: from the first line
    if columns are counted from the end, from later lines if they have more columns than the first.
    """
    split, marker, separator, prefixes = builder.split, layout.document_marker, layout.separator, layout.comments
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK)  # files may have been joined
        if "\r" in line:
            found = f"{split.origin}:{number}: a carriage return inside the line ({line!r})."
            raise UserError(f"{found} Lines must end in LF or CRLF.")
        bare = line.strip(" \t")
        if not bare:
            yield number, line, None
            continue
        if marker and bare.startswith(marker):
            yield number, line, []
            continue
        if line.startswith(prefixes):
            comments.append((number, line))
            continue
        if separator == "auto":
            separator = "tab" if "\t" in bare else "whitespace"  # with tabs, a blank is part of a word
        columns = cut_line(line, separator)
        if marker and marker in columns:
            yield number, line, []
            continue
        if separator == "comma" and not "".join(columns).strip(" "):
            yield number, line, None
            continue
        if len(columns) != split.num_columns:
            needed = split.num_columns or len(columns)
            while not split.num_columns and min(layout.word_column, layout.tag_column) < 0 and not columns[needed - 1]:
                needed -= 1
            if len(columns) > needed and not "".join(columns[needed:]).strip(" "):
                columns = columns[:needed]
                split.skipped["blanks at line ends"] += 1
            if len(columns) != needed:
                with builder.collecting():
                    raise UserError(f"{split.origin}:{number}: {shown(columns, line)}; the lines before have {needed}.")
                continue
            split.num_columns, split.separator = needed, separator
        yield number, line, columns


def cut_line(line: str, separator: str) -> list[str]:
    if separator == "comma":
        try:
            return next(csv.reader([line], strict=True))
        except csv.Error:  # a quote that does not end on this line
            return [line]
    if separator != "whitespace":
        return line.split("\t" if separator == "tab" else " ")
    bare = line.strip(" \t")
    return BLANKS.split(bare) if "\t" in bare or "  " in bare else bare.split(" ")


def _chosen(columns: list[str], layout: Layout, place: str) -> tuple[int, int, int | None]:
    """Returns where words, tags (-1: nowhere) and names of sentences (None: nowhere) stand, given the first columns."""

    def from_front(number: int, name: str) -> int:
        if not -len(columns) <= number < len(columns):
            known = f"Columns count from 0 to {len(columns) - 1}."
            raise UserError(f"{place}; there is no column {number} (data.{name}_column). {known}")
        return number % len(columns)

    at_word = from_front(layout.word_column, "word")
    at_tag = -1 if layout.without_tags else from_front(layout.tag_column, "tag")
    if at_word == at_tag:
        raise UserError(f"{place}; a word and its tag are needed, in two columns.")
    if layout.sentence_column is not None:
        return at_word, at_tag, from_front(layout.sentence_column, "sentence")
    is_named = at_word > 0 and at_tag != 0 and NAME.fullmatch(columns[0])
    return at_word, at_tag, 0 if is_named else None


def _without_prefix(word: str, number: int, layout: Layout, origin: str) -> str:
    prefix = layout.word_prefix or ""
    if not layout.without_tags and not word.startswith(prefix):
        raise UserError(
            f"{origin}:{number}: word {word!r} does not begin with {prefix!r} (data.word_prefix). "
            "If not every word does: data.word_prefix=null."
        )
    return word.removeprefix(prefix)


def shown(columns: list[str], line: str) -> str:
    """Describes a line for messages: its number of columns and its text, invisible characters escaped."""
    count = "one column" if len(columns) == 1 else f"{len(columns)} columns"
    return f"{count} ({line if len(line) <= 60 else line[:57] + '...'!r})"


def read_conllu(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """Reads CoNLL-U (https://universaldependencies.org/format.html): words in column FORM, tags in data.tag_column.

    The default of that is UPOS if data.task=tags.
    """
    is_default = (layout.task, layout.tag_column, layout.tag_feature) == ("tags", Layout.tag_column, None)
    layout = replace(
        layout,
        word_column=FORM,
        tag_column=UPOS if is_default else layout.tag_column,
        separator="tab",
        comment="#",
        document_marker="# newdoc",
        word_prefix=None,
        sentence_column=None,
    )
    return read_columns(lines, layout, origin, is_conllu=True)


def _is_no_word(columns: list[str], position: int, place: str) -> bool:
    """Returns whether a line is a multiword range or an empty node. Raises UserError for a wrong word index."""
    if NO_WORD.fullmatch(columns[0]):
        return True
    if columns[0] != str(position):
        raise UserError(
            f"{place}: the first column is {columns[0]!r}, not {position}: CoNLL-U counts the words of a sentence from "
            "1, and separates columns by tabs and sentences by empty lines. Give other column files another ending."
        )
    return False
