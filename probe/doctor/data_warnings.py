"""Warns of a corpus that can be read but is probably not the intended one, and says what to type.

No warning stops a run: word indices or another layer of tags may be intended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from probe.config import Config
from probe.data.column_guesses import nearly_all_numbers, span_columns, table_of, wordlike_column
from probe.data.corpus import Corpus
from probe.system.format import escape_invisible

MOST = 20_000  # words of train that are checked
ONE_TAG = 0.98  # of all tags
UNIQUE = 0.1  # different tags per word; words and lemmas have more, tags have fewer
FEW_TAGS = 100  # distinct ones
LONG_ENOUGH = 5  # words; any two texts share shorter sentences
SHARED = 0.05  # of a split's sentences; train and dev of CoNLL-2003 share 2.7 %


def data_warnings(cfg: Config, corpus: Corpus) -> list[str]:
    """Returns the warnings for a corpus. Numbered words are the same in every sentence, so they get one warning."""
    table = table_of(corpus.splits["train"])[:MOST]
    return [*(list(_numbers(corpus, table)) or _shared(corpus)), *_tags(cfg, corpus, table)]


def _numbers(corpus: Corpus, table: list[list[str]]) -> Iterator[str]:
    train = corpus.splits["train"]
    if not nearly_all_numbers(words := list(islice(chain.from_iterable(train.words), MOST))):
        return
    if not train.word_a_line:
        remedy = "data.words_field=NAME"
    elif (best := wordlike_column(table)) is None:
        remedy = "data.word_column=N"
    else:
        remedy = f"data.word_column={best} ({_few(Counter(row[best] for row in table))})"
    yield f"nearly all words are numbers ({', '.join(words[:3])}); to read others: {remedy}"


def _tags(cfg: Config, corpus: Corpus, table: list[list[str]]) -> Iterator[str]:
    """Warns of tags that are nearly all the same or nearly all different. Names a column that looks more like tags."""
    tags = Counter(chain.from_iterable(corpus.splits["train"].tags))
    total = tags.total()
    if len(tags) < 2 or (max(tags.values()) < ONE_TAG * total and len(tags) < UNIQUE * max(total, FEW_TAGS)):
        return
    remedy = ""
    if table:
        width = min(map(len, table))
        chosen = {cfg.data.tag_column % width, cfg.data.word_column % width}
        columns = {at: Counter(row[at] for row in table) for at in range(width) if at not in chosen}
        like = span_columns(table) if "scheme" in corpus.about else sorted(columns, key=lambda at: -len(columns[at]))
        for at in like:
            if at in columns and 1 < len(columns[at]) <= FEW_TAGS and not nearly_all_numbers([*columns[at]]):
                remedy = f"; more like tags: data.tag_column={at} ({_few(columns[at])})"
                break
    yield f"train's {total:,} tags are {_few(tags)}{remedy}"


def _few(values: Counter[str]) -> str:
    shown = [f"{escape_invisible(value)} {count:,}" for value, count in values.most_common(4)]
    return f"{len(values)} different ones: {', '.join(shown)}"


def _shared(corpus: Corpus) -> Iterator[str]:
    """Warns of sentences that two splits share: memorised ones count as correct."""
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        known = {tuple(words) for words in corpus.splits[one].words}
        long = [words for words in corpus.splits[other].words if len(words) >= LONG_ENOUGH]
        both = sum(tuple(words) in known for words in long)
        if both and both >= SHARED * len(long):
            yield (
                f"{both:,} of {other}'s {len(long):,} sentences of {LONG_ENOUGH} words or more occur in {one}, where "
                "they can be memorised. Remove them from one of the two"
            )
