"""One JSON record a run: what was run, on what, with what, and what came out. Present means finished.

    records/<row>-seed<seed>-<key>.json         the record
    counts/<...>.json.xz                        counts for each sentence of dev and test: the scores, without the text
    predictions/<...>.dev.conll, .test.conll    word, gold tag, predicted tag

The record names the sha256 of the other files and is written last.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.tags import Tags
from probe.system.files import canonical, key_of, write_atomically

SCHEMA = 2
RECIPE = 1  # rises when the code that trains changes what comes out for the same settings
RECIPE_OF_SMALL = 2  # where one pass has fewer updates than schedule.FULL_UPDATES
# What a record must have to be read, and of which kind.
PARTS: dict[str, type] = {
    **dict.fromkeys(("identity", "config", "data", "encoder", "features", "layers", "scores", "sha256"), dict),
    **dict.fromkeys(("software", "hardware"), dict),
    "row": str,
    "curve": list,
    "best_epoch": int,
    "parameters": int,
}


@dataclass(frozen=True)
class RunIdentity:
    """What makes a run that run: content, never names or paths. Its hash is the run's key."""

    corpus: str  # fingerprint of words, tags and documents
    task: str  # how tags are read and scored
    features: str  # key of the feature store
    layers: dict[str, Any]  # indices and combine
    probe: dict[str, Any]
    seed: int
    recipe: int = RECIPE

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def key(self) -> str:
        return key_of(self.as_dict())


def record_path(results_dir: Path, row: str, identity: RunIdentity) -> Path:
    """Where a run's record is, whatever its row was called when it was made; where it will be if there is none."""
    folder = results_dir / "records"
    there = sorted(folder.glob(f"*-{identity.key[:10]}.json"))
    return there[0] if there else folder / f"{row}-seed{identity.seed}-{identity.key[:10]}.json"


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def counts_path(record: Path) -> Path:
    """Where the counts lie that belong to the record at this path."""
    return record.parent.parent / "counts" / f"{record.stem}.json.xz"


def predictions_path(record: Path, split: str) -> Path:
    """Where the predictions lie that belong to the record at this path."""
    return record.parent.parent / "predictions" / f"{record.stem}.{split}.conll"


def write_counts(record: Path, counts: dict[str, dict[str, list[int]]]) -> str:
    """Keeps counts by split and sentence (see `metrics.count`; `documents` where known); returns their sha256."""
    content = canonical(counts).encode()
    write_atomically(counts_path(record), lzma.compress(content))
    return hashlib.sha256(content).hexdigest()


def load_counts(record: Path) -> tuple[dict[str, dict[str, list[int]]], str]:
    """The counts that belong to the record at this path, and their sha256. Raises UserError."""
    path = counts_path(record)
    try:
        content = lzma.decompress(path.read_bytes())
        return json.loads(content), hashlib.sha256(content).hexdigest()
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def write_predictions(record: Path, split: str, words: Tags, gold: Tags, predicted: Tags) -> str:
    """Keeps predictions in CoNLL columns; returns their sha256.

    Columns are separated by a blank, or by a tab where a word itself holds white space or is empty.
    """
    blank = all(word and not any(c in word for c in " \t") for sentence in words for word in sentence)
    separator = " " if blank else "\t"
    blocks = (
        "".join(f"{separator.join(line)}\n" for line in zip(*sentence, strict=True))
        for sentence in zip(words, gold, predicted, strict=True)
    )
    content = "\n".join(blocks).encode("utf-8", "surrogatepass")
    write_atomically(predictions_path(record, split), content)
    return hashlib.sha256(content).hexdigest()


def read_predictions(path: Path) -> tuple[tuple[Tags, Tags], str]:
    """Gold and predicted tags that `write_predictions` kept, and the sha256 of the file."""
    content = path.read_bytes()
    gold: list[list[str]] = []
    predicted: list[list[str]] = []
    for block in content.decode("utf-8", "surrogatepass").rstrip("\n").split("\n\n"):
        columns = [line.rsplit("\t" if "\t" in line else " ", 2) for line in block.split("\n")]
        gold.append([line[-2] for line in columns])
        predicted.append([line[-1] for line in columns])
    return (gold, predicted), hashlib.sha256(content).hexdigest()


def load_record(path: Path) -> dict[str, Any]:
    """A record that holds together. Raises UserError naming the file and what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a record: {error}. Remove it and run again.") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise UserError(
            f"{path}: schema {found}, this version reads {SCHEMA}. An older record lacks what checks need. Move it "
            "away and run again."
        )
    if key_of(record.get("identity", {})) != record.get("key"):
        raise UserError(f"{path}: its key is not the hash of its identity; it was changed. Move it away and run again.")
    for part, kind in PARTS.items():
        if not isinstance(record.get(part), kind):
            raise UserError(f"{path}: it has no {part!r}. Move it away and run again.")
    return record


def load_records(results_dir: Path) -> dict[Path, dict[str, Any]]:
    """Every record once, however many files hold it, with its file."""
    loaded = {path: load_record(path) for path in sorted((results_dir / "records").glob("*.json"))}
    by_key = {record["key"]: path for path, record in loaded.items()}
    return {path: loaded[path] for path in by_key.values()}
