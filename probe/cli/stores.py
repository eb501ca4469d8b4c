"""The command that looks after the feature store: cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe.cli.parser import Parser
from probe.cli.settings import configs_of
from probe.config import UserError

CACHE_HELP = """\
probe cache list                            every store: key, size, when used, what it holds
probe cache explain [setting=value ...]     which stores serve this config, and field by field why the others do not
probe cache verify [setting=value ...]      read this config's store whole and compare every checksum
  --sample N                                also compute N random sentences again and compare
probe cache prune --older-than DAYS | --keep N [--yes]
                                            stores to give up; says which, and deletes only with --yes
The store's place: features.cache_dir=DIR or LAYER_PROBE_CACHE.
"""


def cache(arguments: list[str]) -> int:
    from probe.features import upkeep as store_cache

    parser = Parser(prog="probe cache", usage="probe cache ACTION ...\n\n" + CACHE_HELP)
    parser.add_argument("action", choices=("list", "explain", "verify", "prune"))
    parser.add_argument("--sample", type=_not_negative(int), default=0)
    parser.add_argument("--older-than", type=_not_negative(float))
    parser.add_argument("--keep", type=_not_negative(int))
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
    problems = list(store_cache.verify_checksums(planned.store))
    for file, problem in problems:
        print(f"{planned.store.directory / file}: {problem}")
    if problems:
        print("The next run sets aside what is damaged and extracts it again.")
        return 1
    print(f"{planned.store.directory}: every shard is whole.")
    if options.sample:
        words, worst, allowed = store_cache.verify_sample(
            planned.store, planned.corpus, planned.encoder, planned.cfg.features, options.sample
        )
        print(
            f"{words} words computed again: largest difference {worst:.1g} of a vector's length"
            f" (rounding: up to {allowed:.1g})."
        )
        return 0 if worst <= allowed else 1
    return 0


def _not_negative(kind: type) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if not value >= 0:
            raise ValueError
        return value

    number.__name__ = "number, 0 or more,"  # in argparse's message
    return number


def _prune(cache_dir: Path, older_than: float | None, keep: int | None, yes: bool) -> int:
    from probe.features import upkeep as store_cache

    if older_than is None and keep is None:
        raise UserError("probe cache prune needs a rule: --older-than DAYS or --keep N.")
    doomed = store_cache.prunable(cache_dir, older_than, keep)
    for entry in doomed:
        print(("deleting " if yes else "would delete ") + entry.line())
        if yes:
            try:
                store_cache.remove(entry)
            except UserError as error:
                print(error)
    total = sum(entry.num_bytes for entry in doomed) / 1e9
    print(
        f"{len(doomed)} stores, {total:.2f} GB"
        + ("" if yes or not doomed else ". Nothing was deleted; add --yes to do it.")
    )
    return 0
