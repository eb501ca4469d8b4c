"""What `probe tag` is given and what it gives: a kept probe chosen, a text read, tagged sentences written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from probe.config import DataConfig, UserError
from probe.data.columns import Layout
from probe.data.rows import JSON_ENDINGS, Fields, ending_of, read_json_words
from probe.data.split import lines_of
from probe.runs.identity import normalized_name
from probe.runs.records import RunRecord, load_records
from probe.tag.untagged import Untagged, looks_like_columns, read_columns_of_words, read_running

STDIN = "standard input"
LIKE_A_FILE = re.compile(r"\S*/\S*|\S+\.[A-Za-z]{2,6}")  # one word with a slash, or with an ending


def select_saved_probe(folder: Path, row: str, seed: int | None) -> tuple[Path, RunRecord]:
    """The record of a row, by its seed or else the one of the best dev score, first of all those whose weights were
    kept. The row's name may say how its layers are normalized. Raises UserError where there is none."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder of results.")
    records = load_records(folder)
    if not records:
        raise UserError(f"{folder} has no finished run. Where a sweep stands: probe sweep-status {folder}")
    records = {file: record for file, record in records.items() if not record.identity.treatment}
    mine = {
        file: record
        for file, record in records.items()
        if row in (record.row, normalized_name(record.row, record.identity.layers.normalize))
        and seed in (None, record.seed)
    }
    if not mine:
        known = ", ".join(sorted({record.row for record in records.values()})) or "none"
        of_seed = "" if seed is None else f" and seed {seed}"
        raise UserError(f"{folder} has no record of row {row}{of_seed}. Rows: {known}.")
    if len({record.identity.across_rates for record in mine.values()}) > 1:
        raise UserError(f"{folder} has row {row} in several settings; keep each in a folder of its own.")
    return max(mine.items(), key=lambda pair: (bool(pair[1].sha256.weights), pair[1].scores.dev.headline))


def read_untagged(given: str, data: DataConfig, record: RunRecord, how: str) -> Untagged:
    """A file, standard input ("-"), or the text itself.

    data: which columns or fields hold what. record: of the probe, which knows its tags. how: one of untagged.INPUTS.
    Raises UserError.
    """
    from probe.encoders.pieces import split_text

    layout = Layout(
        data.word_column, data.tag_column, data.separator, data.comment, data.document_marker, data.word_prefix
    )
    fields = Fields(data.words_field, data.tags_field, data.document_field, None, data.document_marker)
    ending, is_text = "", False
    if given == "-":
        try:
            text, origin = sys.stdin.buffer.read().decode("utf-8-sig"), STDIN
        except UnicodeDecodeError as error:
            raise UserError(f"{STDIN} is not UTF-8 ({error.reason}).") from None
    elif _is(Path.is_file, given):
        ending = ending_of(Path(given))
        if ending == ".parquet":
            raise UserError(f"{given}: Parquet is not read here; a word a line, JSON lines, or a sentence a line is.")
        text, origin = "\n".join(lines_of(Path(given), "")), given
    elif given and _is(Path.is_dir, given):
        raise UserError(f"{given} is a folder; a file, a text or - is needed.")
    elif LIKE_A_FILE.fullmatch(given):
        raise UserError(f"{given}: there is no such file. A text that looks like one: echo {given} | probe tag ... -")
    else:
        text, origin, is_text = given, "text", True
    if how == "json" or (how == "auto" and ending in JSON_ENDINGS):
        return Untagged(read_json_words(text.split("\n"), fields, origin), "JSON lines")
    kinds = set(record.scores.dev.per_type) | set(record.scores.test.per_type)
    is_columns = how == "columns" or (how == "auto" and not is_text and looks_like_columns(text, layout, kinds))
    if is_columns:
        return read_columns_of_words(text, layout, origin)
    try:
        return read_running([split_text(line) for line in text.split("\n")], origin)
    except UnicodeEncodeError:  # what the command line makes of other bytes
        raise UserError(f"{origin} is not UTF-8, or holds half a character.") from None


def _is(kind: Callable[[Path], bool], given: str) -> bool:
    """Whether a path is a file or a folder; a text may be too long for one."""
    try:
        return kind(Path(given))
    except OSError:
        return False


def written(text: Untagged, tagged: Iterable[list[str]], form: str) -> Iterator[str]:
    """Sentence by sentence, with what stands between them. form: conll, or json (a line a sentence)."""
    documents = text.split.documents
    parts = chain.from_iterable(chain.from_iterable(text.columns or [text.split.words]))
    separator = "\t" if text.has_tabs or any(" " in part for part in parts) else " "
    for number, tags in enumerate(tagged):
        words = text.split.words[number]
        if form == "json":
            line = {"tokens": words, "tags": tags} | ({"document": documents[number]} if documents else {})
            yield json.dumps(line, ensure_ascii=False) + "\n"
            continue
        rows = text.columns[number] if text.columns else [[word] for word in words]
        tagged_rows = [[*row, tag] for row, tag in zip(rows, tags, strict=True)]
        parts_here = [[row] for row in text.markers.get(number, ())] + [tagged_rows]
        blocks = ["".join(f"{separator.join(row)}\n" for row in part) for part in parts_here]
        yield ("\n" if number else "") + "\n".join(blocks)
    if form == "conll":
        for row in text.markers.get(len(text.split.words), ()):  # behind the last sentence
            yield f"\n{separator.join(row)}\n"
