"""Compares recorded runs with new trainings of them, or with the same runs in another folder."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.config import Config, UserError
from probe.runs.config_from_record import config_from_record
from probe.runs.frame import of_row
from probe.runs.plan import plan
from probe.runs.records import RunRecord, bad_records, load_records
from probe.scoring.metrics import Scores
from probe.system.files import short, to_jsonable
from probe.tables.rows import results_folder
from probe.verify.checks import Check, unequal


def compare_runs(reference: RunRecord, again: RunRecord, name: str) -> Check:
    """Compares a run with the same run made again or elsewhere: it has the same bits, or there is a reason why not."""
    places = [place for place, *_ in unequal(_outcome(reference), _outcome(again))]
    if not places:
        return Check(name, True, "the same bits")
    reasons = [f"{place} {a} / {b}" for place, a, b in unequal(environment(reference), environment(again))]
    if not reasons:
        commits = [short(run.software.git.commit) if run.software.git else "no commit" for run in (reference, again)]
        code = f"; code of {commits[0]} / {commits[1]}" if commits[0] != commits[1] else ""
        return Check(name, False, f"not the same bits ({places[0]}) on the same machine{code}")
    pairs = [(getattr(reference.scores, split), getattr(again.scores, split)) for split in ("dev", "test")]
    dev, test = (abs(100 * (a.headline - b.headline)) for a, b in pairs)
    most_dev, most_test = (tolerance(scores) for scores, _ in pairs)
    detail = f"dev differs by {dev:.2f} and test by {test:.2f} points (allowed: {most_dev:.1f} and {most_test:.1f})"
    within = dev <= most_dev and test <= most_test
    return Check(name, within, f"{detail}; differs here: {', '.join(reasons)}")


def _outcome(record: RunRecord) -> dict[str, Any]:
    """Returns what a run's bits decide: scores, losses, predictions."""
    return {
        "dev": record.scores.dev.headline,
        "test": record.scores.test.headline,
        "losses": [epoch.loss for epoch in record.curve],
        "dev by epoch": [round(epoch.dev, 9) for epoch in record.curve],
        "best_epoch": record.best_epoch,
        "mix": to_jsonable(record.mix),
        "counts": record.sha256.counts,
        "predictions": record.sha256.predictions,
    }


def environment(record: RunRecord) -> dict[str, Any]:
    """Returns all that a run's bits depend on in addition to its key: versions and hardware."""
    return {**record.software.versions, **to_jsonable(record.hardware)}


def tolerance(scores: Scores) -> float:
    """Returns the points by which a run repeated elsewhere may differ: two, or two standard errors if that is more.

    Other rounding changes the course of training like another seed, which changes F1 more on a small split. The
    standard error is that of a proportion over the split's gold spans (or words, if tags are not spans).
    """
    share = min(max(scores.headline, 0), 1)  # an edited record may hold any number
    return max(2.0, 200 * math.sqrt(share * (1 - share) / max(scores.counts.gold, 1)))


def unreadable(folder: Path) -> Iterator[Check]:
    """Yields a failed check for each file under records/ that is not a record."""
    for file, error in bad_records(folder).items():
        yield Check(file.name, False, str(error))


def check_against(folder: Path, reference: Path) -> Iterator[Check]:
    """Compares the runs of one folder with the same runs of another."""
    ours, theirs = (
        {record.key: record for record in load_records(results_folder(place)).values()} for place in (folder, reference)
    )
    for place in (folder, reference):
        yield from unreadable(results_folder(place))
    shared = ours.keys() & theirs.keys()
    if not shared:
        raise UserError(f"{folder} and {reference} have no run in common: data, encoder, features or probe differ.")
    for key in sorted(shared, key=lambda key: (ours[key].row, ours[key].seed)):
        yield compare_runs(theirs[key], ours[key], ours[key].label)
    for key in theirs.keys() - shared:
        yield Check(theirs[key].label, None, f"not in {folder}")


def choose_runs(folder: Path, row: str | None, seed: int | None, sample: int | None = None) -> list[RunRecord]:
    """Returns the records of a row and seed (None: any), or `sample` of them, drawn at random.

    Raises UserError if there are none.
    """
    chosen = [*of_row(folder, load_records(results_folder(folder)), row, seed).values()]
    return chosen if sample is None or sample >= len(chosen) else random.SystemRandom().sample(chosen, sample)


def rerun(
    chosen: Sequence[RunRecord], make_config: Callable[[list[str]], Config], overrides: list[str]
) -> Iterator[Check]:
    """Trains runs again in a temporary folder and compares. overrides: for files that have moved (data.path=DIR)."""
    from probe.runs.run import run

    for record in chosen:
        planned = plan(config_from_record(record, make_config, overrides))
        if planned.identity.key != record.key:
            places = [place for place, *_ in unequal(to_jsonable(record.identity), to_jsonable(planned.identity))]
            yield Check(record.label, False, f"these settings give another run: {', '.join(places)} differ")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            again = run(replace(planned.cfg, results_dir=scratch, jobs=1), log=lambda _: None)
        check, cfg = compare_runs(record, again, record.label), planned.cfg
        took = f"text {cfg.data.path or cfg.data.hub}, encoder from {planned.encoder.source}"
        yield check._replace(detail=f"{check.detail} ({took}, features in {cfg.features.cache_dir})")
