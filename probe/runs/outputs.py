"""Reads and writes the files that belong to a record, whose path determines theirs: counts and predictions."""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec

from probe.config import UserError
from probe.runs.records import read_records
from probe.scoring.metrics import Count, Counts, problem_of
from probe.scoring.tags import Tags
from probe.system.files import canonical, half_written, read_regular, remove_left, sha256_of, write_atomically

MOST_BYTES = 2**29  # of a run's counts, unpacked: those of 10,000 labels on 10,000 sentences


def counts_path(record: Path) -> Path:
    return record.parent.parent / "counts" / f"{record.stem}.json.xz"


def predictions_path(record: Path, split: str) -> Path:
    return record.parent.parent / "predictions" / f"{record.stem}.{split}.conll"


def weights_path(record: Path) -> Path:
    return record.parent.parent / "weights" / f"{record.stem}.safetensors"


def unfinished_path(record: Path) -> Path:
    """Returns the path of a long training's checkpoint, which exists until the record at this path is written."""
    return record.parent.parent / "logs" / f"{record.stem}.unfinished.pt"


def remove_half_written(record: Path) -> None:
    """Removes a killed process's half-written files of this record. Must be called with the run's lock held."""
    splits = [predictions_path(record, name) for name in ("dev", "test")]
    for path in (record, counts_path(record), weights_path(record), unfinished_path(record), *splits):
        for temporary in half_written(path):
            temporary.unlink(missing_ok=True)


def remove_leftovers(results_dir: Path) -> None:
    """Removes what killed processes left: checkpoints of finished runs, and empty logs."""
    for checkpoint in (results_dir / "logs").glob("*.unfinished.pt"):
        if (results_dir / "records" / f"{checkpoint.name.removesuffix('.unfinished.pt')}.json").exists():
            checkpoint.unlink(missing_ok=True)
    for log in (results_dir / "logs").glob("*-*.log"):
        host, _, process = log.stem.rpartition("-")
        if process.isdigit() and not log.stat().st_size:
            remove_left(log, host, process)


def write_counts(record: Path, counts: dict[str, Counts]) -> str:
    """Writes counts by split and sentence (see `Task.counts`; `documents` if known) and returns their sha256."""
    content = canonical(counts).encode()
    write_atomically(counts_path(record), lzma.compress(content))
    return sha256_of(content)


def load_counts(record: Path) -> tuple[dict[str, Counts], str]:
    """Reads the counts of dev and test that belong to the record at this path, with their sha256. Raises UserError."""
    path = counts_path(record)
    remedy = "Move its record away and run again."
    unpacker = lzma.LZMADecompressor(memlimit=MOST_BYTES)
    try:
        content = unpacker.decompress(read_regular(path), MOST_BYTES)
        if not unpacker.eof:
            raise ValueError(f"it is cut off, or holds more than {MOST_BYTES / 1e6:.0f} MB")
        counts: dict[str, Counts] = msgspec.json.decode(content, type=dict[str, dict[str, list[Count]]])
    except (OSError, ValueError, RecursionError, lzma.LZMAError, msgspec.DecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. {remedy}") from None
    for split in ("dev", "test"):
        if split not in counts:
            raise UserError(f"{path} has no counts of {split}. {remedy}")
        if problem := problem_of(counts[split]):
            raise UserError(f"{path}: {split} {problem}. {remedy}")
    return counts, sha256_of(content)


def bad_files(results_dir: Path) -> list[UserError]:
    """Returns what is wrong with records, and with the counts of the others where there are any."""
    records, bad = read_records(results_dir)
    for record in records:
        if counts_path(record).exists():
            try:
                load_counts(record)
            except UserError as error:
                bad[record] = error
    return [*bad.values()]


def write_predictions(record: Path, split: str, words: Tags, gold: Tags, predicted: Tags) -> str:
    """Writes predictions in CoNLL columns and returns their sha256."""
    content = as_columns(words, gold, predicted)
    write_atomically(predictions_path(record, split), content)
    return sha256_of(content)


def as_columns(*columns: Tags) -> bytes:
    """Formats columns as CoNLL does, words first, separated by a blank, or by a tab if any has white space."""
    blank = all(not any(c in word for c in " \t") for column in columns for sentence in column for word in sentence)
    separator = " " if blank else "\t"
    blocks = (
        "".join(f"{separator.join(line)}\n" for line in zip(*sentence, strict=True))
        for sentence in zip(*columns, strict=True)
    )
    return "\n".join(blocks).encode("utf-8", "surrogatepass")


def read_predictions(path: Path) -> tuple[Tags, Tags]:
    content = read_regular(path)
    gold: list[list[str]] = []
    predicted: list[list[str]] = []
    for block in content.decode("utf-8", "surrogatepass").rstrip("\n").split("\n\n"):
        columns = [line.rsplit("\t" if "\t" in line else " ", 2) for line in block.split("\n")]
        gold.append([line[-2] for line in columns])
        predicted.append([line[-1] for line in columns])
    return gold, predicted
