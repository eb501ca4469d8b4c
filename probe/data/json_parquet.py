"""Reads sources with a row per sentence: JSON lines, Parquet, Arrow, and data sets of `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.layout import Layout, check_fields
from probe.data.running_text import split_text
from probe.data.split import AROUND_WORD, BYTE_ORDER_MARK, Split, SplitBuilder
from probe.data.tasks import TASKS
from probe.system.format import reason_of

A_ROW_A_LINE = "Each line must be one {...} with a sentence"


def read_json(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    return read_rows(_json_rows(lines, origin), None, layout, origin)


def _json_rows(lines: Iterable[str], origin: str) -> Iterator[tuple[int, Any]]:
    """Yields (line number, row), without empty lines."""
    for number, line in enumerate(lines, start=1):
        line = line.removeprefix(BYTE_ORDER_MARK)  # files may have been joined
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{origin}:{number}: not a line of JSON ({reason_of(error)}). {A_ROW_A_LINE}.") from None
        if not isinstance(row, dict):
            raise UserError(f"{origin}:{number}: a {type(row).__name__}. {A_ROW_A_LINE}.")
        yield number, row


def table_of_rows(file: Path) -> Any:
    """Returns the rows of a Parquet or Arrow file, or of a folder of `save_to_disk`, as a `datasets.Dataset`."""
    import datasets
    import pyarrow.parquet

    try:
        if file.is_dir():
            rows = datasets.load_from_disk(str(file)).with_format(None)
        elif file.suffix == ".arrow":
            rows = datasets.Dataset.from_file(str(file))
        else:
            rows = datasets.Dataset(pyarrow.parquet.read_table(file))
        rows.data.validate(full=True)  # among other things, whether texts are UTF-8
        return rows
    except Exception as error:  # the libraries raise a dozen kinds
        raise UserError(f"{file} cannot be read as Parquet or Arrow: {reason_of(error)}") from None


def read_dataset(rows: Any, layout: Layout, origin: str) -> Split:
    """Reads a `datasets.Dataset`. Its line numbers are row numbers from 1."""
    check_fields(origin, rows.column_names, layout)
    feature = rows.features[layout.tags_field]
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if names is not None and layout.labels not in (None, names):
        raise UserError(
            f"{origin}: its labels are [{','.join(names)}], not data.labels=[{','.join(layout.labels or [])}]."
        )
    return read_rows(enumerate(islice(rows, layout.most_lines), start=1), names, layout, origin)


def read_rows(rows: Iterable[tuple[int, Mapping]], names: list[str] | None, layout: Layout, origin: str) -> Split:
    """Reads rows that each have the words of a sentence, and its labels or its label.

    What has one label may be a text, or the messages of a conversation. names: of numbered labels, from the schema.
    """
    task, names = TASKS[layout.task], names or layout.labels
    builder = SplitBuilder(origin, blanks=not task.is_per_word)
    document, is_marked, ids = 0, False, set[str | int]()
    last_id: object = builder  # differs from the id of every row
    for number, row in rows:
        place = f"{origin}:{number}"
        if task.is_per_word and not isinstance(row.get(layout.words_field), list):
            _refuse_offsets(row, place)
        check_fields(place, row, layout)
        words = raw = row[layout.words_field]
        if not task.is_per_word and (text := _text_of(raw)) is not None:
            words = split_text(text, place)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"{place}: {layout.words_field!r} is not a list of words.")
        if layout.document_field in row and row[layout.document_field] != last_id:
            last_id, document, is_marked = row[layout.document_field], document + 1, True
            if not isinstance(last_id, str | int):
                raise UserError(f"{place}: {last_id!r} in {layout.document_field!r} is not a name or number.")
            if last_id in ids:
                raise UserError(f"{place}: document {last_id!r} continues after another; its rows must be adjacent.")
            ids.add(last_id)
        if words and AROUND_WORD.sub("", words[0]) == layout.document_marker:
            if len(words) > 1:
                raise UserError(f"{place}: {words[0]} begins a row of {len(words)} words; it must be the only one.")
            document, is_marked = document + 1, True
            continue
        units = task.units(words) if words else []
        labels = ["O"] * len(units) if layout.without_tags else row[layout.tags_field]
        labels = labels if isinstance(labels, list) else [labels]
        if words and len(labels) != len(units):
            raise UserError(f"{place}: {len(units)} {task.unit}s but {len(labels)} labels in {layout.tags_field!r}.")
        if raw is words:  # no text
            raw = None if task.is_per_word else " ".join(words)
        builder.add([number], words, [_named(label, names, place) for label in labels], document, raw)
    return builder.done(is_marked)


def _text_of(value: Any) -> str | None:
    """Returns a text, or what the messages of a conversation say; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        said = [one.get("content") for one in value]
        return "\n".join(said) if all(isinstance(one, str) for one in said) else None
    return value if isinstance(value, str) else None


def _refuse_offsets(row: Mapping, place: str) -> None:
    """Raises UserError for a text whose labels are character offsets: [[0, 5, "LOC"]], or {"start": 0, "end": 5}."""
    for name, values in row.items():
        first = values[0] if isinstance(values, list) and values else None
        numbers = first[:2] if isinstance(first, list) else first.values() if isinstance(first, dict) else ()
        if sum(isinstance(number, int) for number in numbers) >= 2:
            found = f"{place}: {name!r} has character offsets ({str(first)[:40]})"
            raise UserError(f"{found}. A list of words with a tag per word is needed: split the text into words first.")


def _named(label: object, names: list[str] | None, place: str) -> str:
    if isinstance(label, str):
        return label
    if not isinstance(label, int) or isinstance(label, bool):
        raise UserError(f"{place}: tag {label!r} is neither a string nor a whole number.")
    if names is None:
        raise UserError(f"{place}: its tags are numbers without names. data.labels gives their names, in order.")
    if not 0 <= label < len(names):
        raise UserError(f"{place}: tag {label} has no name; there are 0 to {len(names) - 1}.")
    return names[label]
