"""Finds out how a corpus is to be read: for data=PATH, and for messages, which name only what was tried."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, pairwise, permutations
from operator import itemgetter
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError, preset_values
from probe.data.columns import cut_line
from probe.data.json_parquet import LOOKED_AT, json_rows, plain_rows, table_of_rows
from probe.data.layout import Layout
from probe.data.readers import READERS, is_saved, reader_of
from probe.data.split import BYTE_ORDER_MARK, Split, bare_tag, lines_of
from probe.data.tasks import TASKS
from probe.scoring.tags import ALMOST, BARE_PREFIX, PREFIXED

NUMBER = re.compile(r"\d+([-.]\d+)?")
NEARLY_ALL = 0.9
FEW_TAGS = 100  # distinct ones
TRIED_LINES = 10_000  # of each file
TAG = r"(?:O|[BIESLUM]-[^\s|]+)"
MOST_STATES, MOST_SETTINGS = 20, 5  # from which more is tried
COMMENT = re.compile(r"(#|%|;|//|<|\*\*|==|--|@@)(?=.*\w|\1)")  # how lines begin that are probably no words
# Those between documents: # newdoc id = 1, ### PMID:1, ###MEDLINE:1, <doc id="1">, # hipe2022:document_id = 1
BOUNDARY = re.compile(r"(?!</)[^\w\s]+ ?[^\n=]{0,20}?(doc|pmid|medline|article|abstract)\w*|###", re.I)
HEADER = re.compile(r"(?<![a-z])(tokens?|words?|forms?|text|sentences?|tags?|labels?|ner|pos)(?![a-z0-9])", re.I)
# The words for a split in names of files.
SPLIT_NAMES = {"train": "train(ing|set)?", "dev": "dev(el|set)?|val(id|idation)?|testa", "test": "test(b|ing|set)?"}
NO_TEXTS = (".safetensors", ".ids.txt", ".bak", ".orig", "~")  # endings of vectors beside the text, and of copies
Settings = dict[str, Any]
WORDS_AND_TAGS = "Write a list of words and a list with a tag per word"
# What no setting reads: how a line of it looks (behind a line with the file's name), what it is, and what to write.
FORMATS = {
    r"^T\d+\t\S+ \d+ \d+": "Those are annotations of brat. Name the folder with its .txt and .ann files.",
    r"^__label__\S": "Those are lines of fastText. Write label TAB text: sed -E 's/^__label__([^ ]+) +/\\1\\t/' FILE.",
    r"^\S+([|/])\S+(?: \S+\1\S+)*$": "Those are pairs of a word and its tag. Write one per line, with a tab between.",
    r"""(?:^|[\t,"] ?)\['[^']+'[], ]|"\[(?:""|\\")""": f"Its lists are texts. {WORDS_AND_TAGS} as JSON lines.",
    rf'"{TAG}(?: {TAG})+"': f"Its tags are one text. {WORDS_AND_TAGS}.",
}


@functools.cache  # for the many runs of a sweep
def corpus_at(path: str) -> tuple[str, Settings]:
    """Returns the preset and the settings of `data` that read a file, or a folder with a file per split.

    What they do not read is refused when it is read, with what to type. Raises UserError for several possible choices.
    """
    place = Path(path).expanduser()
    is_folder = place.is_dir() and not is_saved(place)
    folder = place if is_folder else place.parent
    choices = [files for files in files_of_splits(folder) if "train" in files]
    choices = [files for files in choices if len(files) == max(map(len, choices))]
    settings: Settings = {"path": path, "train": preset_values("data", "columns")["train"]}
    if not is_folder:
        if any(len(files) > 1 and place.name in files.values() for files in choices):
            raise UserError(f"data={path}: beside it lie files of other splits. Type data={folder}")
        settings = {"path": str(folder), "train": place.name}
        settings |= {"dev": None, "dev_fraction": 0.1, "test": None, "test_fraction": 0.1}
    elif len(choices) > 1:
        ways = ", or ".join(" ".join(f"data.{name}={file}" for name, file in files.items()) for files in choices)
        raise UserError(f"data={path}: which files? Type data=columns data.path={path} {ways}")
    elif choices:
        settings |= {name: choices[0]["train"].replace("train", name) for name in SPLIT_NAMES} | choices[0]
    train = folder / settings["train"]
    if is_csv := train.name.endswith((".csv", ".csv.gz")):
        settings["separator"] = "comma"
    return ("sentences" if _has_texts(train, is_csv) else "columns"), settings


def _has_texts(file: Path, is_csv: bool) -> bool:
    """Returns whether the first row has a text and one label, by the names of data=sentences or by the blanks in it."""
    text, label = (preset_values("data", "sentences")[name] for name in ("words_field", "tags_field"))
    row: dict[str, Any] = {}
    with contextlib.suppress(UserError, OSError, ValueError, StopIteration):  # said when it is read
        if reader_of(file) is READERS["json"]:
            _, row = next(json_rows(lines_of(file), str(file)))
        elif reader_of(file) is READERS["parquet"]:
            row = next(plain_rows(table_of_rows(file)))
        else:
            cells = cut_line(next(lines_of(file)).rstrip("\r"), "comma" if is_csv else "tab")
            may_be_texts = cells if is_csv else cells[1:]
            if len(cells) == 2 and any(" " in cell.strip() for cell in may_be_texts):
                return True
            row = dict.fromkeys(cells, "")
    return text in row and label in row and not isinstance(row[label], list | dict)


def settings_that_read(cfg: DataConfig, error: UserError, read: Callable[[DataConfig, int | None], Any]) -> str:
    """Returns the fewest settings, as they are typed, with which a corpus can be read that could not be; "" for none.

    read: reads it, given the settings and how many lines of each file (None: all); raises UserError.
    """
    states: list[tuple[Settings, str]] = [({}, str(error))]
    known: set[tuple[str, str | None]] = {(str(error), None)}
    for changes, message in states:  # which grows
        for more in _candidates(replace(cfg, **changes), message):
            tried = changes | more
            changed = replace(cfg, **tried)
            try:
                read(changed, TRIED_LINES)
                train = read(changed, None).splits["train"]
            except UserError as other:
                state = (str(other), tried.get("separator"))
                if state not in known and len(states) < MOST_STATES and len(tried) < MOST_SETTINGS:
                    known.add(state)
                    states.append((tried, str(other)))
                continue
            comments = Layout.of(changed).comments if "comment" in tried else ()
            loses_documents = any(COMMENT.match(f"{comment} x") for comment in comments) and train.documents is None
            start = "If its tags are not spans" if tried.get("task") == "tags" else "This reads it"
            settings = " ".join(f"data.{name}={as_typed(value)}" for name, value in tried.items())
            return f"{start}: {settings}{' (without documents)' if loses_documents else ''}"
    return ""


def named_format(cfg: DataConfig, error: UserError) -> str:
    """Returns what a file is that no setting reads, and what to write instead; "" if that is not known."""
    file = _files(cfg, str(error))[0]
    try:
        start = "\n".join(_lines(file)[:LOOKED_AT])
    except UserError:  # it is no text
        start = ""
    return next((what for sign, what in FORMATS.items() if re.search(sign, f"{file.name}\n{start}", re.M)), "")


def _files(cfg: DataConfig, message: str) -> list[Path]:
    """Returns the files of the splits: first the one that the message is about, or that of train."""
    files = [Path(str(cfg.path), name).expanduser() for name in (cfg.train, cfg.dev, cfg.test) if name is not None]
    return sorted(files, key=lambda file: not message.startswith(str(file)))


def as_typed(value: object) -> str:
    """Quotes a setting's value for Hydra and the shell where that is needed."""
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./:@%+-]+", value)
    return str(value) if is_plain else shlex.quote(json.dumps(value, ensure_ascii=False))


def _candidates(cfg: DataConfig, message: str) -> Iterator[Settings]:
    """Yields settings that may read a corpus that was refused with this message."""
    folder, files = Path(str(cfg.path)).expanduser(), _files(cfg, message)
    if not (folder / cfg.train).exists():
        yield from (files for files in files_of_splits(folder) if len(files) == len(SPLIT_NAMES))
    file, reader = files[0], reader_of(files[0])
    if cfg.task != "spans" and reader not in (READERS["columns"], READERS["conllu"]):
        yield {"task": "spans"}
    try:
        if reader is READERS["json"]:
            yield from _of_fields(cfg, [row for _, row in islice(json_rows(lines_of(file), str(file)), TRIED_LINES)])
        elif reader is READERS["parquet"]:
            yield from _of_fields(cfg, list(islice(plain_rows(table_of_rows(file)), LOOKED_AT)))
        elif not TASKS[cfg.task].is_per_word:
            yield {"separator": "comma"}
            cells, *others = {tuple(_cells(_lines(of_split)[0], cfg.separator)) for of_split in files}
            for label, text in permutations([] if others else cells, 2):
                yield {"tags_field": label, "words_field": text}
        else:
            lines = _lines(file)
            yield from _of_columns(cfg, lines, is_conllu=reader is READERS["conllu"])
            if reader is READERS["columns"]:
                place = re.match(r".+?:(\d+)\b", message)
                refused = next(islice(lines_of(file), int(place[1]) - 1, None), "") if place else ""
                yield from _of_lines(cfg, lines, refused, [next(iter(_lines(of_split)), "") for of_split in files])
    except (UserError, ValueError, IndexError, RecursionError):  # of a file that cannot be read at all
        return


def files_of_splits(folder: Path) -> list[dict[str, str]]:
    """Returns each choice of a file per split, by words in their names and by endings.

    If several files fit a split, the one whose name is the bare word is taken, such as train.txt. A split with no file,
    or with several and none of that name, is left out.
    """
    names, choices = sorted(file.name for file in folder.glob("*")), list[dict[str, str]]()
    names = [name for name in names if not name.endswith(NO_TEXTS)]
    for ending in ("", *(Path(name).suffix for name in names)):
        same = [name for name in names if name.endswith(ending)]
        files = dict[str, str]()
        for split, word in SPLIT_NAMES.items():
            fitting = [name for name in same if re.search(rf"(?<![a-z])({word})(?![a-z])", name, re.IGNORECASE)]
            exact = [name for name in fitting if re.fullmatch(word, name.partition(".")[0], re.IGNORECASE)]
            if len(chosen := exact or fitting) == 1:
                files[split] = chosen[0]
        choices += [files] if files not in choices else []
    return choices


def _lines(file: Path) -> list[str]:
    """Returns the first lines that are not empty."""
    lines = (line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK) for line in islice(lines_of(file), TRIED_LINES))
    return [line for line in lines if line.strip(" \t,")]


def _of_fields(cfg: DataConfig, rows: list[dict[str, Any]]) -> Iterator[Settings]:
    """Yields the pairs of fields that may be words and tags, or a text and its label."""
    names = [name for name in dict.fromkeys(chain.from_iterable(rows)) if name.isprintable()]
    values = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    lists = {name: cells for name, cells in values.items() if cells and all(isinstance(cell, list) for cell in cells)}
    kinds = {name: {*map(type, chain(*cells) if name in lists else cells)} for name, cells in values.items()}
    for words, tags in permutations(lists, 2):
        is_tag_a_word = kinds[tags] <= {str, int} and [*map(len, lists[words])] == [*map(len, lists[tags])]
        if kinds[words] == {str} and (is_tag_a_word or kinds[tags] == {list}):
            yield {"words_field": words, "tags_field": tags}
    if lists and cfg.task == "spans":
        yield {"task": "tags"}
    blanks = {name: [text.count(" ") for text in cells] for name, cells in values.items() if kinds[name] == {str}}
    texts = sorted(blanks, key=lambda name: -sum(blanks[name]))
    of_spans = [name for name in lists if kinds[name] <= {list, dict}]
    if of_spans and texts and cfg.task == "spans":
        yield from [{"words_field": texts[0]}, *({"tags_field": name} for name in of_spans)]
    if lists or not texts or (len(texts) > 1 and sum(blanks[texts[1]]) > 2 * len(rows)):  # two texts have no one label
        return
    for label in names:
        if label != texts[0] and kinds[label] in ({str}, {int}) and blanks.get(label) != blanks[texts[0]]:
            yield {"task": "sentence", "words_field": texts[0], "tags_field": label}


def _of_lines(cfg: DataConfig, lines: list[str], refused: str, heads: list[str]) -> Iterator[Settings]:
    """Yields how lines begin that are no words, and separators. refused: a line. heads: the first line of each file."""
    comments = list(Layout.of(cfg).comments)
    first = next((line for line in lines if not line.startswith(tuple(comments))), "")
    for line in filter(COMMENT.match, dict.fromkeys([refused, first, lines[0]])):
        starts = line.split("\t")[0].split(" ")
        boundaries = (BOUNDARY.match(other) for other in lines if other.startswith(starts[0]))
        boundary = next(filter(None, boundaries), None) if cfg.document_marker == Layout.document_marker else None
        marker = {"document_marker": boundary[0]} if boundary else {}
        yield from [marker] if marker else []
        for prefix in (" ".join(starts[:number]) for number in range(1, min(len(starts), 3) + 1)):
            for comment in dict.fromkeys([(*comments, prefix), (prefix,)]):
                yield {"comment": comment[0] if len(comment) == 1 else list(comment)} | marker
    yield from ({"separator": name} for name in ("tab", "whitespace", "space", "comma") if name != cfg.separator)
    cells = _cells(first, cfg.separator)
    has_tags = any(cell == "O" or ALMOST.fullmatch(cell) or BARE_PREFIX.fullmatch(cell) for cell in cells)
    names_columns = not has_tags and (len(heads) > len(set(heads)) or any(map(HEADER.search, cells)))
    name = next(filter(None, cells), "")
    start = first.partition(name)[0] + name  # in CSV, a quote may stand before it, or the empty name of a row's number
    is_once = start.isprintable() and sum(line.startswith(start) for line in lines) == 1
    if names_columns and len(cells) > 1 and name and is_once:
        yield {"comment": [*comments, start] if comments else start}
    yield from [{"comment": None}] if comments else []


def _cells(line: str, separator: str) -> list[str]:
    of_line = "tab" if "\t" in line.strip(" \t") else "whitespace"
    return cut_line(line, of_line if separator == "auto" else separator)


def _of_columns(cfg: DataConfig, lines: list[str], is_conllu: bool) -> Iterator[Settings]:
    """Yields columns that hold tags or words, if those that were chosen do not, and other readings of the tags."""
    prefixes = ("#",) if is_conllu else Layout.of(cfg).comments
    rows = [_cells(line, cfg.separator) for line in lines if not line.startswith(prefixes)][1:]  # behind a header
    width = max(Counter(map(len, rows)).items(), key=itemgetter(1), default=(0, 0))[0]
    columns = list(zip(*(row for row in rows if len(row) == width), strict=True))
    tags, words = (columns[at] if -width <= at < width else () for at in (cfg.tag_column, cfg.word_column))
    of_spans = sum(tag == "O" or PREFIXED.fullmatch(tag) is not None for tag in tags)
    names = sentence_column(columns)
    whole = [at for at, column in enumerate(columns) if all(column) and column is not tags and at != names]
    best = wordlike_column([columns[at] for at in whole])
    # Words have more distinct values than most columns have.
    more_distinct = best is not None and 2 * len({*words}) < len({*columns[whole[best]]})
    is_other = words is tags or (names is not None and words is columns[names]) or nearly_all_numbers(words)
    no_words = more_distinct or is_other or words.count("") > (1 - NEARLY_ALL) * len(words)
    better: Settings = {"word_column": whole[best]} if no_words and best is not None and not is_conllu else {}
    if cfg.task == "spans" and (of_spans < NEARLY_ALL * len(tags) or {*tags} <= {"O"}):
        yield from ({"tag_column": at} | better for at in span_columns(columns))
    yield from [better] if better else []
    yield from [{"sentence_column": names}] if names is not None and not is_conllu else []
    features = re.findall(rf"(?:^|\|)(\w+)=(?={TAG}(?:\||$))", "|".join(tags[:FEW_TAGS]))
    yield from ({"tag_feature": feature} for feature, _ in Counter(features).most_common() if not cfg.tag_feature)
    kinds = set(map(bare_tag, tags)) - {"O"}
    no_spans = kinds and not any(PREFIXED.fullmatch(kind) or ALMOST.fullmatch(kind) or "*" in kind for kind in kinds)
    if cfg.task == "spans" and no_spans and len(kinds) <= FEW_TAGS and not any("=" in kind[1:] for kind in kinds):
        yield {"task": "tags"}
    yield from [{"scheme": "auto"}] if cfg.scheme != "auto" else []


def columns_of(split: Split, most: int | None = None) -> list[tuple[str, ...]]:
    """Reads the columns of the split's first lines with words from its file. Returns none for other formats."""
    numbers = {*islice(chain.from_iterable(split.word_lines), most)}
    lines = islice(enumerate(lines_of(Path(split.origin)), 1), max(numbers, default=0))
    words = (line.removesuffix("\r").removeprefix(BYTE_ORDER_MARK) for number, line in lines if number in numbers)
    return list(zip(*(cut_line(line, split.separator)[: split.num_columns] for line in words), strict=True))


def span_columns(columns: Sequence[Sequence[str]]) -> list[int]:
    """Returns the columns that hold only O and tags with a scheme's prefix; the column with most spans comes first."""
    by_spans = []
    for at, column in enumerate(columns):
        counts = Counter(map(bare_tag, column))
        outside = counts.pop("O", 0)
        if outside and counts and (all(map(PREFIXED.fullmatch, counts)) or all(map(BARE_PREFIX.fullmatch, counts))):
            by_spans.append((-counts.total(), at))
    return [at for _, at in sorted(by_spans)]


def sentence_column(columns: Sequence[Sequence[str]]) -> int | None:
    """Returns the column that numbers or names the sentence of each row, or of its first one; None if there is none.

    No name returns later, and sentences have two words or more on average. If only first rows have one, they count up.
    """
    num_names = dict[int, int]()
    for at, column in enumerate(columns):
        names = [name for name, _ in groupby(filter(None, column))]
        numbers = [int(number[0]) for number in map(re.compile(r"\d+").search, names) if number]
        counts_up = all(first < second for first, second in pairwise(numbers))
        is_name = 1 < len(numbers) == len(names) == len({*names}) and ("" not in column or counts_up)
        if is_name and 3 * len(names) <= 2 * len(column):
            num_names[at] = len(names)
    return max(num_names, key=lambda at: num_names[at], default=None)


def nearly_all_numbers(values: Sequence[str]) -> bool:
    return sum(NUMBER.fullmatch(value) is not None for value in values) >= NEARLY_ALL * len(values)


def wordlike_column(columns: Sequence[Sequence[str]]) -> int | None:
    """Returns the column with most distinct values among those that do not hold numbers; None if all hold numbers."""
    others = [at for at, column in enumerate(columns) if not nearly_all_numbers(column)]
    return max(others, key=lambda at: len(set(columns[at])), default=None)
