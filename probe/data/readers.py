"""Lists the corpus formats. To add a format, write its reader in a new file and add one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from probe.config import UserError
from probe.data.columns import read_columns, read_columns_without_tags
from probe.data.conllu import read_conllu, read_conllu_without_tags
from probe.data.json_parquet import read_json, read_json_without_tags, read_parquet
from probe.data.labelled import read_labelled
from probe.data.layout import Layout
from probe.data.split import Split
from probe.data.tasks import TASKS

WORDS = ("spans", "tags")


@dataclass(frozen=True)
class Reader:
    """Describes a corpus format.

    name: as messages show it. endings: of the files in this format. read: reads a file; its last argument is what to
    type if the file does not exist. read_without_tags: reads the lines of a text for `probe tag`; None if that is not
    supported. tasks: the values of data.task for which it has labels.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[Path, Layout, str], Split]
    read_without_tags: Callable[[Iterable[str], Layout, str], Split] | None = None
    tasks: tuple[str, ...] = WORDS


JSON_LINES = (".jsonl", ".ndjson", ".json")
READERS = {
    "columns": Reader("columns", (), read_columns, read_columns_without_tags),
    "conllu": Reader("CoNLL-U", (".conllu",), read_conllu, read_conllu_without_tags),
    "json": Reader("JSON lines", JSON_LINES, read_json, read_json_without_tags, tuple(TASKS)),
    "labelled": Reader("a label and a text per line", (), read_labelled, None, ("sentence",)),
    "parquet": Reader("Parquet", (".parquet",), read_parquet, None, tuple(TASKS)),
}


def reader_of(file: Path) -> Reader:
    """Returns the reader for a file's ending, compressed or not. Files with an unknown ending are column files."""
    ending = Path(file.name.removesuffix(".gz")).suffix
    return next((reader for reader in READERS.values() if ending in reader.endings), READERS["columns"])


def read_file(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads one file. Raises UserError with `remedy`, which is what to type, if the file does not exist."""
    reader = reader_of(file)
    if layout.task == "sentence" and reader is READERS["columns"]:
        reader = READERS["labelled"]
    if layout.task not in reader.tasks:
        able = ", ".join(other.name for other in READERS.values() if layout.task in other.tasks)
        raise UserError(f"{file}: {reader.name} has no labels for data.task={layout.task}. These have: {able}.")
    return reader.read(file, layout, remedy)
