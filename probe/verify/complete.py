"""Checks a folder's records against its sweep.json and against each other: are all there, and is none a duplicate?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from probe.config import UserError
from probe.runs.outputs import predictions_path
from probe.runs.records import Records, RunRecord, bad_records
from probe.runs.sweep_plan import SWEEP, read_expected
from probe.system.format import first_few
from probe.verify.check import Check

# With this many wrong spans (or words) in dev and test, two seeds never make all the same errors. With fewer, on a
# small, easy text, they may, and so may linear probes of a few hundred sentences with a label each. A probe that has
# learnt nothing predicts no span with any seed; that is not suspicious.
ERRORS_OF_ONE_RUN = 10


def check_complete(folder: Path, records: Records) -> Iterator[Check]:
    """Checks the readable records against sweep.json, against the files next to them, and against each other."""
    yield from _asked_for(folder, list(records.values()))
    yield from _predictions(records)
    yield from _seeds(list(records.values()))


def unreadable(folder: Path) -> Iterator[Check]:
    """Yields a failed check for each file under records/ that is not a record."""
    for file, error in bad_records(folder).items():
        yield Check(file.name, False, str(error))


def _asked_for(folder: Path, records: Sequence[RunRecord]) -> Iterator[Check]:
    """Checks that every run that was asked for has a record: omitting a seed would change the mean."""
    try:
        expected = {run.key: run for run in read_expected(folder)}
    except UserError as error:
        yield Check(SWEEP, False, str(error))
        return
    recorded = {record.key: record for record in records}
    name = f"{SWEEP}: runs asked for"
    if not expected:
        if (folder / SWEEP).exists():
            yield Check(name, False, "it names none, but every sweep names some: runs were removed from it")
        else:
            yield Check(name, None, f"there is no {SWEEP}, so missing runs cannot be found")
        return
    missing = sorted(expected[key].label for key in expected.keys() - recorded.keys())
    message = (
        f"{len(missing)} of {len(expected)} have no record here: {first_few(missing)}; the same sweep makes them (if "
        f"you do not want them: delete {SWEEP} and start another sweep; all records stay)"
    )
    yield Check(name, not missing, message if missing else f"all {len(expected)} have their record")
    if extra := sorted(recorded[key].label for key in recorded.keys() - expected.keys()):
        detail = f"{len(extra)} records are not of these runs: {first_few(extra)}"
        yield Check(f"{SWEEP}: other runs", None, detail)
    both = [(expected[key].row, recorded[key].row) for key in expected.keys() & recorded.keys()]
    if renamed := sorted({f"{expected_row} is recorded as {row}" for expected_row, row in both if expected_row != row}):
        yield Check(f"{SWEEP}: names of rows", None, first_few(renamed))


def _predictions(records: Records) -> Iterator[Check]:
    """Reports records without predictions, from which counts cannot be recomputed."""
    without = [
        record.label
        for file, record in records.items()
        if record.sha256.predictions and not any(predictions_path(file, split).exists() for split in ("dev", "test"))
    ]
    if without:
        detail = f"{len(without)} of {len(records)} records have none here, so their counts could not be recomputed"
        yield Check("predictions", None, detail)


def _seeds(records: Sequence[RunRecord]) -> Iterator[Check]:
    """Checks that no two seeds have the same losses, or the same predictions if these have many errors."""
    by_result: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        if any(split.counts.predicted for split in (record.scores.dev, record.scores.test)):
            by_result[f"counts {record.sha256.counts}"].append(record)
        if record.curve:
            by_result[f"losses {[epoch.loss for epoch in record.curve]}"].append(record)
    findings: dict[str, bool | None] = {}
    for what, runs in by_result.items():
        if len({run.seed for run in runs}) > 1:
            names = first_few(sorted(run.label for run in runs))
            kind = "losses" if what.startswith("losses") else "predictions, sentence by sentence"
            is_unlikely = runs[0].task.is_per_word and _errors(runs[0]) >= ERRORS_OF_ONE_RUN
            is_one_run = kind == "losses" or is_unlikely
            doubt = "one run recorded with several seeds" if is_one_run else "so few labels that it may be chance"
            findings[f"{names} have the same {kind}: {doubt}"] = False if is_one_run else None
    for detail, ok in findings.items():
        yield Check("seeds", ok, detail)
    if not findings and len({record.seed for record in records}) > 1:
        yield Check("seeds", True, "no two have the same losses or predictions")


def _errors(record: RunRecord) -> int:
    """Returns the number of wrong predictions in dev and test; 0 if every word got the same tag."""
    splits = (record.scores.dev, record.scores.test)
    if not record.task.has_spans and all(sum(kind.f1 > 0 for kind in split.per_type.values()) < 2 for split in splits):
        return 0
    return sum(split.counts.predicted - split.counts.correct for split in splits)
