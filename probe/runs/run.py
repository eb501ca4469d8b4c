"""Makes one run, from settings to record: plan, fit, score and record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from probe.config import Config, UserError
from probe.runs import records
from probe.runs.outputs import remove_half_written, write_counts, write_predictions
from probe.runs.plan import Plan, plan, settings_of
from probe.runs.records import RunRecord, load_record
from probe.scoring import detection
from probe.scoring.metrics import Scores
from probe.system.files import now, write_json
from probe.system.provenance import Software, provenance
from probe.vectors.store import read_manifest

if TYPE_CHECKING:
    from probe.probes.fitting import Fit


def run(cfg: Config, log: Callable[[str], None]) -> RunRecord:
    """Makes the run of a config and writes its record; returns the record at once if there is one."""
    return make(plan(cfg), log)


def make(
    planned: Plan, log: Callable[[str], None], runs: int = 1, num_gpus: int = 1, command: str | None = None
) -> RunRecord:
    """Makes one run and writes its record; returns the record at once if there is one.

    If save_probe=true and the run's weights were not saved, it is trained again and its record is replaced. log:
    receives lines about the progress. runs: how many share this machine and its GPUs. command: what was typed.
    """
    if planned.is_done:
        planned.unfinished.unlink(missing_ok=True)  # of a process killed right behind its record
        return load_record(planned.record_path)
    remove_half_written(planned.record_path)
    started_at = now()
    software = provenance(command)  # of the code as it was loaded: a run takes long enough for a commit
    fitted = planned.kind.fit(replace(planned, runs=runs, num_gpus=num_gpus), log)
    record = score_and_record(planned, fitted, software, started_at)
    planned.unfinished.unlink(missing_ok=True)
    return record


def score_and_record(planned: Plan, fitted: Fit, software: Software, started_at: str) -> RunRecord:
    """Scores a fitted probe's predictions, and writes them, their counts, its weights and, last, the record."""
    from probe.runs.weights import write_weights

    clock = time.perf_counter()
    splits, task = planned.corpus.splits, planned.corpus.task
    path = planned.record_path
    scores: dict[str, Scores] = {}
    counts, checksums = {}, {}
    for name, predicted in fitted.predictions.items():
        split = splits[name]
        counts[name] = task.counts(split.tags, predicted)
        scores[name] = task.scores(counts[name])
        independent = task.reference(split.tags, predicted)
        if not abs(independent - scores[name].headline) <= 1e-6:
            raise UserError(
                f"{name}: {task.headline.name} {scores[name].headline} by our counts, {independent} by other code: "
                "a mistake of this program. Nothing was recorded."
            )
        if split.documents is not None:
            counts[name]["documents"] = split.documents
        checksums[name] = write_predictions(path, name, split.by_unit(task.units).words, split.tags, predicted)
    weights = "" if planned.cfg.save_probe else None
    if planned.cfg.save_probe and fitted.weights is not None:
        weights = write_weights(path, planned.identity.key, fitted.labels, fitted.weights)
    sha256 = records.Checksums(write_counts(path, counts), checksums, weights)
    seconds = records.Seconds(round(fitted.read_s, 3), round(fitted.train_s, 3), round(time.perf_counter() - clock, 3))
    corpus, encoder, store, selection = planned.corpus, planned.encoder, planned.store, planned.selection
    manifest = read_manifest(store.directory)
    assert manifest is not None or not planned.kind.reads_features
    parts = {} if manifest is None else manifest["splits"]
    without_pieces = {name: part["words_without_pieces"] for name, part in parts.items()}
    record = RunRecord(
        schema=records.SCHEMA,
        key=planned.identity.key,
        identity=planned.identity,
        row=selection.name,
        config=settings_of(planned.cfg, encoder),
        data=records.RecordedData(
            corpus.name, corpus.task.name, records.CorpusCounts(**corpus.counts()), **corpus.about
        ),
        encoder=msgspec.convert(encoder, records.RecordedEncoder, from_attributes=True),
        features=records.RecordedFeatures(store.vectors_key, store.identity, fitted.placement, without_pieces or None),
        layers=records.RecordedLayers(list(selection.indices), selection.combine, selection.width, fitted.deviations),
        scores=records.SplitScores(**scores),
        sha256=sha256,
        best_epoch=fitted.best_epoch,
        curve=fitted.curve,
        mix=fitted.mix,
        parameters=fitted.parameters,
        seconds=seconds,
        software=software,
        hardware=fitted.hardware,
        started=started_at,
        finished=now(),
        outcome=fitted.outcome,
        threshold=detection.threshold(splits["dev"].tags, fitted.predictions["dev"]) if task.is_ranked else None,
    )
    write_json(path, record)
    return record
