"""Guesses how a corpus is to be read, for messages that name a setting to type: only what was tried and reads it."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.columns import cut_line
from probe.data.json_parquet import table_of_rows
from probe.data.layout import Layout
from probe.data.readers import reader_of
from probe.data.split import BYTE_ORDER_MARK, Split, bare_tag, lines_of
from probe.data.tags import ALMOST, BARE_PREFIX, PREFIXED

NUMBER = re.compile(r"\d+([-.]\d+)?")
NEARLY_ALL = 0.9
FEW_TAGS = 100  # distinct ones
TRIED_LINES = 10_000  # of each file
MOST_STATES, MOST_SETTINGS = 12, 4  # from which more is tried
COMMENT = re.compile(r"(#|%|;|//|<|\*\*|==|--|@@)(?=.*\w|\1)")  # how lines begin that are probably no words
# Those between documents: # newdoc id = 1, ### PMID:1, ###MEDLINE:1, <doc id="1">, # hipe2022:document_id = 1
BOUNDARY = re.compile(r"(?!</)[^\w\s]+ ?[^\n=]{0,20}?(doc|pmid|medline|article|abstract)\w*|###", re.I)
HEADER = re.compile(r"(?<![a-z])(tokens?|words?|forms?|text|sentences?|tags?|labels?|ner|pos)(?![a-z0-9])", re.I)
Settings = dict[str, Any]


def settings_that_read(cfg: DataConfig, error: UserError, read: Callable[[DataConfig, int | None], Any]) -> str:
    """Returns the fewest settings, as they are typed, with which a corpus can be read that could not be; "" for none.

    read: reads it, given the settings and how many lines of each file (None: all); raises UserError.
    """
    states: list[tuple[Settings, str]] = [({}, str(error))]
    for changes, found in states:  # which grows
        for more in _candidates(replace(cfg, **changes), found):
            tried = changes | more
            try:
                read(replace(cfg, **tried), TRIED_LINES)
                train = read(replace(cfg, **tried), None).splits["train"]
            except UserError as other:
                is_new = str(other) not in [text for _, text in states]
                if is_new and len(states) < MOST_STATES and len(tried) < MOST_SETTINGS:
                    states.append((tried, str(other)))
                continue
            comments = Layout.of(replace(cfg, **tried)).comments if "comment" in tried else ()
            loses_documents = any(COMMENT.match(f"{comment} x") for comment in comments) and train.documents is None
            start = "If its tags are not spans" if tried.get("task") == "tags" else "This reads it"
            settings = " ".join(f"data.{name}={_quoted(value)}" for name, value in tried.items())
            return f"{start}: {settings}{' (without documents)' if loses_documents else ''}"
    return ""


def _quoted(value: object) -> str:
    """Quotes a setting's value for Hydra and the shell where that is needed."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./:@%+-]+", value)
    return str(value) if is_plain else shlex.quote(json.dumps(value, ensure_ascii=False))


def _candidates(cfg: DataConfig, found: str) -> Iterator[Settings]:
    """Yields settings that may read a corpus of which this was found."""
    files = [Path(str(cfg.path), name).expanduser() for name in (cfg.train, cfg.dev, cfg.test) if name is not None]
    there = sorted(file.name for file in Path(str(cfg.path)).expanduser().glob("*"))
    for ending in dict.fromkeys(["", *(Path(name).suffix for name in there)]) if not files[0].exists() else ():
        patterns = {"train": "train.*", "dev": "(dev|valid|testa).*", "test": "test(?!a).*"}
        like = {
            split: [name for name in there if re.search(f"{one}{re.escape(ending)}$", name)]
            for split, one in patterns.items()
        }
        if all(len(names) == 1 for names in like.values()):
            yield {split: names[0] for split, names in like.items()}
    place = re.match(r"(.+?):(\d+)\b", found)
    file = Path(place[1]) if place and Path(place[1]) in files else files[0]
    reader = reader_of(file).name
    try:
        if reader in ("JSON lines", "Parquet or Arrow"):
            row = json.loads(_lines(file)[0]) if reader == "JSON lines" else table_of_rows(file)[0]
            yield from _of_fields(cfg, row if isinstance(row, dict) else {})
        elif cfg.task == "sentence":
            yield {"separator": "comma"}
        else:
            yield from _of_columns(cfg, _lines(file), reader)
            odd = next(islice(lines_of(file), int(place[2]) - 1, None), "") if place else ""
            if reader == "columns":
                yield from _of_lines(cfg, _lines(file), odd, [next(iter(_lines(file)), "") for file in files])
    except (UserError, ValueError, IndexError, RecursionError):  # of a file that cannot be read at all
        return


def _lines(file: Path) -> list[str]:
    """Returns the first lines that are not empty."""
    lines = (line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK) for line in islice(lines_of(file), TRIED_LINES))
    return [line for line in lines if line.strip(" \t,")]


def _of_fields(cfg: DataConfig, row: dict[str, Any]) -> Iterator[Settings]:
    """Yields the pairs of fields that may be words and tags, or a text and its label."""
    lists = {name: {*map(type, value)} for name, value in row.items() if isinstance(value, list) and name.isprintable()}
    for words in (name for name, kinds in lists.items() if kinds == {str}):
        for tags, kinds in lists.items():
            if tags != words and kinds <= {str, int} and len(row[tags]) == len(row[words]):
                yield {"words_field": words, "tags_field": tags}
    if lists and cfg.task == "spans":
        yield {"task": "tags"}
    texts = [name for name, value in row.items() if isinstance(value, str) and name.isprintable() and not lists]
    for text in sorted(texts, key=lambda name: -len(row[name])):
        for label in row:
            if label != text and isinstance(row[label], str | int) and label.isprintable():
                yield {"task": "sentence", "words_field": text, "tags_field": label}


def _of_lines(cfg: DataConfig, lines: list[str], odd: str, heads: list[str]) -> Iterator[Settings]:
    """Yields how lines begin that are no words, and separators. heads: the first line of each file."""
    old = list(Layout.of(cfg).comments)
    first = next((line for line in lines if not line.startswith(tuple(old))), "")
    for line in filter(COMMENT.match, dict.fromkeys([odd, first, lines[0]])):
        starts = line.split("\t")[0].split(" ")
        boundaries = (BOUNDARY.match(other) for other in lines if other.startswith(starts[0]))
        found = next(filter(None, boundaries), None) if cfg.document_marker == Layout.document_marker else None
        marker = {"document_marker": found[0]} if found else {}
        yield from [marker] if marker else []
        for prefix in (" ".join(starts[:number]) for number in range(1, min(len(starts), 3) + 1)):
            for comment in dict.fromkeys([(*old, prefix), (prefix,)]):
                yield {"comment": comment[0] if len(comment) == 1 else list(comment)} | marker
    yield from ({"separator": name} for name in ("tab", "whitespace", "space", "comma") if name != cfg.separator)
    cells = _cut(first, cfg.separator)
    has_tags = any(cell == "O" or ALMOST.fullmatch(cell) or BARE_PREFIX.fullmatch(cell) for cell in cells)
    names_columns = not has_tags and (len(heads) > len(set(heads)) or any(map(HEADER.search, cells)))
    start = first.partition(cells[0])[0] + cells[0]  # in CSV, a quote may stand before it
    if names_columns and len(cells) > 1 and cells[0] and sum(line.startswith(start) for line in lines) == 1:
        yield {"comment": [*old, start] if old else start}
    yield from [{"comment": None}] if old else []


def _cut(line: str, separator: str) -> list[str]:
    of_line = "tab" if "\t" in line.strip(" \t") else "whitespace"
    return cut_line(line, of_line if separator == "auto" else separator)


def _of_columns(cfg: DataConfig, lines: list[str], reader: str) -> Iterator[Settings]:
    """Yields columns that hold tags or words, if those that were chosen do not, and other readings of the tags."""
    prefixes = Layout.of(cfg).comments if reader == "columns" else ("#",)
    rows = [_cut(line, cfg.separator) for line in lines if not line.startswith(prefixes)][1:]  # behind a header
    width = max(Counter(map(len, rows)).items(), key=itemgetter(1), default=(0, 0))[0]
    table = [row for row in rows if len(row) == width]
    columns = list(map(list, zip(*table, strict=True)))
    tags, words = (columns[at] if -width <= at < width else [] for at in (cfg.tag_column, cfg.word_column))
    of_spans = sum(tag == "O" or PREFIXED.fullmatch(tag) is not None for tag in tags)
    no_words = words.count("") > (1 - NEARLY_ALL) * len(words) or words is tags or nearly_all_numbers(words)
    whole = [at for at, column in enumerate(columns) if all(column) and column is not tags]
    best = wordlike_column([[row[at] for at in whole] for row in table])
    others = {"word_column": whole[best]} if no_words and best is not None and reader == "columns" else {}
    if cfg.task == "spans" and (of_spans < NEARLY_ALL * len(tags) or {*tags} <= {"O"}):
        yield from ({"tag_column": at} | others for at in span_columns(table))
    yield from [others] if others else []
    kinds = set(map(bare_tag, tags)) - {"O"}
    no_spans = kinds and not any(PREFIXED.fullmatch(kind) or ALMOST.fullmatch(kind) or "*" in kind for kind in kinds)
    if cfg.task == "spans" and no_spans and len(kinds) <= FEW_TAGS:
        yield {"task": "tags"}
    yield from [{"scheme": "auto"}] if cfg.scheme != "auto" else []


def table_of(split: Split, most: int | None = None) -> list[list[str]]:
    """Reads the columns of the split's first lines with words from its file. Returns no rows for other formats."""
    lines, skipped = enumerate(lines_of(Path(split.origin)) if split.word_a_line else (), 1), {*split.skipped_lines}
    some = (line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK) for number, line in lines if number not in skipped)
    rows = (cut_line(line, split.separator)[: split.num_columns] for line in some if line.strip(" \t"))
    return list(islice((row for row in rows if len(row) == split.num_columns), most))


def span_columns(table: Sequence[Sequence[str]]) -> list[int]:
    """Returns the columns that hold only O and tags with a scheme's prefix; the column with most spans comes first."""
    found = []
    for at, column in enumerate(zip(*table, strict=False)):
        counts = Counter(map(bare_tag, column))
        outside = counts.pop("O", 0)
        if outside and counts and (all(map(PREFIXED.fullmatch, counts)) or all(map(BARE_PREFIX.fullmatch, counts))):
            found.append((-counts.total(), at))
    return [at for _, at in sorted(found)]


def nearly_all_numbers(values: Sequence[str]) -> bool:
    return sum(NUMBER.fullmatch(value) is not None for value in values) >= NEARLY_ALL * len(values)


def wordlike_column(table: Sequence[Sequence[str]]) -> int | None:
    """Returns the column with most distinct values among those that do not hold numbers; None if all hold numbers."""
    distinct = {
        at: len(set(column)) for at, column in enumerate(zip(*table, strict=False)) if not nearly_all_numbers(column)
    }
    return max(distinct, key=lambda at: distinct[at], default=None)
