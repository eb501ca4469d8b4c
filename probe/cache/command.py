"""Implements `probe cache`."""

from __future__ import annotations

from pathlib import Path

from probe.arguments import Parser, at_least
from probe.config import UserError
from probe.settings import configs_of
from probe.system.files import short
from probe.system.format import pluralize

DESCRIPTION = """\
Maintains the feature store, which is in features.cache_dir or in LAYER_PROBE_CACHE.

  list     prints every store with its key, its size, when it was used and what it holds
  prune    prints which stores a rule would delete, and deletes them with --yes; also deletes
           old damaged or half-written files in the remaining stores
"""
EXAMPLES = """\
  probe cache list
  probe cache prune --older-than 30 --yes
  probe cache prune --key 1b0056459e --yes
"""


def cache(arguments: list[str]) -> int:
    """Lists or prunes the feature store, and returns the exit code."""
    from probe.cache import maintenance

    parser = Parser("cache", DESCRIPTION, EXAMPLES)
    parser.add_argument("action", choices=("list", "prune"), help="what to do (see above)")
    parser.add_settings()
    group = parser.add_argument_group("options of prune")
    group.add_argument(
        "--older-than", type=at_least(float, 0), metavar="DAYS", help="delete stores not used for this many days"
    )
    group.add_argument(
        "--keep", type=at_least(int, 0), metavar="N", help="delete all stores but the N that were used last"
    )
    group.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="delete the store with this key, as list prints it"
    )
    group.add_argument("--yes", action="store_true", help="delete; without it, only print what would be deleted")
    options = parser.parse_intermixed_args(arguments)
    cfg = configs_of(options.overrides)[0][0]
    cache_dir = Path(cfg.features.cache_dir)
    if options.action == "list":
        found = maintenance.entries(cache_dir)
        print(*[entry.line() for entry in found], sep="\n", end="\n" if found else "")
        print(
            f"{pluralize(len(found), 'store')}, {sum(entry.num_bytes for entry in found) / 1e9:.2f} GB in {cache_dir}"
        )
        return 0
    return _prune(cache_dir, options.older_than, options.keep, options.key, options.yes)


def _prune(cache_dir: Path, older_than: float | None, keep: int | None, keys: list[str], yes: bool) -> int:
    """Deletes, or lists, the stores that a rule names and leftover files of the others, and returns the exit code."""
    from probe.cache import maintenance

    if older_than is None and keep is None and not keys:
        raise UserError("probe cache prune needs a rule: --older-than DAYS, --keep N or --key KEY.")
    total_bytes, num_stores, verb = 0, 0, "deleted" if yes else "would delete"
    selected = maintenance.prunable(cache_dir, older_than, keep, keys)
    for entry in selected:
        try:
            if maintenance.is_used(entry):
                raise UserError(f"{short(entry.key)} is in use by a running job and is not deleted.")
            if yes:
                maintenance.remove(entry)
        except UserError as error:
            print(error)
            continue
        print(f"{verb} {entry.line()}")
        num_stores, total_bytes = num_stores + 1, total_bytes + entry.num_bytes
    pruned = {entry.key for entry in selected}
    for entry in maintenance.entries(cache_dir) if not keys else ():
        number, num_bytes = (0, 0) if entry.key in pruned else maintenance.remove_leftovers(entry, yes)
        if number:
            print(f"{verb} {number} damaged or half-written files in {short(entry.key)}, {num_bytes / 1e9:.3f} GB")
        total_bytes += num_bytes
    print(
        f"{pluralize(num_stores, 'store')}, {total_bytes / 1e9:.2f} GB"
        + (". Nothing was deleted: add --yes to delete." * (not yes and total_bytes > 0))
    )
    return 0
