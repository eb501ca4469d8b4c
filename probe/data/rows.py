"""Sources with a row a sentence: JSON lines, Parquet, whatever `datasets` has read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.sentences import Packing
from probe.data.split import BYTE_ORDER_MARK, MAX_SENTENCE, Split, bare_tag, check_tag, lines_of, too_long
from probe.system.format import escape_invisible

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
ONE_A_LINE = " Of a list over many lines: jq -c '.[]' FILE > NEW."


@dataclass(frozen=True)
class Fields:
    """Where rows of JSON lines, Parquet and the Hub hold what, and what their numbers mean."""

    words: str
    tags: str
    document: str | None
    labels: list[str] | None
    document_marker: str | None


def ending_of(file: Path) -> str:
    """What a file's name ends in, by which it is read, compressed or not."""
    return Path(file.name.removesuffix(".gz")).suffix


def read_json(file: Path, fields: Fields, remedy: str) -> Split:
    """A file of JSON lines; byte order marks before a line are taken off, and counted."""
    marked: list[int] = []
    split = read_rows(_json_rows(file, lines_of(file, remedy), marked), None, fields, str(file))
    split.order_marks = len(marked)
    return split


def read_json_words(lines: Iterable[str], fields: Fields, origin: str) -> Split:
    """The words of JSON lines, whatever tags there are; all tags are O. They may lack documents altogether."""
    rows = list(_json_rows(origin, lines, []))
    for _, row in rows:
        words = row.get(fields.words)
        row[fields.tags] = ["O"] * len(words if isinstance(words, list) else ())
    if not any(fields.document in row for _, row in rows):
        fields = replace(fields, document=None)
    return read_rows(rows, None, fields, origin)


def _json_rows(file: Path | str, lines: Iterable[str], marked: list[int]) -> Iterator[tuple[int, Any]]:
    """(line number, row); empty lines are none. The numbers of those with a byte order mark are put into `marked`."""
    for number, line in enumerate(lines, start=1):
        if line.startswith(BYTE_ORDER_MARK):
            marked.append(number)
            line = line.lstrip(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            whole = line.strip() in ("[", "{")
            raise UserError(
                f"{file}:{number}: not a line of JSON ({str(error).splitlines()[0]})."
                f"{ONE_A_LINE if whole else ' Each line must be one {...} with its sentence.'}"
            ) from None
        if not isinstance(row, dict):
            raise UserError(
                f"{file}:{number}: a {type(row).__name__}; each line must be one {{...}} with its sentence."
                f"{ONE_A_LINE if isinstance(row, list) else ''}"
            )
        yield number, row


def read_parquet(file: Path, fields: Fields, remedy: str) -> Split:
    """A Parquet file; label names come from its schema, as `datasets` writes it."""
    if not file.is_file():  # before the libraries, since the libraries answer with something else
        raise UserError(f"{file} does not exist. {remedy}")
    import datasets
    import pyarrow.parquet

    try:
        rows = datasets.Dataset(pyarrow.parquet.read_table(file))
    except Exception as error:  # the libraries raise a dozen kinds
        raise UserError(f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    return read_dataset(rows, fields, str(file))


def read_dataset(rows: Any, fields: Fields, origin: str) -> Split:
    """A `datasets.Dataset`; lines are row numbers from 1."""
    for wanted in (fields.words, fields.tags, fields.document):
        if wanted is not None and wanted not in rows.column_names:
            raise UserError(_no_field(origin, wanted, fields, rows.column_names))
    names = getattr(getattr(rows.features[fields.tags], "feature", None), "names", None)
    if names is not None and fields.labels not in (None, names):
        raise UserError(
            f"{origin}: its labels are [{','.join(names)}], not data.labels=[{','.join(fields.labels or [])}]."
        )
    return read_rows(enumerate(rows, start=1), names, fields, origin)


def _no_field(origin: str, wanted: str, fields: Fields, available: Iterable[str]) -> str:
    setting = {fields.words: "words_field", fields.tags: "tags_field"}.get(wanted, "document_field")
    none = " or null" if setting == "document_field" else ""
    shown = ", ".join(map(escape_invisible, available))
    return f"{origin} has no {wanted!r}, only {shown}. Another: data.{setting}=NAME{none}."


def read_rows(rows: Iterable[tuple[int, Mapping]], names: list[str] | None, fields: Fields, origin: str) -> Split:
    """Rows with a list of words and a list of tags each. names: of tags that are numbers, from the source's schema."""
    names = names or fields.labels
    split = Split([], [], [], array("I"), origin)
    documents, document = split.documents, 0
    last_id: object = split  # no row's
    assert documents is not None
    seen_ids: set[str | int] = set()
    all_words, all_tags = Packing(), Packing()
    marked = fields.document is not None
    for number, row in rows:
        place = f"{origin}:{number}"
        for wanted in (fields.words, fields.tags, fields.document):
            if wanted is not None and wanted not in row:
                raise UserError(_no_field(place, wanted, fields, row))
        words, tags = row[fields.words], row[fields.tags]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"{place}: {fields.words!r} is not a list of words.")
        if not isinstance(tags, list) or len(words) != len(tags):
            found = f"{len(tags)} tags" if isinstance(tags, list) else f"no list of tags in {fields.tags!r}"
            raise UserError(f"{place}: {len(words)} words but {found}.")
        if fields.document is not None and row[fields.document] != last_id:
            last_id, document = row[fields.document], document + 1
            if not isinstance(last_id, str | int):
                raise UserError(f"{place}: {last_id!r} in {fields.document!r} is no document's name or number.")
            if last_id in seen_ids:
                raise UserError(
                    f"{place}: document {last_id!r} goes on after another; its sentences must stand together."
                )
            seen_ids.add(last_id)
        if not words:
            split.empty += 1
            continue
        if words[0] == fields.document_marker:
            if len(words) > 1:
                raise UserError(f"{place}: {words[0]} begins a row of {len(words)} words; it must stand alone.")
            document, marked = document + 1, True
            continue
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{place}: {too_long(len(words))}")
        text = "".join(words)
        if "" in words or any(character in text for character in "\t\n\r"):
            odd = next(word for word in words if not word or set(word) & set("\t\n\r"))
            what = f"holds a tab or a line end ({odd!r})" if odd else "is empty"
            raise UserError(
                f"{place}: word {words.index(odd) + 1} {what}, so predictions for it could not be read back. "
                "Put a blank in its place."
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{place}: a word holds half a character (a lone surrogate).") from None
        all_words.add(words)
        stated = [_tag_of(tag, names, place) for tag in tags]
        bare = [bare_tag(tag) for tag in stated]
        for tag in bare:
            check_tag(tag, place)
        split.invisible += sum(map(str.__ne__, stated, bare))
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
        raise UserError(f"{place}: tag {tag!r} is neither a string nor a number.")
    if names is None:
        raise UserError(
            f"{place}: its tags are bare numbers, and which means what is not known. "
            "Name them in order: 'data.labels=[O,B-PER,...]'."
        )
    if not 0 <= tag < len(names):
        raise UserError(f"{place}: tag {tag} has no name; there are 0 to {len(names) - 1}.")
    return names[tag]
