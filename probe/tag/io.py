"""Handles the input and output of `probe tag`: selects a saved probe, reads a text, formats tagged sentences."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.columns import ColumnsError, WordRows, cut_line
from probe.data.layout import Layout
from probe.data.readers import READERS, reader_of
from probe.data.sentences import Sentences
from probe.data.split import MAX_SENTENCE, Split, bare_tag, lines_of
from probe.data.tags import ill_formed, to_iob2
from probe.data.task import Task
from probe.runs.identity import normalized_name
from probe.runs.progress import closest_results
from probe.runs.records import RunRecord, load_records
from probe.system.format import pluralize

STDIN = "standard input"
# How a text is read; auto: decided by its ending or its lines.
INPUTS = ("auto", *(name for name, reader in READERS.items() if reader.read_without_tags), "text")
LIKE_A_FILE = re.compile(r"\S*/\S*|\S+\.[A-Za-z]{2,6}")  # one word with a slash, or with an ending


@dataclass(frozen=True)
class Untagged:
    """Holds a text to be tagged; its tags are all O. how: the format it was read as."""

    split: Split
    how: str

    @property
    def message(self) -> str:
        """Says how the text was read, and how much it holds."""
        known = self.split.documents
        documents = "no documents" if known is None else pluralize(len(set(known)), "document")
        return (
            f"{self.split.origin}: read as {self.how}: {pluralize(len(self.split.words), 'sentence')}, "
            f"{pluralize(self.split.num_words, 'word')}, {documents}"
        )

    def marker_rows(self, sentence: int) -> Iterator[list[str]]:
        """Yields the lines between documents before a sentence, as columns; one as wide as a word's line gets tag O."""
        for line in self.split.markers.get(sentence, ()):
            columns = cut_line(line, line.strip(" \t"), self.split.separator)
            yield [*columns, "O"] if len(columns) == self.split.num_columns else [line]


def select_saved_probe(folder: Path, row: str | None, seed: int | None) -> tuple[Path, RunRecord]:
    """Selects the record of a row and seed; without a seed, the best one on dev among those with saved weights.

    If none has weights, the best one on dev. row: may say how its layers are normalized; None: the only row, or the
    only one with saved weights. Raises UserError if there is no such record.
    """
    if not folder.is_dir():
        close = closest_results(folder)
        raise UserError(f"{folder}: there is no such folder of results.{f' Did you mean {close}?' if close else ''}")
    records = load_records(folder)
    if not records:
        raise UserError(f"{folder} has no finished run. To see the status of a sweep: probe sweep-status {folder}")
    records = {file: record for file, record in records.items() if not record.identity.condition}
    if row is None:
        row = _only_row(folder, list(records.values()))
    of_row = {
        file: record
        for file, record in records.items()
        if row in (record.row, normalized_name(record.row, record.identity.layers.normalize))
        and seed in (None, record.seed)
    }
    if not of_row:
        known = ", ".join(sorted({record.row for record in records.values()})) or "none"
        of_seed = "" if seed is None else f" and seed {seed}"
        raise UserError(f"{folder} has no record of row {row}{of_seed}. Rows: {known}.")
    if len({record.identity.across_rates for record in of_row.values()}) > 1:
        raise UserError(f"{folder} has row {row} with several settings. Move each into its own folder.")
    return max(of_row.items(), key=lambda pair: (bool(pair[1].sha256.weights), pair[1].scores.dev.headline))


def _only_row(folder: Path, records: Sequence[RunRecord]) -> str:
    """Returns the name of the only row, or the only one with saved weights. Raises UserError if there are several."""
    saved = [record for record in records if record.sha256.weights] or records
    rows = sorted({normalized_name(record.row, record.identity.layers.normalize) for record in saved})
    if len(rows) != 1:
        raise UserError(f"{folder} has several rows: type --row and one of {', '.join(rows) or 'none'}.")
    return rows[0]


def repaired(tagged: Iterable[list[str]], repair: bool, counts: Counter[str]) -> Iterator[list[str]]:
    """Yields the tags of each sentence, in IOB2, and counts as `ill_formed` each I- that continues no span.

    repair: writes these as B-, which is how they are scored.
    """
    for tags in tagged:
        counts["ill_formed"] += len(ill_formed(tags, "IOB2"))
        yield to_iob2(tags) if repair else tags


def read_untagged(given: str, data: DataConfig, record: RunRecord, how: str) -> Untagged:
    """Reads a file, standard input ("-"), or the text itself.

    data: the settings of columns and fields. record: of the probe, which has its tags. how: one of INPUTS. Raises
    UserError.
    """
    from probe.data.running_text import split_text

    layout = Layout.of(data)
    by_ending, is_text = READERS["columns"], False
    if given == "-":
        try:
            text, origin = sys.stdin.buffer.read().decode("utf-8-sig"), STDIN
        except UnicodeDecodeError as error:
            raise UserError(f"{STDIN} is not UTF-8 ({error.reason}).") from None
    elif _path_is(Path.is_file, given):
        by_ending = reader_of(Path(given))
        if by_ending.read_without_tags is None:
            raise UserError(f"{given}: {by_ending.name} cannot be tagged. Formats: {', '.join(INPUTS[1:])}.")
        text, origin = "\n".join(lines_of(Path(given))), given
    elif given and _path_is(Path.is_dir, given):
        raise UserError(f"{given} is a folder; a file, a text or - is needed.")
    elif LIKE_A_FILE.fullmatch(given):
        raise UserError(f"{given}: there is no such file. If it is a text: echo {given} | probe tag ... -")
    else:
        text, origin, is_text = given, "text", True
    reader = READERS.get(how, by_ending)
    lines = text.split("\n")
    kinds = set(record.scores.dev.per_type) | set(record.scores.test.per_type)
    is_running = how == "auto" and not reader.endings and (is_text or not looks_like_columns(text, layout, kinds))
    if how == "text" or is_running:
        try:
            return read_running([split_text(line) for line in lines], origin)
        except UnicodeEncodeError:  # Python turns other bytes of the command line into surrogates
            raise UserError(f"{origin} is not UTF-8, or has half a character.") from None
    assert reader.read_without_tags is not None
    try:
        split = reader.read_without_tags(lines, layout, origin)
    except ColumnsError as error:
        raise UserError(f"{error.found} If it is running text: --input text.") from None
    width = f", {split.num_columns} per line" if split.num_columns else ""
    return Untagged(split, f"{reader.name}{width}")


def looks_like_columns(text: str, layout: Layout, kinds: Collection[str]) -> bool:
    """Returns whether a text is a column file: all lines have one column, or equally many with tags in the tag column.

    kinds: the types of spans, or the tags, that a probe knows.
    """
    try:
        rows = [row.columns for row in WordRows(text.split("\n"), layout, "")]
    except UserError:
        return False
    if not rows or len(rows[0]) == 1:
        return bool(rows)
    if not -len(rows[0]) <= layout.tag_column < len(rows[0]):
        return False
    tags = {bare_tag(row[layout.tag_column]) for row in rows}
    return all(tag == "O" or tag in kinds or tag[2:] in kinds for tag in tags)


def read_running(lines: list[list[str]], origin: str) -> Untagged:
    """Reads running text, one sentence per line, from the words of its lines. An empty line separates documents."""
    split = Split([], [], [], [], origin)
    document = 0
    assert split.documents is not None
    for number, words in enumerate(lines, 1):
        document += not words
        if len(words) > MAX_SENTENCE:
            raise UserError(
                f"{origin}:{number}: a line of {len(words)} words. Running text has one sentence per line, of at most "
                f"{MAX_SENTENCE} words."
            )
        if words:
            split.lines.append(number)
            split.documents.append(document)
    split.words = Sentences.of(filter(None, lines))
    if not split.words:
        raise UserError(f"{origin} has no word.")
    split.tags = Sentences.of(["O"] * length for length in split.lengths)
    return Untagged(split, "running text")


def _path_is(kind: Callable[[Path], bool], given: str) -> bool:
    """Returns whether a path is a file or a folder. A text may be too long to be a path."""
    try:
        return kind(Path(given))
    except OSError:
        return False


def format_tagged(text: Untagged, tagged: Iterable[list[str]], form: str, task: Task) -> Iterator[str]:
    """Yields each sentence with the lines before it. form: conll, or json (a line per sentence).

    If a sentence has one label, conll gives a line of label, tab and text, as data.task=sentence reads it.
    """
    documents, all_columns = text.split.documents, text.split.columns
    parts = chain.from_iterable(chain.from_iterable(all_columns or [text.split.words]))
    separator = "\t" if text.split.separator == "tab" or any(" " in part for part in parts) else " "
    for number, tags in enumerate(tagged):
        words = text.split.words[number]
        if form == "json":
            labels = {"tags": tags} if task.is_per_word else {"label": tags[0]}
            line: dict[str, Any] = {"tokens": words, **labels}
            line |= {"document": documents[number]} if documents else {}
            yield json.dumps(line, ensure_ascii=False) + "\n"
            continue
        if not task.is_per_word:
            yield f"{tags[0]}\t{' '.join(words)}\n"
            continue
        rows = all_columns[number] if all_columns else [[word] for word in words]
        tagged_rows = [[*row, tag] for row, tag in zip(rows, tags, strict=True)]
        blocks = [[row] for row in text.marker_rows(number)] + [tagged_rows]
        block_texts = ["".join(f"{separator.join(row)}\n" for row in block) for block in blocks]
        yield ("\n" if number else "") + "\n".join(block_texts)
    if form == "conll" and task.is_per_word:
        for row in text.marker_rows(len(text.split.words)):  # after the last sentence
            yield f"\n{separator.join(row)}\n"
