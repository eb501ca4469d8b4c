"""Words and tags as a source has them: column files, JSON lines, Parquet, data sets of the Hub.

Readers are strict: what does not fit is refused with its file and line. Nothing is padded, guessed or dropped; what is
skipped by rule (comments, rows without words) is counted.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe import hub
from probe.config import UserError

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
MAX_SENTENCE = 10_000  # words; more, and the empty lines between sentences are missing
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
BLANKS = re.compile(r"[ \t]+")  # other white space, a no-break space say, can stand inside a word


@dataclass
class Split:
    """One split: sentence i has words[i] and tags[i], and begins at line lines[i] of `origin`."""

    words: list[list[str]]
    tags: list[list[str]]
    documents: list[int] | None  # the document of each sentence, rising; None where the source knows none
    lines: list[int]
    origin: str
    word_a_line: bool = False  # column files; elsewhere a line is a sentence
    comments: list[int] = field(default_factory=list)  # lines that were skipped because they are comments
    empty: int = 0  # rows that were skipped because they hold no word

    @property
    def num_words(self) -> int:
        return sum(map(len, self.words))

    def place(self, position: int) -> str:
        """Where the split's word number `position` (from 0) stands, for messages."""
        for sentence, words in enumerate(self.words):
            if position < len(words):
                return self.place_in(sentence, position)
            position -= len(words)
        raise IndexError(f"{self.origin} has {self.num_words} words")

    def place_in(self, sentence: int, position: int) -> str:
        """Where word number `position` (from 0) of a sentence stands, for messages."""
        text, line = self.words[sentence][position], self.lines[sentence]
        shown = repr(text if len(text) <= 30 else text[:27] + "...")
        if not self.word_a_line:
            return f"{self.origin}:{line}, word {position + 1} of the sentence ({shown})"
        first, line = bisect(self.comments, line), line + position
        while first < len(self.comments) and self.comments[first] <= line:  # comments inside the sentence
            first, line = first + 1, line + 1
        return f"{self.origin}:{line} ({shown})"


@dataclass(frozen=True)
class Layout:
    """How a column file is laid out. Columns by number from 0; negative ones count from the end."""

    word_column: int
    tag_column: int
    separator: str  # auto, whitespace, tab or space
    comment: str | None  # what lines begin with that are no words
    document_marker: str | None  # what stands first, or as the word, in a line between documents
    word_prefix: str | None  # what every word begins with and is taken off


@dataclass(frozen=True)
class Fields:
    """Where rows of JSON lines, Parquet and the Hub hold what, and what their numbers mean."""

    words: str
    tags: str
    document: str | None
    labels: list[str] | None
    document_marker: str | None


def read_file(file: Path, layout: Layout, fields: Fields, remedy: str) -> Split:
    """One file, by what its name ends in. `remedy` is what to type if it is not there."""
    ending = Path(file.name.removesuffix(".gz")).suffix
    if ending == ".parquet":
        return read_parquet(file, fields, remedy)
    if ending in JSON_ENDINGS:
        return read_rows(json_rows(file, remedy), None, fields, str(file))
    return read_columns(file, layout, remedy)


def read_text(file: Path, remedy: str) -> str:
    """The text of a UTF-8 file, gzipped if its name ends in .gz, without a byte order mark."""
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist. {remedy}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file} is not a whole gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None


def read_columns(file: Path, layout: Layout, remedy: str = "") -> Split:
    """A CoNLL column file: a word a line, an empty line between sentences. Tags are left as they are.

    Every line has as many columns as the first; those that are not asked for are ignored.
    """
    split = Split([], [], [], [], str(file), word_a_line=True)
    documents, document, marked = split.documents, 0, False
    assert documents is not None
    at_word, at_tag, separator, num_columns = layout.word_column, layout.tag_column, layout.separator, 0
    comment, marker, prefix = layout.comment, layout.document_marker, layout.word_prefix
    words: list[str] = []
    tags: list[str] = []
    known_tags: set[str] = set()
    comments: list[tuple[int, str]] = []

    for number, line in enumerate(read_text(file, remedy).split("\n"), start=1):
        line = line.removesuffix("\r")
        bare = line.strip(" \t")
        if not bare:
            words = tags = []
            continue
        if marker and bare.startswith(marker) and bare[len(marker) : len(marker) + 1] in ("", " ", "\t"):
            words = tags = []
            document, marked = document + 1, True
            continue
        if comment and line.startswith(comment):
            comments.append((number, line))
            continue
        if separator == "auto":
            separator = "tab" if "\t" in line else "whitespace"  # with tabs, a blank is part of a word
        columns = _cut(line, bare, separator)
        if marker and marker in columns:
            words = tags = []
            document, marked = document + 1, True
            continue
        if len(columns) != num_columns:
            if num_columns:
                raise UserError(f"{file}:{number}: {_shown(columns)}; the lines before have {num_columns}.")
            num_columns = len(columns)
            at_word, at_tag = _settle(layout, columns, f"{file}:{number}")
        word, tag = columns[at_word], columns[at_tag]
        if tag not in known_tags:
            _check_tag(tag, f"{file}:{number}")
            known_tags.add(tag)
        if prefix:
            if not word.startswith(prefix):
                raise UserError(f"{file}:{number}: word {word!r} does not begin with data.word_prefix={prefix}.")
            word = word.removeprefix(prefix)
        if not word or "\r" in line:
            what = "a carriage return stands inside the line" if word else "the word is empty"
            raise UserError(f"{file}:{number}: {what} ({_shown(columns)}).")
        if not words:
            words, tags = [], []
            split.words.append(words)
            split.tags.append(tags)
            split.lines.append(number)
            documents.append(document)
        words.append(sys.intern(word))
        tags.append(sys.intern(tag))
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{file}:{split.lines[-1]}: {_too_long(len(words))}")
    for number, line in comments:
        columns = _cut(line, line.strip(" \t"), separator)
        if len(columns) == num_columns and columns[at_tag] in known_tags:
            raise UserError(
                f"{file}:{number}: {line.strip()!r} begins like a comment (data.comment={comment}) but has a word's "
                "columns and a tag. If it is a word: data.comment=null, or what only comments begin with."
            )
    split.comments = [number for number, _ in comments]
    if not split.words:
        raise UserError(f"{file} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def _cut(line: str, bare: str, separator: str) -> list[str]:
    if separator == "tab":
        return line.split("\t")
    if separator == "space":
        return line.split(" ")
    return BLANKS.split(bare) if "\t" in bare or "  " in bare else bare.split(" ")


def _settle(layout: Layout, columns: list[str], place: str) -> tuple[int, int]:
    """The word's and the tag's column from the front, known from the first line."""
    found = []
    for name, asked in (("word", layout.word_column), ("tag", layout.tag_column)):
        if not -len(columns) <= asked < len(columns):
            raise UserError(f"{place}: {_shown(columns)}; there is no data.{name}_column={asked}.")
        found.append(asked % len(columns))
    if found[0] == found[1]:
        raise UserError(f"{place}: {_shown(columns)}; a word and its tag are needed, in two columns.")
    return found[0], found[1]


def _shown(columns: Sequence[str]) -> str:
    text = " ".join(columns)
    count = "one column" if len(columns) == 1 else f"{len(columns)} columns"
    return f"{count} ({text if len(text) <= 60 else text[:57] + '...'!r})"


def _too_long(num_words: int) -> str:
    return (
        f"a sentence of {num_words} words or more; {MAX_SENTENCE} is the most that can be handled. "
        "Are the empty lines between sentences missing?"
    )


def _check_tag(tag: str, place: str) -> None:
    if not tag or any(character.isspace() for character in tag):
        raise UserError(f"{place}: tag {tag!r} is empty or holds white space.")
    if tag == "_":
        raise UserError(
            f"{place}: tag '_' stands for no tag (a line for several words, in CoNLL-U?). Remove such lines."
        )


def json_rows(file: Path, remedy: str) -> Iterator[tuple[int, Any]]:
    """(line number, row) of a file of JSON lines; empty lines are none."""
    for number, line in enumerate(read_text(file, remedy).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}:{number}: not a line of JSON ({str(error).splitlines()[0]}).") from None
        if not isinstance(row, dict):
            raise UserError(
                f"{file}:{number}: a {type(row).__name__}; each line must be one {{...}} with its sentence."
            )
        yield number, row


def read_parquet(file: Path, fields: Fields, remedy: str) -> Split:
    """A Parquet file; label names come from its schema, as `datasets` writes it."""
    if not file.is_file():  # asked here, since the libraries answer with something else
        raise UserError(f"{file} does not exist. {remedy}")
    import datasets
    import pyarrow.parquet

    try:
        rows = datasets.Dataset(pyarrow.parquet.read_table(file))
    except Exception as error:  # the libraries raise a dozen kinds
        raise UserError(f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}") from None
    return read_dataset(rows, fields, str(file))


def read_hub(name: str, subset: str | None, revision: str | None, wanted: Sequence[str], fields: Fields) -> dict:
    """The wanted splits of a data set on the Hub, those that it has."""
    reachable = hub.go_offline_if_unreachable()
    import datasets

    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity_error()
    where = f"{name} on the Hub"
    try:
        loaded = datasets.load_dataset(name, subset, revision=revision)
    except Exception as error:  # the library raises a dozen kinds
        if not reachable:
            raise UserError(
                f"The Hugging Face Hub is out of reach and {name} is not in its cache. Local files: data.path=DIR; "
                "the bundled corpus and encoder: data=demo encoder=minilm_l6."
            ) from None
        hint = " Its converted branch has none: data.revision=refs/convert/parquet." if "script" in str(error) else ""
        raise UserError(f"{where} cannot be loaded: {str(error).splitlines()[0]}{hint}") from None
    assert isinstance(loaded, datasets.DatasetDict)
    there = {ours: HUB_SPLITS[ours] for ours in wanted if HUB_SPLITS[ours] in loaded}
    if "train" not in there:
        raise UserError(f"{where} has no split {HUB_SPLITS['train']!r}, only {', '.join(map(str, loaded))}.")
    return {ours: read_dataset(loaded[theirs], fields, f"{where}, {theirs}") for ours, theirs in there.items()}


def read_dataset(rows: Any, fields: Fields, origin: str) -> Split:
    """A `datasets.Dataset`; lines are row numbers from 1."""
    for wanted in (fields.words, fields.tags, fields.document):
        if wanted is not None and wanted not in rows.column_names:
            raise UserError(_no_field(origin, wanted, fields, rows.column_names))
    names = getattr(getattr(rows.features[fields.tags], "feature", None), "names", None)
    if names is not None and fields.labels not in (None, names):
        raise UserError(
            f"{origin}: its labels are [{','.join(names)}], not data.labels=[{','.join(fields.labels or [])}]."
        )
    return read_rows(enumerate(rows, start=1), names, fields, origin)


def _no_field(origin: str, wanted: str, fields: Fields, there: Iterable[str]) -> str:
    setting = {fields.words: "words_field", fields.tags: "tags_field"}.get(wanted, "document_field")
    none = " or null" if setting == "document_field" else ""
    return f"{origin} has no {wanted!r}, only {', '.join(there)}. Another: data.{setting}=NAME{none}."


def read_rows(rows: Iterable[tuple[int, Mapping]], names: list[str] | None, fields: Fields, origin: str) -> Split:
    """Rows with a list of words and a list of tags each. names: of tags that are numbers, from the source's schema."""
    names = names or fields.labels
    split = Split([], [], [], [], origin)
    documents, document = split.documents, 0
    last_id: object = split  # no row's
    assert documents is not None
    seen_ids: set[str | int] = set()
    marked = fields.document is not None
    for number, row in rows:
        place = f"{origin}:{number}"
        for wanted in (fields.words, fields.tags, fields.document):
            if wanted is not None and wanted not in row:
                raise UserError(_no_field(place, wanted, fields, row))
        words, tags = row[fields.words], row[fields.tags]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"{place}: {fields.words!r} is not a list of words.")
        if not isinstance(tags, list) or len(words) != len(tags):
            found = f"{len(tags)} tags" if isinstance(tags, list) else f"no list of tags in {fields.tags!r}"
            raise UserError(f"{place}: {len(words)} words but {found}.")
        if fields.document is not None and row[fields.document] != last_id:
            last_id, document = row[fields.document], document + 1
            if not isinstance(last_id, str | int):
                raise UserError(f"{place}: {last_id!r} in {fields.document!r} is no document's name or number.")
            if last_id in seen_ids:
                raise UserError(
                    f"{place}: document {last_id!r} goes on after another; its sentences must stand together."
                )
            seen_ids.add(last_id)
        if not words:
            split.empty += 1
            continue
        if words[0] == fields.document_marker:
            if len(words) > 1:
                raise UserError(f"{place}: {words[0]} begins a row of {len(words)} words; it must stand alone.")
            document, marked = document + 1, True
            continue
        if len(words) > MAX_SENTENCE:
            raise UserError(f"{place}: {_too_long(len(words))}")
        text = "".join(words)
        if any(character in text for character in "\t\n\r"):
            raise UserError(f"{place}: a word holds a tab or a line end, so predictions for it could not be written.")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"{place}: a word holds half a character (a lone surrogate).") from None
        split.words.append([sys.intern(word) for word in words])
        split.tags.append([_tag_of(tag, names, place) for tag in tags])
        split.lines.append(number)
        documents.append(document)
    if not split.words:
        raise UserError(f"{origin} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def _tag_of(tag: object, names: list[str] | None, place: str) -> str:
    if isinstance(tag, str):
        _check_tag(tag, place)
        return sys.intern(tag)
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise UserError(f"{place}: tag {tag!r} is neither a string nor a number.")
    if names is None:
        raise UserError(
            f"{place}: its tags are bare numbers, and which means what is not known. "
            "Name them in order: 'data.labels=[O,B-PER,...]'."
        )
    if not 0 <= tag < len(names):
        raise UserError(f"{place}: tag {tag} has no name; there are 0 to {len(names) - 1}.")
    return _tag_of(names[tag], None, place)
