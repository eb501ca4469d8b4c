"""Implements `probe cache`: lists and prunes feature stores. Listing reads only files."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.commands.arguments import Parser, at_least
from probe.config import UserError
from probe.format import pluralize
from probe.settings import configs_of
from probe.system.files import canonical, short
from probe.system.locks import FileLock
from probe.tables.notes import how_read
from probe.vectors.store import IN_USE, OF_A_STORE, read_manifest

PRUNED = ".pruned-"  # begins the name of a store that is being deleted


@dataclass(frozen=True)
class Entry:
    """Describes one store on disk, complete or not."""

    directory: Path
    manifest: dict[str, Any] | None  # None: extraction has not finished, or the manifest was changed
    num_bytes: int
    used: float  # seconds since the epoch

    @property
    def key(self) -> str:
        return self.directory.name

    def line(self) -> str:
        age = (time.time() - self.used) / 86400
        size = f"{short(self.key)}  {self.num_bytes / 1e9:>7.3f} GB  used {age:5.1f} days ago  "
        if self.manifest is None:
            return size + "not complete"
        identity, about = self.manifest["identity"], self.manifest["about"]
        words = sum(split["words"] for split in self.manifest["splits"].values())
        texts, some = identity.get("texts"), identity.get("layers")
        data = f"{about['data']} ({words} {'texts' if texts else 'words'})"
        layers = f"layers {canonical(some)}" if some else f"{self.manifest['num_layers'] + 1} layers"
        read = [f"pooled by {texts['pooling']}"] if texts else how_read(identity)
        read += [identity["dtype"]] if "dtype" in identity else []  # vectors of another program have none
        return size + ", ".join([data, about["encoder"], f"{layers} of {self.manifest['hidden_size']}", *read])


def cache(arguments: list[str]) -> int:
    """Maintains the feature store, which is in features.cache_dir or in LAYER_PROBE_CACHE.

      list     prints every store with its key, its size, when it was used and what it holds
      prune    prints which stores a rule would delete, and deletes them with --yes

    examples:
      probe cache list
      probe cache prune --older-than 30 --yes
      probe cache prune --key 1b0056459e --yes
    """
    parser = Parser(cache)
    parser.add_argument("action", choices=("list", "prune"), help="what to do (see above)")
    parser.add_settings()
    group = parser.add_argument_group("options of prune")
    group.add_argument(
        "--older-than", type=at_least(float, 0), metavar="DAYS", help="delete stores not used for this many days"
    )
    group.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="delete the store with this key, as list prints it"
    )
    group.add_argument("--yes", action="store_true", help="delete; without it, only print what would be deleted")
    options = parser.parse_intermixed_args(arguments)
    cache_dir = Path(configs_of(options.overrides)[0][0].features.cache_dir)
    if options.action == "list":
        found = entries(cache_dir)
        for entry in found:
            print(entry.line())
        print(f"{_total(found)} in {cache_dir}")
        return 0
    deleted = []
    for entry in prunable(cache_dir, options.older_than, options.key):
        try:
            if options.yes:
                remove(entry)
        except UserError as error:
            print(error)
            continue
        print(f"{'deleted' if options.yes else 'would delete'} {entry.line()}")
        deleted.append(entry)
    for interrupted in cache_dir.glob(f"{PRUNED}*") if options.yes else ():
        shutil.rmtree(interrupted, ignore_errors=True)
    hint = ". Nothing was deleted: add --yes to delete." if deleted and not options.yes else ""
    print(f"{_total(deleted)}{hint}")
    return 0


def _total(found: list[Entry]) -> str:
    return f"{pluralize(len(found), 'store')}, {sum(entry.num_bytes for entry in found) / 1e9:.2f} GB"


def entries(cache_dir: Path) -> list[Entry]:
    """Returns every store under a folder, the last used first. A link, and a folder with anything else, is none."""
    stores = []
    for directory in sorted(cache_dir.iterdir()) if cache_dir.is_dir() else []:
        if directory.is_symlink() or not directory.is_dir() or not re.fullmatch("[0-9a-f]{64}", directory.name):
            continue
        inside = [*directory.iterdir()]
        if any(not OF_A_STORE.fullmatch(file.name) or file.is_dir() for file in inside):
            continue
        files = [file.lstat() for file in inside]
        used = max((status.st_mtime for status in files), default=directory.stat().st_mtime)
        stores.append(Entry(directory, read_manifest(directory), sum(status.st_size for status in files), used))
    return sorted(stores, key=lambda entry: -entry.used)


def prunable(cache_dir: Path, older_than_days: float | None, keys: list[str]) -> list[Entry]:
    """Returns the stores that are not used for so many days, or whose keys begin as one of these; with both: both.

    Raises UserError if there is neither, or if one of `keys` begins no store's key, or those of several.
    """
    if older_than_days is None and not keys:
        raise UserError("probe cache prune needs a rule: --older-than DAYS or --key KEY.")
    found = entries(cache_dir)
    for key in keys:
        if (number := sum(entry.key.startswith(key) for entry in found)) != 1:
            raise UserError(f"--key {key}: {number or 'no'} stores begin with it. `probe cache list` shows the keys.")
    limit = time.time() - (older_than_days or 0) * 86400
    return [entry for entry in found if entry.used <= limit and (not keys or entry.key.startswith(tuple(keys)))]


def remove(entry: Entry) -> None:
    """Deletes a store. Raises UserError if a running job uses it."""
    with FileLock(entry.directory / IN_USE, exclusive=True) as hold:
        if not hold.held:
            why = "is in use by a running job" if hold.busy else "cannot be locked (no permission, or no locks here)"
            raise UserError(f"{short(entry.key)} {why}; it stays.")
        doomed = entry.directory.with_name(f"{PRUNED}{entry.key}-{uuid.uuid4().hex[:8]}")
        entry.directory.rename(doomed)  # so that no process finds it half deleted
    shutil.rmtree(doomed)
