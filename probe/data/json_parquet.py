"""Reads sources with a row per sentence: JSON lines, Parquet, Arrow, and data sets of `datasets`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.layout import Layout, check_fields
from probe.data.offsets import SpanReader, add_text, as_list, flattened, text_of
from probe.data.running_text import split_text
from probe.data.split import AROUND_WORD, BYTE_ORDER_MARK, MOST_BYTES, Split, SplitBuilder
from probe.data.tasks import TASKS
from probe.format import reason_of

A_ROW_A_LINE = "Each line must be one {...} with a sentence, or the file one array of them"
NEXT_ROW = re.compile(r"(?:\A\s*\[|\s*,)\s*(?=[{[])")  # what stands before a row of an array
GLINER = ("tokenized_text", "ner")  # names of fields, by which the last word of a span is known to be inside
LOOKED_AT = 100  # rows of a file from which its format is known


def read_json(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    return read_rows(json_rows(lines, origin), layout, origin)


def json_rows(lines: Iterable[str], origin: str) -> Iterator[tuple[int, Any]]:
    """Yields (line number, row) of a row per line, without empty lines, or of one array of rows."""
    is_first, lines = True, iter(lines)
    for number, line in enumerate(lines, start=1):
        line = line.removeprefix(BYTE_ORDER_MARK)  # files may have been joined
        if not line.strip():
            continue
        if is_first and re.match(r"\s*\[\s*([{[]|$)", line):
            yield from _rows_of_array("\n" * (number - 1) + line, lines, origin)
            return
        is_first = False
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{origin}:{number}: not a line of JSON ({reason_of(error)}). {A_ROW_A_LINE}.") from None
        yield number, _as_row(row, f"{origin}:{number}")


def _as_row(value: Any, place: str) -> dict[str, Any]:
    """Returns the fields of a row, also of an example for spaCy: [text, {"entities": ...}]."""
    if isinstance(value, list) and list(map(type, value)) == [str, dict]:
        return {"text": value[0], **value[1]}
    if not isinstance(value, dict):
        raise UserError(f"{place}: a {type(value).__name__}. {A_ROW_A_LINE}.")
    return value


def _rows_of_array(text: str, lines: Iterable[str], origin: str) -> Iterator[tuple[int, Any]]:
    """Yields (line number, row). The text is in memory as a whole, its rows are not. text: up to the first row."""
    for line in lines:
        text += f"\n{line}"
        if len(text) > MOST_BYTES:
            raise UserError(f"{origin}: an array of more than {MOST_BYTES >> 20} MiB. Write one {{...}} per line.")
    number, at, after = 1, 0, 0
    while found := NEXT_ROW.match(text, after):
        number, at = number + text.count("\n", at, found.end()), found.end()
        try:
            row, after = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{origin}:{number}: not JSON ({reason_of(error)}). {A_ROW_A_LINE}.") from None
        yield number, _as_row(row, f"{origin}:{number}")
    if re.fullmatch(r"\s*\]\s*", text[after:]) is None:
        raise UserError(f"{origin}:{number}: no whole array of {{...}}, {{...}}. {A_ROW_A_LINE}.")


def table_of_rows(file: Path, layout: Layout | None = None) -> Any:
    """Returns the rows of a Parquet or Arrow file, or of a folder of `save_to_disk`, as a `datasets.Dataset`.

    layout: of a Parquet file that has all of its fields, only these are read.
    """
    import datasets
    import pyarrow.parquet

    try:
        if file.is_dir():
            rows = datasets.load_from_disk(str(file)).with_format(None)
        elif file.suffix == ".arrow":
            rows = datasets.Dataset.from_file(str(file))
        else:
            wanted = [*dict.fromkeys(layout.fields.values())] if layout else None
            has_all = wanted and {*wanted} <= {*pyarrow.parquet.read_schema(file).names}
            rows = datasets.Dataset(pyarrow.parquet.read_table(file, columns=wanted if has_all else None))
        rows.data.validate(full=True)  # among other things, whether texts are UTF-8
        return rows
    except Exception as error:  # the libraries raise a dozen kinds
        raise UserError(f"{file} cannot be read as Parquet or Arrow: {reason_of(error)}") from None


def plain_rows(rows: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a `datasets.Dataset` as they are stored: nothing that they name is opened."""
    for batch in rows.with_format("arrow").iter(LOOKED_AT):
        yield from batch.to_pylist()


def read_dataset(rows: Any, layout: Layout, origin: str) -> Split:
    """Reads a `datasets.Dataset`. Its line numbers are row numbers from 1."""
    if layout.task == "spans" and layout.words_field not in rows.column_names and "text" in rows.column_names:
        return read_rows(enumerate(plain_rows(rows), start=1), layout, origin)  # spans may be in any column
    check_fields(origin, rows.column_names, layout.fields)
    feature = rows.features.get(layout.tags_field)  # none where a text is to be tagged
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if names is not None and sorted(layout.labels or names) != sorted(names):
        raise UserError(
            f"{origin}: its labels are [{','.join(names)}], not data.labels=[{','.join(layout.labels or [])}]."
        )
    rows = plain_rows(rows.select_columns([*{*layout.fields.values()}]))
    return read_rows(enumerate(rows, start=1), replace(layout, labels=names or layout.labels), origin)


def read_rows(rows: Iterable[tuple[int, Mapping]], layout: Layout, origin: str) -> Split:
    """Reads rows that each have the words of a sentence, and its labels or its label.

    What has one label may be a text, or the messages of a conversation; what has spans of characters is a text, and a
    document if some text has several lines.
    """
    task = TASKS[layout.task]
    builder = SplitBuilder(origin, blanks=not task.is_per_word)
    of_text, has_lines = SpanReader(layout, builder.split.skipped), False
    documents, last_id = dict[str | int, int](), object()  # the number of each; the object differs from all ids
    rows = islice(rows, layout.most_lines)
    first_rows = list(islice(rows, LOOKED_AT))
    labels_of_first = chain.from_iterable(as_list(row.get(layout.tags_field)) for _, row in first_rows)
    has_offsets = task.name == "spans" and not layout.without_tags and any(map(_is_offset, labels_of_first))
    span_lengths = set[int]()
    with builder.collecting():
        for position, (number, row) in enumerate(chain(first_rows, rows), start=1):
            with builder.collecting():
                place, row, spans = f"{origin}:{number}", flattened(row), None
                text = text_of(row, layout) if task.name == "spans" else None
                if text is None:
                    check_fields(place, row, layout.fields)
                    words, raw = _words_of(row, layout, place)
                else:
                    place += f", text {position}" + (f" (id {row['id']!r:.40})" if "id" in row else "")
                    check_fields(place, row, layout.document_fields)
                    if (spans := [] if layout.without_tags else of_text.read(row, text, place)) is None:
                        continue
                if layout.document_field in row and row[layout.document_field] != last_id:
                    last_id = row[layout.document_field]
                    if not isinstance(last_id, str | int) or last_id == "":
                        raise UserError(f"{place}: {last_id!r} in {layout.document_field!r} is not a name or number.")
                    if last_id in documents and task.is_per_word:
                        raise UserError(
                            f"{place}: document {last_id!r} continues after another; its rows must be adjacent."
                        )
                    builder.document = documents.setdefault(last_id, max(builder.document, len(documents)) + 1)
                if text is not None and spans is not None:
                    builder.document += layout.document_field is None
                    num_lines = add_text(builder, number, text, spans, place)
                    if layout.without_tags:  # a tagged text is written with its id
                        builder.split.ids = builder.split.ids or []
                        builder.split.ids += [row.get("id")] * num_lines
                    builder.split.skipped["empty sentences"] += not num_lines
                    has_lines |= num_lines > 1
                    continue
                if words and words[0].strip(AROUND_WORD) == layout.document_marker:
                    if len(words) > 1:
                        raise UserError(
                            f"{place}: {words[0]} begins a row of {len(words)} words; it must be the only one."
                        )
                    builder.document += 1
                    continue
                units = task.units(words) if words else []
                labels = ["O"] * len(units) if layout.without_tags else as_list(row[layout.tags_field])
                if has_offsets:
                    span_lengths |= {last - first + 1 for first, last, _ in filter(_is_offset, labels)}
                    labels = _tags_of(labels, len(words), f"{place}: {layout.tags_field!r}")
                if words and len(labels) != len(units):
                    raise UserError(
                        f"{place}: {len(units)} {task.unit}s but {len(labels)} labels in {layout.tags_field!r}."
                    )
                builder.add([number], words, [_named(label, layout, place) for label in labels], raw)
                if words and layout.id_field in row and not layout.without_tags:
                    builder.split.ids = builder.split.ids or []
                    builder.split.ids.append(str(row[layout.id_field]))
    if span_lengths and 1 not in span_lengths and (layout.words_field, layout.tags_field) != GLINER:
        found = f"{origin}: {layout.tags_field!r} has word offsets [first, last, type], but no span of one word"
        raise UserError(f"{found}, so the last word may be inside or outside. Write a tag per word instead.")
    if builder.split.starts and layout.document_field is None and not has_lines:
        builder.document = 0
    split = builder.done()
    split.document_names = {*map(str, documents)}
    if split.documents and not layout.without_tags and split.documents != (ascending := sorted(split.documents)):
        split = split.take(sorted(range(len(ascending)), key=split.documents.__getitem__))
    return split


def _words_of(row: Mapping, layout: Layout, place: str) -> tuple[list[str], Any]:
    """Returns the words of a row, and what a model reads if it reads texts whole: the text, or its messages."""
    value, is_per_word = row[layout.words_field], TASKS[layout.task].is_per_word
    if layout.words_field == layout.id_field:
        return [str(value)], str(value)
    if not is_per_word and (text := _text_of(value)) is not None:
        return split_text(text, place), value
    if not isinstance(value, list):
        raise UserError(f"{place}: {layout.words_field!r} is not a list of words.")
    for position, word in enumerate(value, 1):
        if not isinstance(word, str):
            shown = json.dumps(word, default=str)[:40]
            raise UserError(f"{place}: word {position} of {layout.words_field!r} is {shown}, not a text.")
    return value, None if is_per_word else " ".join(value)


def _text_of(value: Any) -> str | None:
    """Returns a text, or what the messages of a conversation say; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(message, dict) for message in value):
        said = [message.get("content") for message in value]
        return "\n".join(said) if all(isinstance(text, str) for text in said) else None
    return value if isinstance(value, str) else None


def _is_offset(value: object) -> bool:
    """Returns whether this is a span as GLiNER writes it: [first word, last word, type]."""
    return isinstance(value, list) and [type(part) for part in value] == [int, int, str]


def _tags_of(offsets: Sequence[Any], num_words: int, place: str) -> list[str]:
    """Returns the tags of spans in IOB2. Raises UserError for spans that overlap or do not lie inside the sentence."""
    tags = ["O"] * num_words
    for offset in offsets:
        if not _is_offset(offset) or not 0 <= offset[0] <= offset[1] < num_words:
            found = f"{place}: {str(offset)[:40]} is not [first, last, type] of its {num_words} words"
            raise UserError(f"{found}, which are counted from 0; the last one is inside.")
        first, last, kind = offset
        if {*tags[first : last + 1]} != {"O"}:
            raise UserError(f"{place}: {offset} overlaps with another span. Each word can have one tag.")
        tags[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    return tags


def _named(label: object, layout: Layout, place: str) -> str:
    """Returns the name of a label. Without names, a number is its own name, unless it stands for the tag of a span."""
    names = layout.labels
    if isinstance(label, str):
        return label
    if isinstance(label, bool) and layout.task != "spans":
        return str(label)
    if not isinstance(label, int) or isinstance(label, bool):
        raise UserError(f"{place}: tag {label!r} is neither a string nor a whole number.")
    if layout.task != "spans" and label >= 0 and (names is None or str(label) in names):
        return str(label)
    if label < 0:
        raise UserError(f"{place}: tag {label} is a negative number. Write labels as texts.")
    if names is None:
        raise UserError(f"{place}: tag {label} is a number without a name. data.labels gives the names, in order.")
    if not 0 <= label < len(names):
        raise UserError(f"{place}: tag {label} has no name; there are 0 to {len(names) - 1}.")
    return names[label]
