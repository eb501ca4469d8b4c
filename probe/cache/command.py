"""`probe cache`: the feature store, listed, explained, verified and pruned."""

from __future__ import annotations

from pathlib import Path

from probe.arguments import Parser, at_least
from probe.config import UserError
from probe.settings import configs_of
from probe.system.files import short

CACHE_HELP = """\
probe cache list                            every store: key, size, when used, what it holds
probe cache explain [setting=value ...]     which stores serve this config, and field by field why the others do not
probe cache verify [setting=value ...]      read this config's store whole and compare every checksum
  --sample N                                also compute N random sentences again and compare
probe cache prune --older-than DAYS | --keep N [--yes]
                                            stores to give up, and old damaged or half-made files in the others;
                                            says which, and deletes only with --yes
The store's place: features.cache_dir=DIR or LAYER_PROBE_CACHE.
"""


def cache(arguments: list[str]) -> int:
    from probe.cache import maintenance as store_cache

    parser = Parser(prog="probe cache", usage="probe cache ACTION ...\n\n" + CACHE_HELP)
    parser.add_argument("action", choices=("list", "explain", "verify", "prune"))
    parser.add_argument("--sample", type=at_least(int, 0), default=0)
    parser.add_argument("--older-than", type=at_least(float, 0))
    parser.add_argument("--keep", type=at_least(int, 0))
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    cfg = configs_of(options.overrides)[0][0]
    cache_dir = Path(cfg.features.cache_dir)
    if options.action == "list":
        found = store_cache.entries(cache_dir)
        print(*[entry.line() for entry in found], sep="\n", end="\n" if found else "")
        print(f"{len(found)} stores, {sum(entry.num_bytes for entry in found) / 1e9:.2f} GB in {cache_dir}")
        return 0
    if options.action == "prune":
        return _prune(cache_dir, options.older_than, options.keep, options.yes)
    from probe.runs.plan import plan

    planned = plan(cfg)
    if options.action == "explain":
        print(*store_cache.explain(planned.store), sep="\n")
        return 0
    store = planned.store.serving()
    problems = list(store_cache.verify_checksums(store))
    for file, problem in problems:
        print(f"{store.directory / file}: {problem}")
    if problems:
        print("The next run sets aside what is damaged and extracts it again.")
        return 1
    print(f"{store.directory}: every shard is whole.")
    if options.sample:
        words, worst, allowed = store_cache.verify_sample(
            store, planned.text, planned.encoder, planned.cfg.features, options.sample
        )
        print(
            f"{words} words computed again: largest difference {worst:.1g} of a vector's length"
            f" (rounding: up to {allowed:.1g})."
        )
        return 0 if worst <= allowed else 1
    return 0


def _prune(cache_dir: Path, older_than: float | None, keep: int | None, yes: bool) -> int:
    from probe.cache import maintenance as store_cache

    if older_than is None and keep is None:
        raise UserError("probe cache prune needs a rule: --older-than DAYS or --keep N.")
    total, num_stores, what = 0, 0, "deleted" if yes else "would delete"
    doomed = store_cache.prunable(cache_dir, older_than, keep)
    for entry in doomed:
        try:
            if store_cache.is_used(entry):
                raise UserError(f"{short(entry.key)} is in use by a running job; it stays.")
            if yes:
                store_cache.remove(entry)
        except UserError as error:
            print(error)
            continue
        print(f"{what} {entry.line()}")
        num_stores, total = num_stores + 1, total + entry.num_bytes
    keys = {entry.key for entry in doomed}
    for entry in store_cache.entries(cache_dir):
        number, num_bytes = (0, 0) if entry.key in keys else store_cache.remove_leftovers(entry, yes)
        if number:
            print(f"{what} {number} damaged or half-made files in {short(entry.key)}, {num_bytes / 1e9:.3f} GB")
        total += num_bytes
    print(
        f"{num_stores} stores, {total / 1e9:.2f} GB"
        + (". Nothing was deleted; add --yes to do it." * (not yes and total > 0))
    )
    return 0
