"""Does this record hold? Checks of a results folder, one line each; nothing is believed because it is written down.

Without `rerun` only files are read: each record is whole, its key is the hash of its config, its counts (and its
predictions, where they are) give its scores again, its feature key is that of its encoder and text where those are at
hand; tables, figures and page are what the records give, to the last character of each record.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.checks.results import Check, unequal
from probe.config import Config, UserError
from probe.reporting.published import PUBLISHED, differences
from probe.reporting.rows import build_rows, results_folder
from probe.runs.records import load_records
from probe.scoring.metrics import headline

OUTCOME = ("scores", "curve", "best_epoch", "mix", "parameters")


def compare_runs(there: dict[str, Any], here: dict[str, Any], name: str) -> Check:
    """A run against the same run made again or elsewhere: the same bits, or the reason why not."""
    odd = [
        place for part in OUTCOME for place, *_ in unequal(_timeless(there.get(part)), _timeless(here.get(part)), part)
    ]
    if not odd and there["sha256"] == here["sha256"]:
        return Check(name, True, "the same bits")
    environments = [{**r["software"].get("versions", {}), **r["hardware"]} for r in (there, here)]
    reasons = [f"{place} {a} / {b}" for place, a, b in unequal(environments[0], environments[1])]
    if not reasons:
        commits = [(r["software"].get("git") or {}).get("commit", "no commit")[:10] for r in (there, here)]
        code = f"; code of {commits[0]} / {commits[1]}" if commits[0] != commits[1] else ""
        return Check(name, False, f"not the same bits ({odd[0] if odd else 'predictions'}) on the same machine{code}")
    pairs = [(there["scores"][split], here["scores"][split]) for split in ("dev", "test")]
    dev, test = (abs(100 * (headline(a) - headline(b))) for a, b in pairs)
    most_dev, most_test = (tolerance(scores) for scores, _ in pairs)
    detail = f"dev {dev:.2f} and test {test:.2f} points apart (allowed: {most_dev:.1f} and {most_test:.1f})"
    within = dev <= most_dev and test <= most_test
    return Check(name, within, f"{detail}; otherwise here: {', '.join(reasons)}")


def tolerance(scores: dict[str, Any]) -> float:
    """Points that a run repeated elsewhere may be off in one split: two, or where it is small two standard errors.

    With other roundings training takes another course, as with another seed, which in a small split moves F1 further:
    the standard error is that of a share of as many spans (or words, where tags are no spans) as the split has.
    """
    share = min(max(headline(scores), 0), 1)  # an edited record may hold any number
    return max(2.0, 200 * math.sqrt(share * (1 - share) / max(scores["counts"]["gold"], 1)))


def _timeless(value: Any) -> Any:
    """A curve without its seconds, and without the dev loss, which older records have not."""
    if isinstance(value, list):
        left_out = ("train_s", "dev_loss")
        return {str(i): {k: v for k, v in point.items() if k not in left_out} for i, point in enumerate(value, 1)}
    return value


def check_against(folder: Path, reference: Path) -> Iterator[Check]:
    """Runs of one folder against the same runs of another."""
    here, there = (
        {record["key"]: record for record in load_records(results_folder(place)).values()}
        for place in (folder, reference)
    )
    shared = here.keys() & there.keys()
    if not shared:
        raise UserError(f"{folder} and {reference} have no run in common: data, encoder, features or probe differ.")
    for key in sorted(shared, key=lambda key: (here[key]["row"], here[key]["config"]["seed"])):
        yield compare_runs(there[key], here[key], f"{here[key]['row']} seed {here[key]['config']['seed']}")
    for key in there.keys() - shared:
        yield Check(f"{there[key]['row']} seed {there[key]['config']['seed']}", None, f"not in {folder}")


def check_against_published(folder: Path, source: str) -> Iterator[Check]:
    """Means beside published numbers, and what differs in the setting: shown, never judged."""
    published = PUBLISHED[source]
    for row in build_rows(folder):
        if row["layers"] not in published["rows"] or not row["about"]:
            continue
        score = row.get("dev_entity_word_recall" if "recall" in published["score"] else "dev_f1")
        if score is None:  # tags that are no spans
            continue
        mean = 100 * score["mean"]
        off = mean - published["rows"][row["layers"]]
        unlike = differences(row["about"], source)
        detail = f"{mean:.2f} here, {published['rows'][row['layers']]} there ({off:+.2f})"
        yield Check(row["layers"], None, detail + (f"; here otherwise: {'; '.join(unlike)}" if unlike else ""))


def rerun(
    folder: Path, row: str | None, seed: int | None, make_config: Callable[[list[str]], Config], overrides: list[str]
) -> Iterator[Check]:
    """Trains chosen runs again in a folder of their own and compares.

    overrides: for what lies elsewhere here (data.path=DIR). Raises UserError where no record was meant.
    """
    from probe.runs.run import run

    there = load_records(results_folder(folder)).values()
    records = [record for record in there if row in (None, record["row"]) and seed in (None, record["config"]["seed"])]
    if not records:
        known = sorted({record["row"] for record in there})
        raise UserError(f"{folder} has no record of row {row} and seed {seed}. Rows: {', '.join(known)}.")
    for record in records:
        name = f"{record['row']} seed {record['config']['seed']}"
        cfg = make_config([*_overrides(record["config"]), *overrides])
        with tempfile.TemporaryDirectory() as scratch:
            again = run(replace(cfg, results_dir=scratch, jobs=1), tell=lambda _: None)
        if again["key"] != record["key"]:
            places = [place for place, *_ in unequal(record["identity"], again["identity"])]
            yield Check(name, False, f"another run was made here: {', '.join(places)} differ")
        else:
            yield compare_runs(record, again, name)


def _overrides(config: dict[str, Any], prefix: str = "") -> list[str]:
    """A record's config as it would be typed."""
    typed: list[str] = []
    for name, value in config.items():
        if isinstance(value, dict):
            typed += _overrides(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "layers.name":
            quoted = (
                '"' + value.replace('"', '\\"') + '"'
                if isinstance(value, str)
                else json.dumps(value, ensure_ascii=False)
            )
            typed.append(f"{prefix}{name}={quoted}")
    return typed
