"""Reads files with a label and a text per line, separated by a tab, or as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from probe.config import UserError
from probe.data.columns import shown
from probe.data.json_parquet import read_rows
from probe.data.layout import Layout
from probe.data.running_text import split_text
from probe.data.split import MOST_BYTES, Split, SplitBuilder
from probe.format import first_few

QUOTES = "In CSV, a text with commas stands in quotes."
csv.field_size_limit(MOST_BYTES)  # of one text; the default is 131,072 characters


def read_labelled(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """Reads lines of label, tab (or comma, if data.separator says so) and text.

    If the first line names data.tags_field and data.words_field, all columns have its names, as the fields of JSON
    lines do. In CSV, a text in quotes may have commas, quotes (doubled) and line ends.
    """
    is_csv = layout.separator == "comma"
    rows = _rows_of_csv(lines, origin) if is_csv else _rows_of_tabs(lines)
    first = next(rows, (1, []))
    if {layout.tags_field, layout.words_field} <= {*first[1]}:
        return read_rows(_named(rows, first[1], origin), layout, origin)
    if layout.id_field is not None or layout.document_field is not None:
        raise UserError(
            f"{origin}: the first line does not name {layout.tags_field!r} and {layout.words_field!r}, so there are no "
            "ids and groups. Type data.id_field=null data.document_field=null, or name the columns."
        )
    builder = SplitBuilder(origin, blanks=True)
    for number, cells in islice(chain([first] if first[1] else [], rows), layout.most_lines):
        with builder.collecting():
            if len(cells) < 2:
                found = shown(cells, "\t".join(cells))
                raise UserError(f"{origin}:{number}: {found}; expected label TAB text, or as in the first line.")
            if is_csv and len(cells) > 2:
                raise UserError(f"{origin}:{number}: {len(cells)} fields, not a label and a text. {QUOTES}")
            text = " ".join(cells[1:])
            builder.add([number], split_text(text, f"{origin}:{number}"), [cells[0]], text)
            builder.split.separator = "comma" if is_csv else "tab"
    split = builder.done()
    if len(builder.known_tags) > 2 * (num_texts := len({*map(tuple, split.words)})):
        found = f"{origin} has {len(builder.known_tags)} labels but {num_texts} texts"
        raise UserError(f"{found}. The label comes first, before the text, unless the first line names both columns.")
    return split


def _rows_of_tabs(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each line that is not empty."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.removesuffix("\r").split("\t")


def _rows_of_csv(lines: Iterable[str], origin: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line's number and the cells of each row that is not empty. Raises UserError."""
    reader, number = csv.reader((f"{line}\n" for line in lines), strict=True), 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{origin}:{number}: not CSV ({error}). {QUOTES} A quote in it is doubled.") from None


def _named(
    rows: Iterable[tuple[int, list[str]]], names: list[str], origin: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields each row by the names of its columns. Raises UserError for a row with more or fewer, and equal names."""
    if len({*names}) < len(names):
        raise UserError(f"{origin}:1: two columns have one name: {first_few(names)}.")
    for number, cells in rows:
        if len(cells) != len(names):
            found = f"{origin}:{number}: {len(cells)} fields, but the first line names {len(names)}"
            raise UserError(f"{found}. {QUOTES}")
        yield number, dict(zip(names, cells, strict=True))
