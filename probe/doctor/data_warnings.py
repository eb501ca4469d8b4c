"""Warns of a corpus that can be read but is probably not the intended one, and says what to type.

No warning stops a run: word indices, a language prefix or another layer of tags may be intended.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from probe.config import Config
from probe.data.column_guesses import NUMBER, nearly_all_numbers, span_columns, table_of, wordlike_column
from probe.data.columns import quoted
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.probes.kinds import kind_of
from probe.probes.schedule import Schedule, updates
from probe.system.format import escape_invisible, pluralize

MOST = 20_000  # words of train that are checked
MARK = re.compile(r"[\w-]*docstart[\w-]*", flags=re.I)
ONE_TAG = 0.98  # of all tags
FEW_WORDS_IN_SPANS = 0.04  # below, another column with several times as many may be the intended one
FEW_TAGS = 100  # distinct ones
LONG_ENOUGH = 5  # words; any two texts share shorter sentences
SHARED = 0.05  # of a split's sentences; train and dev of CoNLL-2003 share 2.7 %
SMALL_SENTENCES = 200
SMALL_UPDATES = 50  # in a pass


class DataWarning(NamedTuple):
    """Holds a warning about a corpus. name: for the doctor's last line. message: what was found, and what to type."""

    name: str
    message: str


def data_warnings(corpus: Corpus, configs: Sequence[Config]) -> list[DataWarning]:
    """Returns the warnings for a corpus and for runs on it, by their configs."""
    cfg, train = configs[0], corpus.splits["train"]
    table = table_of(train)[:MOST]
    numbers = list(_numbers(train, table))
    repeated = [] if numbers else [*_header(corpus), *_shared(corpus)]  # numbered words are the same in every sentence
    of_text = [*numbers, *_prefix(train), *_marks(corpus), *_tags(cfg, corpus, table), *repeated]
    return [*of_text, *_small(len(train.words), configs), *_short(len(train.words), configs)]


def _numbers(train: Split, table: list[list[str]]) -> Iterator[DataWarning]:
    words = list(chain.from_iterable(train.words))[:MOST]
    if not nearly_all_numbers(words):
        return
    numbers = sum(NUMBER.fullmatch(word) is not None for word in words)
    message = f"{numbers:,} of {len(words):,} words are numbers ({', '.join(words[:3])})"
    best = wordlike_column(table)
    if not train.word_a_line:
        yield DataWarning("words that are numbers", f"{message}; another field: data.words_field=NAME")
    elif best is not None:
        values = ", ".join(escape_invisible(row[best]) for row in table[:3])
        yield DataWarning("words that are numbers", f"{message}; column {best} holds {values}: data.word_column={best}")
    else:
        yield DataWarning("words that are numbers", f"{message}; another column: data.word_column=N")


def _header(corpus: Corpus) -> Iterator[DataWarning]:
    """Warns of a first line that all three files share, with a tag that occurs nowhere else in train."""
    first = {(split.words[0][0], split.tags[0][0]) for split in corpus.splits.values()}
    word, tag = next(iter(first))
    train = corpus.splits["train"]
    if len(first) == 1 and train.word_a_line and sum(tags.count(tag) for tags in train.tags) == 1:
        yield DataWarning(
            "a header",
            f"all three files begin with {escape_invisible(word)} {escape_invisible(tag)}, a tag that occurs nowhere "
            f"else in train; if it names the columns: data.comment={quoted(word)} skips it",
        )


def _prefix(train: Split) -> Iterator[DataWarning]:
    """Warns of a prefix that all words share, up to its last non-alphanumeric character."""
    words = set(chain.from_iterable(train.words))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(min(words), max(words), strict=False))
    shared = "".join(one for one, _ in same)
    if shared and len(words) >= 10:
        mark = re.match(r".*[\W_]", shared)
        prefix = mark[0] if mark else shared
        how = f"to remove it: data.word_prefix={quoted(prefix)}" if train.word_a_line else "remove it from the data"
        yield DataWarning("a prefix of all words", f"every word begins with {prefix!r}; {how}")


def _marks(corpus: Corpus) -> Iterator[DataWarning]:
    """Warns of sentences of one word that looks like a mark between documents but differs from the one set."""
    single_words = (words[0] for split in corpus.splits.values() for words in split.words if len(words) == 1)
    if marks := Counter(word for word in single_words if MARK.fullmatch(word)):
        where = f"the only word of {pluralize(marks.total(), 'sentence')}"
        message = f"{', '.join(map(escape_invisible, marks))}, {where}, looks like a mark between documents"
        setting = f"data.document_marker={quoted(marks.most_common(1)[0][0])}"
        yield DataWarning("marks between documents", f"{message}; if it is: {setting}, for all of them")


def _tags(cfg: Config, corpus: Corpus, table: list[list[str]]) -> Iterator[DataWarning]:
    """Warns of tags that are nearly all the same, or of another column that looks more like tags."""
    tags = Counter(tag for sentence in corpus.splits["train"].tags for tag in sentence)
    (common, times), total = tags.most_common(1)[0], tags.total()
    message = ""
    if times >= ONE_TAG * total and len(tags) > 1:
        message = f"{100 * times / total:.1f} % of train's tags are {escape_invisible(common)}"
    better = _better_column(cfg, corpus, table, times / total, len(tags) / total)
    if better is not None:
        at, holds = better
        better_column = f"column {at} looks more like tags ({holds}): data.tag_column={at}"
        yield DataWarning("the tags' column", f"{message}; {better_column}" if message else better_column)
    elif message:
        other = " or another column (data.tag_column=N)" if table and min(map(len, table)) > 2 else ""
        yield DataWarning("tags that are nearly all one", f"{message}; is that the task{other}?")


def _better_column(
    cfg: Config, corpus: Corpus, table: list[list[str]], most_common: float, distinct: float
) -> tuple[int, str] | None:
    if not table:
        return None
    width = min(map(len, table))
    chosen = {cfg.data.tag_column % width, cfg.data.word_column % width}
    columns = {at: Counter(row[at] for row in table) for at in range(width) if at not in chosen}
    if corpus.task.has_spans:
        like = [at for at in span_columns(table) if at in columns]
        in_spans = 1 - most_common
        bare = cfg.data.tag_column % width not in span_columns(table)
        if like and (bare or in_spans < FEW_WORDS_IN_SPANS):
            share = 1 - columns[like[0]]["O"] / len(table)
            if bare or share > 3 * in_spans:
                return like[0], _few(columns[like[0]])
        return None
    if distinct < 0.1 or len(table) < 100:  # words or lemmas, not tags
        return None
    most = min(FEW_TAGS, distinct * len(table) / 3)
    few = [at for at, values in columns.items() if 1 < len(values) <= most]
    few = [at for at in few if not all(NUMBER.fullmatch(value) for value in columns[at])]
    best = max(few, key=lambda at: len(columns[at]), default=None)
    return None if best is None else (best, _few(columns[best]))


def _few(values: Counter[str]) -> str:
    return f"{len(values)} different values: {', '.join(escape_invisible(value) for value, _ in values.most_common(4))}"


def _shared(corpus: Corpus) -> Iterator[DataWarning]:
    """Warns of sentences that two splits share: memorised ones count as correct."""
    overlaps = []
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        known = {tuple(words) for words in corpus.splits[one].words}
        long = [words for words in corpus.splits[other].words if len(words) >= LONG_ENOUGH]
        both = sum(tuple(words) in known for words in long)
        if both and both >= SHARED * len(long):
            overlaps.append(f"{both:,} of {other}'s {len(long):,} ({100 * both / len(long):.0f} %) occur in {one}")
    if overlaps:
        message = f"sentences of {LONG_ENOUGH} words or more: {', '.join(overlaps)}"
        effect = "memorised sentences count as correct there. Remove them from one of the two"
        yield DataWarning("splits that share sentences", f"{message}; {effect}")


def _small(sentences: int, configs: Sequence[Config]) -> Iterator[DataWarning]:
    """Warns of too few sentences or updates, for the run with the fewest updates in a pass over them."""
    size = max(cfg.probe.batch_size for cfg in configs)
    few = updates(sentences, size)
    if sentences < SMALL_SENTENCES or few < SMALL_UPDATES:
        smaller = f", a smaller batch (probe.batch_size={max(1, size // 4)})" if few < SMALL_UPDATES else ""
        yield DataWarning(
            "a small corpus",
            f"{pluralize(sentences, 'sentence')} to train on, {pluralize(few, 'update')} per pass: scores will vary "
            f"much with the seed. More seeds (probe -m seed=1,2,3,4,5 ...){smaller}",
        )


def _short(sentences: int, configs: Sequence[Config]) -> Iterator[DataWarning]:
    """Warns of too few epochs to converge, for the run that lacks the most updates."""
    schedules = [Schedule.of(cfg.probe, sentences) for cfg in configs if kind_of(cfg).reads_features]
    short = [one for one in schedules if one.max_epochs < one.shortest]
    if short:
        worst = max(short, key=lambda one: (one.shortest - one.max_epochs) * one.epoch_updates)
        enough = 2 * max(one.shortest for one in short)
        yield DataWarning(
            "too few epochs",
            f"probe.max_epochs={worst.max_epochs} gives {worst.max_epochs * worst.epoch_updates:,} updates, but a "
            f"training converges after {worst.shortest * worst.epoch_updates:,} at the earliest: rows would be "
            f"labelled not converged and not be ranked. To converge: probe.max_epochs={enough}",
        )
