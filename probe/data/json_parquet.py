"""Reads sources with a row per sentence: JSON lines, Parquet, and data sets of `datasets`."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.labelled import words_of
from probe.data.layout import Layout, check_fields
from probe.data.sentences import Packing
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, bare_tag, check_tag, lines_of, too_long
from probe.data.tasks import TASKS
from probe.system.format import reason_of

A_ROW_A_LINE = "Each line must be one {...} with a sentence"


def read_json(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads a file of JSON lines. Byte order marks before a line are removed and counted."""
    marked: list[int] = []
    with closing(lines_of(file, remedy)) as lines:
        split = read_rows(_json_rows(file, lines, marked), None, layout, str(file))
    split.order_marks = len(marked)
    return split


def read_json_without_tags(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """Reads the words of JSON lines, with or without documents; every tag is O."""
    rows = list(_json_rows(origin, lines, []))
    for _, row in rows:
        words = row.get(layout.words_field)
        is_labelled = layout.task == "sentence"
        row[layout.tags_field] = "O" if is_labelled else ["O"] * len(words if isinstance(words, list) else ())
    if not any(layout.document_field in row for _, row in rows):
        layout = replace(layout, document_field=None)
    return read_rows(rows, None, layout, origin)


def _json_rows(file: Path | str, lines: Iterable[str], marked: list[int]) -> Iterator[tuple[int, Any]]:
    """Yields (line number, row), without empty lines. Adds the numbers of lines with a byte order mark to `marked`."""
    for number, line in enumerate(lines, start=1):
        if line.startswith(BYTE_ORDER_MARK):
            marked.append(number)
            line = line.lstrip(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            found = f"{file}:{number}: not a line of JSON ({reason_of(error)})"
            raise UserError(f"{found}. {A_ROW_A_LINE}, not a list over many lines.") from None
        if not isinstance(row, dict):
            raise UserError(f"{file}:{number}: a {type(row).__name__}. {A_ROW_A_LINE}.")
        yield number, row


def read_parquet(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads a Parquet file. Label names come from its schema, as `datasets` writes it."""
    if not file.is_file():  # the libraries raise a misleading error
        raise UserError(f"{file} does not exist. {remedy}")
    import datasets
    import pyarrow.parquet

    try:
        rows = datasets.Dataset(pyarrow.parquet.read_table(file))
    except Exception as error:  # the libraries raise a dozen kinds
        raise UserError(f"{file} cannot be read as Parquet: {reason_of(error)}") from None
    return read_dataset(rows, layout, str(file))


def read_dataset(rows: Any, layout: Layout, origin: str) -> Split:
    """Reads a `datasets.Dataset`. Its line numbers are row numbers from 1."""
    check_fields(origin, rows.column_names, layout)
    feature = rows.features[layout.tags_field]
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if names is not None and layout.labels not in (None, names):
        raise UserError(
            f"{origin}: its labels are [{','.join(names)}], not data.labels=[{','.join(layout.labels or [])}]."
        )
    return read_rows(enumerate(rows, start=1), names, layout, origin)


def read_rows(rows: Iterable[tuple[int, Mapping]], names: list[str] | None, layout: Layout, origin: str) -> Split:
    """Reads rows that each have a list of words and a list of tags. names: of numbered tags, from the schema.

    If the task is one label per sentence, they have a text, or a list of words, and a label.
    """
    names = names or layout.labels
    split = Split([], [], [], array("I"), origin)
    documents, document = split.documents, 0
    last_id: object = split  # differs from the id of every row
    assert documents is not None
    seen_ids: set[str | int] = set()
    all_words, all_tags = Packing(), Packing()
    marked = layout.document_field is not None
    is_labelled = not TASKS[layout.task].is_per_word
    for number, row in rows:
        place = f"{origin}:{number}"
        check_fields(place, row, layout)
        words, tags = row[layout.words_field], row[layout.tags_field]
        if is_labelled:
            words = words_of(words, place) if isinstance(words, str) else words
            if isinstance(tags, list):
                raise UserError(f"{place}: {layout.tags_field!r} is a list, but a sentence has one label.")
            tags = [tags]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"{place}: {layout.words_field!r} is not a list of words.")
        words = split.bare_words(words)
        if not is_labelled and (not isinstance(tags, list) or len(words) != len(tags)):
            found = f"{len(tags)} tags" if isinstance(tags, list) else f"no list of tags in {layout.tags_field!r}"
            raise UserError(f"{place}: {len(words)} words but {found}.")
        if layout.document_field is not None and row[layout.document_field] != last_id:
            last_id, document = row[layout.document_field], document + 1
            if not isinstance(last_id, str | int):
                raise UserError(f"{place}: {last_id!r} in {layout.document_field!r} is not a name or number.")
            if last_id in seen_ids:
                raise UserError(f"{place}: document {last_id!r} continues after another; its rows must be adjacent.")
            seen_ids.add(last_id)
        if not words:
            split.empty += 1
            continue
        if words[0] == layout.document_marker:
            if len(words) > 1:
                raise UserError(f"{place}: {words[0]} begins a row of {len(words)} words; it must be the only one.")
            document, marked = document + 1, True
            continue
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{place}: {too_long(len(words))}")
        text = "".join(words)
        if "" in words or any(character in text for character in "\t\n\r"):
            refused = next(word for word in words if not word or set(word) & set("\t\n\r"))
            what = f"has a tab or a line end ({refused!r})" if refused else "is empty"
            raise UserError(
                f"{place}: word {words.index(refused) + 1} {what}, so predictions for it could not be read back."
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{place}: a word holds half a character (a lone surrogate).") from None
        all_words.add(words)
        as_written = [_tag_of(tag, names, place) for tag in tags]
        bare = [bare_tag(tag) for tag in as_written]
        for tag in bare:
            check_tag(tag, place, may_have_blanks=is_labelled)
        split.invisible += sum(map(str.__ne__, as_written, bare))
        all_tags.add(bare)
        split.lines.append(number)
        documents.append(document)
    split.words, split.tags = all_words.done(), all_tags.done()
    if not split.words:
        raise UserError(f"{origin} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def _tag_of(tag: object, names: list[str] | None, place: str) -> str:
    if isinstance(tag, str):
        return tag
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise UserError(f"{place}: tag {tag!r} is neither a string nor a whole number.")
    if names is None:
        raise UserError(
            f"{place}: its tags are numbers without names. Name them in order: 'data.labels=[O,B-PER,...]'."
        )
    if not 0 <= tag < len(names):
        raise UserError(f"{place}: tag {tag} has no name; there are 0 to {len(names) - 1}.")
    return names[tag]
