"""Compares runs with the same runs made again, made elsewhere, or published."""

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
from probe.runs.outputs import as_columns
from probe.runs.plan import Plan, plan
from probe.runs.records import Checksums, RunRecord, load_records
from probe.scoring.metrics import Scores, count, scores_of
from probe.system.files import sha256_of, short, to_jsonable
from probe.tables.published import PUBLISHED, numbers_for, setting_differences
from probe.tables.rows import build_rows, results_folder
from probe.verify.check import Check
from probe.verify.compare import unequal
from probe.verify.complete import unreadable

CASED = "its control task was drawn from the mentions with case; this version lower-cases them, as the encoder does"
NATIVE = {"bfloat16": "native"}  # assumed of records that do not say how bfloat16 was computed
ROUNDING_POINTS = 0.2  # by which predictions with the same weights may differ on another machine
OUTCOME = ("scores", "curve", "best_epoch", "mix", "parameters")


def compare_runs(reference: RunRecord, again: RunRecord, name: str) -> Check:
    """Compares a run with the same run made again or elsewhere: it has the same bits, or there is a reason why not."""
    places = [place for place, *_ in unequal(_outcome(reference), _outcome(again))]
    if not places and _files(reference, again) == _files(again, reference):
        return Check(name, True, "the same bits")
    reasons = [f"{place} {a} / {b}" for place, a, b in unequal(environment(reference), environment(again))]
    if not reasons:
        commits = [short(run.software.git.commit) if run.software.git else "no commit" for run in (reference, again)]
        code = f"; code of {commits[0]} / {commits[1]}" if commits[0] != commits[1] else ""
        where = places[0] if places else "predictions"
        return Check(name, False, f"not the same bits ({where}) on the same machine{code}")
    pairs = [(getattr(reference.scores, split), getattr(again.scores, split)) for split in ("dev", "test")]
    dev, test = (abs(100 * (a.headline - b.headline)) for a, b in pairs)
    most_dev, most_test = (tolerance(scores) for scores, _ in pairs)
    detail = f"dev differs by {dev:.2f} and test by {test:.2f} points (allowed: {most_dev:.1f} and {most_test:.1f})"
    within = dev <= most_dev and test <= most_test
    return Check(name, within, f"{detail}; differs here: {', '.join(reasons)}")


def _files(record: RunRecord, other: RunRecord) -> Checksums:
    """Returns the checksums of a record's files; that of weights only if both records have one."""
    both = record.sha256.weights is not None and other.sha256.weights is not None
    return record.sha256 if both else replace(record.sha256, weights=None)


def _outcome(record: RunRecord) -> dict[str, Any]:
    """Returns a run's results, without its seconds, and without the dev loss, which older records lack."""
    outcome = {name: to_jsonable(getattr(record, name)) for name in OUTCOME}
    for split in outcome["scores"].values():
        for name in ("boundary", "matthews"):  # older records have none; they follow from the predictions
            split.pop(name, None)
    outcome["curve"] = {
        str(number): {name: value for name, value in epoch.items() if name not in ("train_s", "dev_loss")}
        for number, epoch in enumerate(outcome["curve"], 1)
    }
    return outcome


def environment(record: RunRecord) -> dict[str, Any]:
    """Returns all that a run's bits depend on in addition to its key: versions and hardware."""
    bfloat16 = {"bfloat16": "not used"} if record.config.probe.get("precision") == "auto" else NATIVE
    return {**record.software.versions, **bfloat16, **to_jsonable(record.hardware)}


def tolerance(scores: Scores) -> float:
    """Returns the points by which a run repeated elsewhere may differ: two, or two standard errors if that is more.

    Other rounding changes the course of training like another seed, which changes F1 more on a small split. The
    standard error is that of a proportion over the split's gold spans (or words, if tags are not spans).
    """
    share = min(max(scores.headline, 0), 1)  # an edited record may hold any number
    return max(2.0, 200 * math.sqrt(share * (1 - share) / max(scores.counts.gold, 1)))


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


def predict_again(
    chosen: Sequence[RunRecord], folder: Path, make_config: Callable[[list[str]], Config], overrides: list[str]
) -> Iterator[Check]:
    """Predicts dev and test with the saved weights of runs, without training, and compares. overrides: see `rerun`."""
    import torch

    from probe.probes.batches import TaggedWords
    from probe.probes.frozen import read_features
    from probe.probes.kinds import bfloat16_kernels
    from probe.runs.weights import load_probe
    from probe.system.machine import resolve_device
    from probe.system.provenance import hardware, versions

    files = {record.key: file for file, record in load_records(results_folder(folder)).items()}
    for record in chosen:
        try:
            planned = _plan_again(record, make_config, overrides)
            if isinstance(planned, Check):
                yield planned
                continue
            cfg, device = planned.cfg, resolve_device(planned.cfg.device)
            tagger, _ = load_probe(files[record.key], record, device)
        except UserError as error:
            yield Check(record.label, False, str(error))
            continue
        streamed = replace(cfg, features=replace(cfg.features, placement="stream"))  # each word is read only once
        features, *_ = read_features(replace(planned, cfg=streamed).fit_inputs(), device)
        if device == "cpu":
            torch.set_num_threads(1)
        difference, same = 0.0, True
        for name in ("dev", "test"):
            split, recorded = planned.corpus.splits[name], getattr(record.scores, name)
            data = TaggedWords(features[name], split.tags, {}, device)
            predicted = tagger.predict(data)
            same &= (
                sha256_of(as_columns(split.by_unit(planned.corpus.task).words, split.tags, predicted))
                == record.sha256.predictions[name]
            )
            scores = scores_of(count(split.tags, predicted, record.task))
            difference = max(difference, abs(100 * (scores.headline - recorded.headline)))
        here = {**versions(), **NATIVE, **to_jsonable(hardware(device, 1, bfloat16_kernels(cfg, device)))}
        reasons = [f"{place} {a} / {b}" for place, a, b in unequal(environment(record), here)]
        if same:
            yield Check(record.label, True, "its saved weights give exactly the record's predictions")
        else:
            ok = bool(reasons) and difference <= ROUNDING_POINTS
            why = f"differs here: {', '.join(reasons)}" if reasons else "on the same machine"
            yield Check(record.label, ok, f"other predictions, which differ by {difference:.2f} points; {why}")


def _plan_again(record: RunRecord, make_config: Callable[[list[str]], Config], overrides: list[str]) -> Plan | Check:
    """Plans a record's run. Returns a check instead if this version would not make it, or makes another run."""
    if record.has_cased_control:
        return Check(record.label, None, CASED)
    planned = plan(config_from_record(record, make_config, overrides))
    if planned.identity.key == record.key:
        return planned
    places = [place for place, *_ in unequal(to_jsonable(record.identity), to_jsonable(planned.identity))]
    return Check(record.label, False, f"these settings give another run: {', '.join(places)} differ")


def check_against_published(folder: Path, source: str) -> Iterator[Check]:
    """Shows means next to published numbers, with the differences of the settings. Does not judge them."""
    published = PUBLISHED[source]
    rows = build_rows(folder)
    has_any = False
    for row in rows:
        numbers = numbers_for(source, row)
        if numbers is None or row.about is None:
            continue
        differences = [*setting_differences(row.about, source), *filter(None, [published.note])]
        for (score, called), theirs in zip(published.scores.items(), numbers, strict=True):
            cell = row.cells.get(score)
            if cell is None or cell.mean is None:
                continue
            has_any = True
            mean = 100 * cell.mean
            name = row.name + f", {row.condition}" * bool(row.condition)
            detail = f"{mean:.2f} here, {theirs} there ({mean - theirs:+.2f})" + f", {called}" * (len(numbers) > 1)
            yield Check(name, None, detail + (f"; differs here: {'; '.join(differences)}" if differences else ""))
    if not has_any:
        encoders = {row.about.encoder for row in rows if row.about}
        known = sorted({name for of in published.encoders.values() for name in of.rows})
        yield Check(
            source,
            None,
            f"has no number for these rows. Its encoders: {', '.join(published.encoders)} (here: "
            f"{', '.join(sorted(encoders)) or 'none'}). Its rows: {', '.join(known)}.",
        )


def choose_runs(
    folder: Path, row: str | None, seed: int | None, sample: int | None = None, sample_seed: int = 0
) -> list[RunRecord]:
    """Returns the records of a row and seed (None: any), or `sample` of them, drawn at random with sample_seed.

    Raises UserError if there are none.
    """
    records = list(load_records(results_folder(folder)).values())
    chosen = [record for record in records if row in (None, record.row) and seed in (None, record.seed)]
    if not chosen:
        known = sorted({record.row for record in records})
        of_seed = "" if seed is None else f" and seed {seed}"
        raise UserError(f"{folder} has no record of row {row}{of_seed}. Rows: {', '.join(known)}.")
    if sample is None or sample >= len(chosen):
        return chosen
    by_key = sorted(chosen, key=lambda record: record.key)  # so that file names do not matter
    return sorted(random.Random(sample_seed).sample(by_key, sample), key=chosen.index)


def rerun(
    chosen: Sequence[RunRecord], make_config: Callable[[list[str]], Config], overrides: list[str]
) -> Iterator[Check]:
    """Trains runs again in a temporary folder and compares. overrides: for files that have moved (data.path=DIR)."""
    from probe.runs.run import run

    for record in chosen:
        planned = _plan_again(record, make_config, overrides)
        if isinstance(planned, Check):
            yield planned
            continue
        with tempfile.TemporaryDirectory() as scratch:
            again = run(replace(planned.cfg, results_dir=scratch, jobs=1), log=lambda _: None)
        yield compare_runs(record, again, record.label)
