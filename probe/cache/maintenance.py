"""Lists and prunes feature stores. Listing reads only files."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.features.store import IN_USE, LEFT_FOR_S, leftovers, read_manifest
from probe.system.files import canonical, short
from probe.system.locks import FileLock, is_locked

PRUNED = ".pruned-"  # begins the name of a store that is being deleted


@dataclass
class Entry:
    """Describes one store on disk, complete or not."""

    directory: Path
    manifest: dict[str, Any] | None  # None: extraction has not finished, or the manifest was changed
    num_bytes: int
    used: float  # seconds since the epoch
    leftovers: list[int]  # bytes of each file that nothing reads; they are part of num_bytes

    @property
    def key(self) -> str:
        return self.directory.name

    def line(self) -> str:
        age = (time.time() - self.used) / 86400
        size = f"{short(self.key)}  {_gb(self.num_bytes):>10}  used {age:5.1f} days ago  "
        if self.leftovers:
            size += f"{len(self.leftovers)} damaged or half-written files of {_gb(sum(self.leftovers))}  "
        if self.manifest is None:
            return size + "not complete"
        identity, about = self.manifest["identity"], self.manifest["about"]
        words = sum(split["words"] for split in self.manifest["splits"].values())
        some = identity.get("layers")
        layers = f"layers {canonical(some)}" if some else f"{self.manifest['num_layers'] + 1} layers"
        return size + (
            f"{about['data']} ({words} words), {about['encoder']}, {layers} of "
            f"{self.manifest['hidden_size']}, {identity['context']} context, {identity['subword']} piece, "
            f"{identity['dtype']}"
        )


def entries(cache_dir: Path) -> list[Entry]:
    """Returns every store under a folder, the last used first."""
    found = []
    for directory in sorted(cache_dir.iterdir()) if cache_dir.is_dir() else []:
        if not directory.is_dir() or len(directory.name) != 64:
            continue
        files = [file.stat() for file in directory.iterdir() if file.is_file()]
        used = max((status.st_mtime for status in files), default=directory.stat().st_mtime)
        unread = [num_bytes for _, num_bytes in leftovers(directory)]
        found.append(Entry(directory, read_manifest(directory), sum(status.st_size for status in files), used, unread))
    return sorted(found, key=lambda entry: -entry.used)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3f} GB"


def prunable(
    cache_dir: Path, older_than_days: float | None, keep: int | None, keys: Collection[str] = ()
) -> list[Entry]:
    """Returns the stores to prune: those not used for this many days, or not among the `keep` last used.

    keys: only the stores whose keys begin so. Raises UserError if one of them is no store's, or that of several.
    """
    found = entries(cache_dir)
    for key in keys:
        if (number := sum(entry.key.startswith(key) for entry in found)) != 1:
            raise UserError(f"--key {key}: {number or 'no'} stores begin with it. `probe cache list` shows the keys.")
    found = [entry for entry in found if not keys or entry.key.startswith(tuple(keys))]
    if older_than_days is not None:
        limit = time.time() - older_than_days * 86400
        found = [entry for entry in found if entry.used < limit]
    return found[keep:] if keep is not None else found


def is_used(entry: Entry) -> bool:
    """Returns whether a running job uses the store."""
    return is_locked(entry.directory / IN_USE, by_readers=True)


def remove_leftovers(entry: Entry, yes: bool) -> tuple[int, int]:
    """Deletes leftovers older than a day; without `yes`, only counts them. Returns their number and bytes."""
    found = list(leftovers(entry.directory, LEFT_FOR_S))
    for path, _ in found if yes else ():
        path.unlink(missing_ok=True)
    return len(found), sum(num_bytes for _, num_bytes in found)


def remove(entry: Entry) -> None:
    """Deletes a store, and the rest of an interrupted prune. Raises UserError if a running job uses it."""
    with FileLock(entry.directory / IN_USE, exclusive=True) as hold:
        if not hold.held:
            why = "is in use by a running job" if hold.busy else "cannot be locked (no permission, or no locks here)"
            raise UserError(f"{short(entry.key)} {why}; it stays.")
        doomed = entry.directory.with_name(f"{PRUNED}{entry.key}-{uuid.uuid4().hex[:8]}")
        entry.directory.rename(doomed)  # so that no process finds it half deleted
    shutil.rmtree(doomed)
    for interrupted in doomed.parent.glob(f"{PRUNED}*"):
        shutil.rmtree(interrupted, ignore_errors=True)
