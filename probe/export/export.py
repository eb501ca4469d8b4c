"""Exports a corpus with its vectors, as files that other programs read.

An export is a complete folder or none. It is written as FOLDER.part, one shard of the store at a time, and renamed at
the end. After a kill or a full disk the same command continues. `export.json` describes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from probe.config import Config, UserError
from probe.export.split_files import write_split
from probe.export.splits import Vectors, chosen, plan_to_read, read_vectors
from probe.features.pooled import vectors_to_read
from probe.probes.combine import bytes_needed
from probe.runs.plan import Plan, settings_of
from probe.system.files import key_of, to_jsonable, why_not_writable, write_json
from probe.system.locks import FileLock
from probe.system.progress import progress_bar
from probe.system.provenance import provenance

ABOUT = "export.json"
LOCK = ".lock"
LAYOUT = 1  # raise it when the files change
ENDINGS = (".safetensors", ".parquet", ".npy", ".npz", ".json", ".jsonl", ".csv")


def export(cfg: Config, target: Path, each: bool, log: Callable[[str], None]) -> None:
    """Writes a config's corpus and features into a new folder.

    each: does not combine the chosen layers. Raises UserError, before anything is computed, for a target that exists or
    cannot be created. Existing files never change.
    """
    _refuse(target)
    planned = plan_to_read(cfg)
    what = identity(planned, each)
    part = target.with_name(f"{target.name}.part")
    _refuse_other(part, key_of(what))
    needed = _bytes(planned, each)
    written = sum(file.stat().st_size for file in part.iterdir()) if part.is_dir() else 0
    if reason := why_not_writable(part, max(0, needed - written)):
        raise UserError(f"{target}: {reason}. To use another folder: --to DIR.")
    num_words = sum(split.num_words for split in planned.corpus.splits.values())
    log(f"{num_words} words, {needed / 1e9:.2f} GB, to {target}")
    vectors = read_vectors(cfg, each)
    try:
        part.mkdir(parents=True, exist_ok=True)
        with FileLock(part / LOCK, exclusive=True) as hold:
            if hold.busy:
                raise UserError(f"{part} is being written by another process.")
            _write(part, what, planned, vectors)
            (part / LOCK).unlink(missing_ok=True)
            _refuse(target)
            part.rename(target)
    except OSError as error:
        raise UserError(
            f"{error.filename or part} cannot be written: {error.strerror or error}. The files so far are in {part}; "
            "once there is space, the same command continues."
        ) from None


def _bytes(planned: Plan, each: bool) -> int:
    """Estimates the bytes of an export."""
    selection = chosen(planned.selection, each)
    read = vectors_to_read(planned.store, planned.text, planned.cfg.features)
    vectors = bytes_needed(read, selection)
    columns = (column for split in planned.corpus.splits.values() for column in (split.words, split.tags))
    return vectors + sum(len(word) + 4 for column in columns for word in chain.from_iterable(column))


def identity(planned: Plan, each: bool) -> dict[str, Any]:
    """Returns an export's identity by content. Its hash says whether an unfinished export can continue."""
    selection = chosen(planned.selection, each)
    optional = {"normalize": selection.normalize, "sentence": planned.identity.sentence}
    return {name: value for name, value in optional.items() if value} | {
        "layout": LAYOUT,
        "corpus": planned.identity.corpus,
        "features": planned.store.vectors_key,
        "layers": list(selection.indices),
        "combine": "none" if selection.combine == "mix" else selection.combine,
    }


def _refuse(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} already exists and was not changed. To use another folder: --to DIR.")
    if target.suffix in ENDINGS:
        raise UserError(f"--to {target}: an export is a folder. Type --to {target.with_suffix('')}.")


def _refuse_other(part: Path, key: str) -> None:
    """Raises UserError if the folder holds another unfinished export, or something else."""
    if not part.exists() or not any(file.name != LOCK for file in part.iterdir()):
        return
    try:
        found = json.loads((part / ABOUT).read_text(encoding="utf-8"))["key"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != key:
        what = "holds something else" if found is None else "is an unfinished export of something else"
        raise UserError(f"{part} {what} and was not changed. Remove it, or use another folder: --to DIR.")


def _write(part: Path, what: dict[str, Any], planned: Plan, vectors: dict[str, Vectors]) -> None:
    for file in part.glob(".*"):
        if file.name != LOCK:  # half-written by a process that was killed
            file.unlink()
    if not (part / ABOUT).exists():
        write_json(part / ABOUT, _about(what, planned, vectors))
    with progress_bar(sum(map(len, vectors.values())), "exporting") as bar:
        read = vectors_to_read(planned.store, planned.text, planned.cfg.features)
        for name, split in planned.corpus.splits.items():
            parts = [(shard.first, shard.last) for shard in read.shards[name]]
            write_split(part, name, split.by_unit(planned.corpus.task), vectors[name], parts, bar.update)


def _about(what: dict[str, Any], planned: Plan, vectors: dict[str, Vectors]) -> dict[str, Any]:
    """Returns the content of export.json: the export's identity, the names, and the versions that wrote it."""
    corpus, encoder, store = planned.corpus, planned.encoder, planned.store
    manifest = store.serving().manifest()
    assert manifest is not None
    settings = settings_of(planned.cfg)
    return {
        "key": key_of(what),
        **what,
        "shapes": {name: list(rows.shape) for name, rows in vectors.items()},
        "data": {"name": corpus.name, "task": corpus.task.name, **to_jsonable(corpus.counts()), "about": corpus.about},
        "encoder": {
            "name": encoder.name,
            "source": encoder.source,
            "commit": encoder.commit,
            **encoder.fingerprint,
            "num_layers": encoder.num_layers,
            "hidden_size": encoder.hidden_size,
        },
        "vectors": store.identity,
        "words_without_pieces": {name: split["words_without_pieces"] for name, split in manifest["splits"].items()},
        "settings": {"data": settings.data, "encoder": settings.encoder, "features": settings.features},
        "software": to_jsonable(provenance()),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
