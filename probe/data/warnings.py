"""Warns of a corpus that can be read but is probably not the intended one, and says what to type.

No warning stops a run: word indices or another layer of tags may be intended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any

from probe.config import DataConfig
from probe.data.columns import cut_line
from probe.data.guesses import (
    FEW_TAGS,
    HEADER,
    NEARLY_ALL,
    as_typed,
    columns_of,
    nearly_all_numbers,
    sentence_column,
    span_columns,
    wordlike_column,
)
from probe.data.split import CUT_WORDS, Split, lines_of
from probe.format import escape_invisible

WARNING = "WARNING: "  # begins a line

MOST = 20_000  # words of train that are checked
ONE_TAG = 0.98  # of all tags
UNIQUE = 0.1  # different tags per word; words and lemmas have more, tags have fewer
LONGEST_MEAN = 300  # words per sentence
LONG_ENOUGH = 5  # words; any two texts share shorter sentences
CUT = 0.05  # words that are cut inside, per span
SHARED = 0.05  # of a split's sentences; train and dev of CoNLL-2003 share 2.7 %


def data_warnings(cfg: DataConfig, train: Split, about: Mapping[str, Any]) -> list[str]:
    """Returns the warnings for a corpus. Numbered words are the same in every sentence, so they get one warning."""
    columns = columns_of(train, MOST)
    words = list(islice(chain.from_iterable(train.words), MOST))
    warnings = list(_numbers(train, words, columns)) or [*_affixes(words), *on_shared(about.get("shared", {}))]
    if train.num_words > LONGEST_MEAN * len(train.words):
        warnings.append(
            f"sentences have {train.num_words // len(train.words)} words on average: are empty lines missing?"
        )
    if (cut := train.skipped[CUT_WORDS]) > CUT * sum(tag[0] == "B" for tags in train.tags for tag in tags):
        warnings.append(
            f"{cut:,} words of train are cut where a span begins or ends: are the offsets right? New text is not cut "
            "there, so its spans are harder to find than dev's. Without blanks between words, write a tag per word"
        )
    return [*warnings, *_header(train), *_merged(train, columns), *_tags(cfg, train, columns, "scheme" in about)]


def _merged(train: Split, columns: list[tuple[str, ...]]) -> Iterator[str]:
    """Warns of a column of sentences whose ends are not those that were read."""
    at = sentence_column(columns)
    if at is not None and (names := len({*filter(None, columns[at])})) > len(train.words):
        yield f"column {at} has {names:,} sentences, of which {len(train.words):,} were read: data.sentence_column={at}"


def _header(train: Split) -> Iterator[str]:
    """Warns of a first line that seems to name the columns: its tag occurs nowhere else."""
    word, tag = train.words[0][0], train.tags[0][0]
    tags = Counter(chain.from_iterable(train.tags))
    if tags[tag] > 1:
        return
    if train.word_lines and HEADER.search(f"{word} {tag}"):
        yield f"the first word is {word} {tag}; if that names the columns: data.comment={word}"
    elif not train.word_lines and train.separator and 2 * len(tags) < tags.total():
        label, *texts = cut_line(next(lines_of(Path(train.origin))).removesuffix("\r"), train.separator)
        names = f"data.tags_field={as_typed(label)} data.words_field={as_typed(texts[-1])}"
        yield f"label {tag} occurs in the first line alone; if that names the columns: {names}"


def _affixes(words: Sequence[str]) -> Iterator[str]:
    """Warns of a digit behind nearly all words, as in Weibo NER, or of a beginning that all share."""
    numbered = [word for word in words if re.fullmatch(r".*\D\d", word)]
    if len(numbered) >= NEARLY_ALL * len(words):
        yield f"nearly all words end in a digit ({', '.join(numbered[:3])}). If it is no part of them, remove it"
    prefix = re.match(r"\w+\W", words[0])
    if prefix and all(word.startswith(prefix[0]) for word in words):
        yield f"all words begin with {prefix[0]}; to remove that: data.word_prefix={prefix[0]}"


def _numbers(train: Split, words: Sequence[str], columns: list[tuple[str, ...]]) -> Iterator[str]:
    if not nearly_all_numbers(words):
        return
    best = wordlike_column(columns)
    remedy = "data.word_column=N" if train.word_lines else "data.words_field=NAME"
    if best is not None:
        remedy = f"data.word_column={best} ({_most_common(Counter(columns[best]))})"
    yield f"nearly all words are numbers ({', '.join(words[:3])}); to read others: {remedy}"


def _tags(cfg: DataConfig, train: Split, columns: list[tuple[str, ...]], are_spans: bool) -> Iterator[str]:
    """Warns of tags that are nearly all the same or nearly all different. Names a column that looks more like tags."""
    tags = Counter(chain.from_iterable(train.tags))
    total = tags.total()
    if len(tags) < 2 or (max(tags.values()) < ONE_TAG * total and len(tags) < UNIQUE * max(total, FEW_TAGS)):
        return
    remedy, values = "", list(map(Counter, columns))
    chosen = [at % len(columns) for at in (cfg.tag_column, cfg.word_column) if columns]
    for at in span_columns(columns) if are_spans else sorted(range(len(columns)), key=lambda at: -len(values[at])):
        if at not in chosen and 1 < len(values[at]) <= FEW_TAGS and not nearly_all_numbers([*values[at]]):
            remedy = f"; more like tags: data.tag_column={at} ({_most_common(values[at])})"
            break
    yield f"train's {total:,} tags are {_most_common(tags)}{remedy}"


def _most_common(values: Counter[str]) -> str:
    shown = [f"{escape_invisible(value)} {count:,}" for value, count in values.most_common(4)]
    return f"{len(values)} different ones: {', '.join(shown)}"


def shared_sentences(splits: Mapping[str, Split]) -> dict[str, dict[str, int]]:
    """Counts the sentences that two splits share, if they are many. `dev in train`: how many, of how many of dev."""
    shared = {}
    known = {name: {hash(tuple(words)) for words in split.words} for name, split in splits.items()}
    for first, second in combinations(splits, 2):
        long = [hash(tuple(words)) for words in splits[second].words if len(words) >= LONG_ENOUGH]
        both = sum(words in known[first] for words in long)
        if both and both >= SHARED * len(long):
            shared[f"{second} in {first}"] = {"both": both, "of": len(long)}
    return shared


def on_shared(shared: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Warns of sentences that two splits share: memorised ones count as correct. shared: see `shared_sentences`."""
    for splits, counts in shared.items():
        second, first = splits.split(" in ")
        yield (
            f"{counts['both']:,} of {second}'s {counts['of']:,} sentences of {LONG_ENOUGH} words or more occur in "
            f"{first}, where they can be memorised. Remove them from one of the two"
        )
