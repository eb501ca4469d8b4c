"""Handles the input and output of `probe tag`: selects a saved probe, reads a text, formats tagged sentences."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.columns import cut_line
from probe.data.layout import Layout
from probe.data.offsets import add_text, texts_with_spans
from probe.data.readers import READERS, reader_of
from probe.data.split import Split, SplitBuilder, lines_of
from probe.data.task import Task
from probe.runs.frame import names_of, of_row, run_of
from probe.runs.progress import other_results
from probe.runs.records import RunRecord, load_records
from probe.scoring.tags import Tags
from probe.tables.rows import results_folder

INPUTS = ("text", *(name for name, reader in READERS.items() if reader.read_lines and reader.unit != "sentence"))
# What annotation tools import, from a text, its spans and its id or None: Prodigy, doccano, and examples for spaCy.
SPAN_FORMS: dict[str, Callable[..., Any]] = {
    "spans": lambda text, found, name=None: _head(text, name) | {"spans": [span.as_dict("label") for span in found]},
    "doccano": lambda text, found, name=None: _head(text, name) | {"label": [span[:3] for span in found]},
    "spacy": lambda text, found, name=None: [text, {"entities": [span[:3] for span in found]}],
}
LIKE_A_FILE = re.compile(r"/|.\.[A-Za-z]{2,8}\Z")  # in one word: a slash, or an ending


def select_saved_probe(folder: Path, row: str | None, seed: int | None) -> tuple[Path, RunRecord]:
    """Selects the record of a row and seed; without a seed, the best one on dev.

    Records without saved weights are taken only if there are no others. row: may say how its layers are normalized;
    None: the only row. Raises UserError.
    """
    folder = results_folder(folder)
    records = {file: record for file, record in load_records(folder).items() if not record.identity.condition}
    if not records:
        status = f"probe sweep-status {shlex.quote(str(folder))}"
        raise UserError(f"{folder} has no finished run ({status}). {other_results(folder)}")
    fitting = of_row(folder, records, row, seed)
    fitting = {file: record for file, record in fitting.items() if record.sha256.weights} or fitting
    if len({run_of(file, record).row for file, record in fitting.items()}) > 1:
        known = sorted({names[-1] for names in names_of([*fitting.values()])})
        remedy = "Train the one that you want into another folder: save_probe=true results_dir=DIR"
        if len(known) > 1:
            remedy = "Type one: --row NAME"
        raise UserError(f"{folder} has several rows or settings that fit: {'; '.join(known)}. {remedy}.")
    return max(fitting.items(), key=lambda pair: pair[1].scores.dev.headline)


def read_untagged(source: str, data: DataConfig, how: str | None) -> Split:
    """Reads a file, standard input ("-"), or the text itself.

    data: the settings of columns and fields. how: one of INPUTS; None: a file as in training, by its ending, and
    anything else as running text, also a .txt unless its lines have a word each or end in tags. All tags are O. Raises
    UserError.
    """
    default, origin, layout = "text", source, replace(Layout.of(data), without_tags=True)
    if source == "-":
        lines, origin = read_stdin().split("\n"), "standard input"
    elif os.path.exists(source):  # noqa: PTH110 - Path.exists raises for a text that is too long to be a path
        default = next(name for name, reader in READERS.items() if reader is reader_of(Path(source)))
        read_path = READERS[default].read_path
        if how is None and read_path is not None:
            return read_path(Path(source), layout)
        lines = list(lines_of(Path(source)))
    elif source.split() == [source] and LIKE_A_FILE.search(source):
        raise UserError(f"{source}: there is no such file. If it is a text, not a file, give it on standard input (-).")
    else:
        lines, origin, how = source.split("\n"), "text", "text"
    if default == "columns" and origin.endswith(".txt") and not _has_tags(lines):
        default = "text"
    how = how or default
    if how == "text":
        return read_running([line.removesuffix("\r") for line in lines], origin)
    read = READERS[how].read_lines
    assert read is not None, "one of INPUTS"
    try:
        return read(lines, layout, origin)
    except UserError as error:
        raise UserError(f"{error} If it is running text: --input text.") from None


def read_stdin() -> str:
    """Reads all of standard input. Raises UserError if it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 ({error.reason}).") from None


def _has_tags(lines: Sequence[str]) -> bool:
    """Tells whether lines have a word each, or tags behind words."""
    cells = [line.split() for line in lines if line.strip()]
    tags = [re.fullmatch(r"O|[BIESLUM]-\S+", row[-1]) for row in cells if len(row) > 1]
    return all(len(row) == 1 for row in cells) or 2 * sum(map(bool, tags)) > len(tags)


def read_running(texts: list[str], origin: str) -> Split:
    """Reads running text. Each line of a text is a sentence; a text without a word separates documents."""
    builder = SplitBuilder(origin)
    builder.document = 1
    for number, text in enumerate(texts, 1):
        builder.document += not add_text(builder, number, text, [], f"{origin}:{number}")
    return builder.done()


def refuse_other_tasks(record: RunRecord, what: str) -> None:
    """Raises UserError if the tags of a record are not those of spans. what: was typed."""
    if record.task.name != "spans":
        raise UserError(f"{what} needs data.task=spans; {record.label} was trained with data.task={record.task.name}.")


def _head(text: str, name: Any) -> dict[str, Any]:
    return {"text": text} if name is None else {"id": name, "text": text}


def format_tagged(split: Split, tagged: Tags, scores: Sequence[float], form: str, task: Task) -> Iterator[str]:
    """Yields each sentence with the lines before it. form: conll, or json (a line per sentence).

    With one of SPAN_FORMS, yields a line per text. scores: the probability of each tag. If a sentence has one label,
    conll gives a line of label, tab and text, as data.task=sentence reads it.
    """
    parts = chain.from_iterable(chain.from_iterable(split.columns or [split.words]))
    separator = "\t" if split.separator == "tab" or any(" " in part for part in parts) else " "
    if form in SPAN_FORMS:
        for of_text in texts_with_spans(split, tagged, scores):
            yield json.dumps(SPAN_FORMS[form](*of_text), ensure_ascii=False) + "\n"
        return
    for number, (words, tags) in enumerate(zip(split.words, tagged, strict=True)):
        if form == "json":
            line: dict[str, Any] = {"tokens": words} | ({"tags": tags} if task.is_per_word else {"label": tags[0]})
            if split.documents:
                line["document"] = split.documents[number]
            yield json.dumps(line, ensure_ascii=False) + "\n"
        elif not task.is_per_word:
            text = split.raw[number] if split.raw else None
            yield f"{tags[0]}\t{' '.join(text.split() if isinstance(text, str) else words)}\n"
        else:
            rows = split.columns[number] if split.columns else [[word] for word in words]
            lines = [separator.join([*row, tag]) for row, tag in zip(rows, tags, strict=True)]
            blocks = [*_markers(split, number, separator), "\n".join(lines)]
            yield ("\n" if number else "") + "\n\n".join(blocks) + "\n"
    if form == "conll" and task.is_per_word:
        for marker in _markers(split, len(split.words), separator):  # after the last sentence
            yield f"\n{marker}\n"


def _markers(split: Split, sentence: int, separator: str) -> Iterator[str]:
    """Yields the lines between documents before a sentence; one as wide as a word's line gets tag O."""
    for line in split.markers.get(sentence, ()):
        columns = cut_line(line, split.separator)
        yield separator.join([*columns, "O"]) if len(columns) == split.num_columns else line
