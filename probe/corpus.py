"""Words and tags, by sentence and document, from column files or the Hub. Inside, tags are always IOB2.

Readers are strict: what does not fit is refused with its file and line. Nothing is padded, guessed or dropped.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from probe import hub
from probe.config import DataConfig, UserError

SPLITS = ("train", "dev", "test")
HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
BUNDLED = "bundled"  # data.path of the corpus inside the package
DOCUMENT_MARKER = "-DOCSTART-"  # a boundary between documents, never a word
TAG = re.compile(r"O|[BI]-\S+")


@dataclass
class Split:
    """One split: sentence i has words[i] and tags[i], and begins at line lines[i] of `origin`."""

    words: list[list[str]]
    tags: list[list[str]]
    documents: list[int] | None  # the document of each sentence, rising; None where the source knows none
    lines: list[int]
    origin: str

    @property
    def num_words(self) -> int:
        return sum(map(len, self.words))

    def place(self, position: int) -> str:
        """Where the split's word number `position` (from 0) stands, for messages."""
        for line, words in zip(self.lines, self.words, strict=True):
            if position < len(words):
                text = words[position]
                shown = text if len(text) <= 30 else text[:27] + "..."
                return f"{self.origin}:{line}, word {position + 1} of the sentence ({shown!r})"
            position -= len(words)
        raise IndexError(f"{self.origin} has {self.num_words} words")


@dataclass
class Corpus:
    name: str
    splits: dict[str, Split]

    def fingerprint(self) -> str:
        """sha256 of all words, tags and document bounds, whatever file or hub they came from."""
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in ([name, split.documents], *zip(split.words, split.tags, strict=True))
        )

    def text_fingerprint(self, with_documents: bool) -> str:
        """sha256 of what an encoder sees: the words by sentence, and the document bounds if it sees those."""
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in ([name, split.documents if with_documents else None], *split.words)
        )

    def counts(self) -> dict[str, dict[str, int | None]]:
        """Documents, sentences, words and spans of each split."""
        return {
            name: {
                "documents": len(set(split.documents)) if split.documents is not None else None,
                "sentences": len(split.words),
                "words": split.num_words,
                "spans": sum(tag.startswith("B-") for tags in split.tags for tag in tags),
            }
            for name, split in self.splits.items()
        }


def hash_rows(rows: Iterable[object]) -> str:
    """sha256 over rows of plain values, each as one JSON line, so that no two texts run together alike."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def load_corpus(cfg: DataConfig) -> Corpus:
    """Reads all three splits. Raises UserError for what is missing or malformed."""
    if cfg.path is not None:
        folder = Path(__file__).parent / "demo" if cfg.path == BUNDLED else Path(cfg.path).expanduser()
        if not folder.is_dir():
            raise UserError(
                f"data.path={cfg.path}: there is no such folder. It should hold {cfg.train}, {cfg.dev} and {cfg.test}."
            )
        splits = {name: read_columns(folder / getattr(cfg, name), f"data.{name}") for name in SPLITS}
    elif cfg.hub is not None:
        splits = read_hub(cfg.hub, cfg.revision)
    else:
        raise UserError("data.path and data.hub are both empty: name a folder of column files or a Hub data set.")
    for name, split in splits.items():
        if not any(tag != "O" for tags in split.tags for tag in tags):
            raise UserError(f"{split.origin}: no entity in the {name} split ({split.num_words} words, all tagged O).")
    return Corpus(cfg.name or Path(cfg.path or str(cfg.hub)).resolve().name, splits)


def read_columns(file: Path, setting: str) -> Split:
    """A CoNLL column file: a word a line, first column the word, last the tag, an empty line between sentences."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file} does not exist. Another file name: {setting}=NAME.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None

    split = Split(words=[], tags=[], documents=[], lines=[], origin=str(file))
    document, marked, num_columns, separator = 0, False, 0, r"[ \t]+"
    words: list[str] = []
    tags: list[str] = []

    def end_sentence() -> None:
        nonlocal words, tags
        if words:
            split.words.append(words)
            split.tags.append(to_iob2(tags))
            assert split.documents is not None
            split.documents.append(document)
            words, tags = [], []

    for number, text_line in enumerate(text.split("\n"), start=1):
        text_line = text_line.removesuffix("\r")
        if not num_columns and "\t" in text_line:
            separator = "\t"  # then a blank is part of a word
        columns = re.split(separator, text_line if separator == "\t" else text_line.strip(" \t"))
        if not text_line.strip(" \t"):
            end_sentence()
        elif columns[0] == DOCUMENT_MARKER:
            end_sentence()
            document, marked = document + 1, True
        else:
            if len(columns) < 2:
                raise UserError(f"{file}:{number}: one column ({text_line.strip()!r}); a word and its tag are needed.")
            if len(columns) != (num_columns := num_columns or len(columns)) or "\r" in text_line or not columns[0]:
                raise UserError(
                    f"{file}:{number}: {len(columns)} columns ({text_line.strip()!r}); the lines before have "
                    f"{num_columns}, and none is empty or holds a carriage return."
                )
            if not TAG.fullmatch(columns[-1]):
                raise UserError(f"{file}:{number}: tag {columns[-1]!r} is not O, B-TYPE or I-TYPE.")
            if not words:
                split.lines.append(number)
            words.append(sys.intern(columns[0]))
            tags.append(sys.intern(columns[-1]))
    end_sentence()
    if not split.words:
        raise UserError(f"{file} holds no sentence.")
    if not marked:
        split.documents = None
    return split


def read_hub(name: str, revision: str | None) -> dict[str, Split]:
    """A data set of the Hub with the columns `tokens` and `ner_tags`, label names from its own schema."""
    reachable = hub.go_offline_if_unreachable()
    import datasets

    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity_error()
    where = f"{name} on the Hub"
    try:
        loaded = datasets.load_dataset(name, revision=revision)
    except Exception as error:  # the library raises a dozen kinds
        if not reachable:
            raise UserError(
                f"The Hugging Face Hub is out of reach and {name} is not in its cache. Local files: data.path=DIR; "
                "the bundled corpus and encoder: data=demo encoder=minilm_l6."
            ) from None
        raise UserError(f"{where} cannot be loaded: {str(error).splitlines()[0]}") from None
    assert isinstance(loaded, datasets.DatasetDict)
    splits: dict[str, Split] = {}
    for ours, theirs in HUB_SPLITS.items():
        if theirs not in loaded:
            raise UserError(f"{where} has no split {theirs!r}, only {', '.join(map(str, loaded))}.")
        splits[ours] = split_from_rows(loaded[theirs], f"{where}, {theirs}")
    return splits


def split_from_rows(rows, origin: str) -> Split:
    """A `datasets.Dataset` with `tokens` and ClassLabel `ner_tags` as a Split; `lines` are row numbers from 1."""
    missing = {"tokens", "ner_tags"} - set(rows.column_names)
    if missing:
        raise UserError(f"{origin} has no column {', '.join(sorted(missing))}, only {', '.join(rows.column_names)}.")
    names = getattr(getattr(rows.features["ner_tags"], "feature", None), "names", None)
    if names is None:
        raise UserError(f"{origin}: its tags are bare values without names; which number means what is not known.")
    odd = next((name for name in names if not TAG.fullmatch(name)), None)
    if odd is not None:
        raise UserError(f"{origin}: label {odd!r} is not O, B-TYPE or I-TYPE.")
    split = Split(words=[], tags=[], documents=None, lines=[], origin=origin)
    for number, row in enumerate(rows, start=1):
        if len(row["tokens"]) != len(row["ner_tags"]):
            raise UserError(f"{origin}:{number}: {len(row['tokens'])} words but {len(row['ner_tags'])} tags.")
        unknown = next((tag for tag in row["ner_tags"] if not 0 <= tag < len(names)), None)
        if unknown is not None:
            raise UserError(f"{origin}:{number}: tag {unknown} has no name; there are 0 to {len(names) - 1}.")
        if not row["tokens"] or row["tokens"][0] == DOCUMENT_MARKER:
            continue
        split.words.append([sys.intern(word) for word in row["tokens"]])
        split.tags.append(to_iob2([names[tag] for tag in row["ner_tags"]]))
        split.lines.append(number)
    if not split.words:
        raise UserError(f"{origin} holds no sentence.")
    return split


def spans(tags: list[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, last word + 1) of each span, read as conlleval reads IOB1 and IOB2 alike."""
    start, kind = 0, ""
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, tag_kind = tag.partition("-")
        if kind and (prefix != "I" or tag_kind != kind):
            yield kind, start, position
            kind = ""
        if prefix != "O" and not kind:
            start, kind = position, tag_kind


def to_iob2(tags: list[str]) -> list[str]:
    """The same spans, each beginning with B-."""
    converted = ["O"] * len(tags)
    for kind, start, end in spans(tags):
        converted[start:end] = [sys.intern(f"B-{kind}")] + [sys.intern(f"I-{kind}")] * (end - start - 1)
    return converted
