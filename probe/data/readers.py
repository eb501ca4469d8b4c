"""Lists the corpus formats. To add a format, write its reader in a new file and add one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from probe.config import UserError
from probe.data.brat_docbin import is_of_brat, read_brat, read_docbin
from probe.data.columns import read_columns, read_conllu
from probe.data.json_parquet import read_dataset, read_json, table_of_rows
from probe.data.labelled import read_labelled
from probe.data.layout import Layout
from probe.data.split import Split, lines_of
from probe.data.tasks import TASKS


@dataclass(frozen=True)
class Reader:
    """Describes a corpus format.

    name: as messages show it. endings: of the files in this format. read_lines: reads lines of text, given their
    origin; None: it is no text, and `read_path` reads the file or folder. unit: what has a label in it; None: any.
    """

    name: str
    endings: tuple[str, ...]
    read_lines: Callable[[Iterable[str], Layout, str], Split] | None
    unit: str | None = None
    read_path: Callable[[Path, Layout], Split] | None = None


def _read_table(file: Path, layout: Layout) -> Split:
    return read_dataset(table_of_rows(file, layout), layout, str(file))


READERS = {
    "columns": Reader("columns", (), read_columns, unit="word"),
    "conllu": Reader("CoNLL-U", (".conllu",), read_conllu, unit="word"),
    "json": Reader("JSON lines", (".jsonl", ".ndjson", ".json"), read_json),
    "labelled": Reader("a label and a text per line", (), read_labelled, unit="sentence"),
    "parquet": Reader("Parquet or Arrow", (".parquet", ".arrow"), None, read_path=_read_table),
    "docbin": Reader("a DocBin of spaCy", (".spacy",), None, "word", read_docbin),
    "brat": Reader("a folder of brat", (), None, "word", read_brat),
}


def reader_of(file: Path) -> Reader:
    """Returns the reader for a file's ending, compressed or not. Files with an unknown ending are column files."""
    if is_saved(file):
        return READERS["brat" if is_of_brat(file) else "parquet"]
    ending = Path(file.name.removesuffix(".gz")).suffix
    return next((reader for reader in READERS.values() if ending in reader.endings), READERS["columns"])


def is_saved(file: Path) -> bool:
    """Returns whether this is a folder with a split, which brat or `save_to_disk` of `datasets` wrote."""
    return (file / "state.json").is_file() or is_of_brat(file)


def read_file(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads one file. Raises UserError with `remedy`, which is what to type, if there is no such file."""
    reader, unit = reader_of(file), TASKS[layout.task].unit
    if not TASKS[layout.task].is_per_word and not reader.endings:
        reader = READERS["labelled"]
    if (reader.unit == "word") != TASKS[layout.task].is_per_word and reader.unit is not None:
        raise UserError(f"{file}: {reader.name} has a label per {reader.unit}, data.task={layout.task} one per {unit}.")
    if not file.is_file() and not is_saved(file):
        raise UserError(f"{file} is no file. {remedy}".rstrip())
    if reader.read_path is not None:
        return reader.read_path(file, layout)
    assert reader.read_lines is not None, "one of the two"
    has_rows = reader in (READERS["json"], READERS["labelled"])  # which may have several lines each
    most = None if has_rows else layout.most_lines
    with closing(lines_of(file)) as lines:
        return reader.read_lines(islice(lines, most), layout, str(file))
