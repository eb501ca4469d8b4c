"""One run, from settings to record: the recipe, read top to bottom."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from probe.config import Config
from probe.features.store import DamagedShard, FeatureStore
from probe.runs.plan import Plan, plan, resolve_device, science, training_device
from probe.runs.provenance import hardware, provenance
from probe.runs.records import SCHEMA, load_record, write_counts, write_predictions, write_record
from probe.system.machine import placement

PLACES = {"device": "in the GPU's memory", "memory": "in memory", "stream": "streamed from the store"}
ATTEMPTS_TO_READ = 3  # a store damaged again right after it was repaired has a problem no retry solves


def extract(cfg: Config) -> FeatureStore:
    """The features of a config's text, whole on disk."""
    from probe.features.extraction import ensure_features

    planned = plan(cfg)
    return ensure_features(planned.corpus, planned.encoder, cfg.features, resolve_device(cfg.device))


def run(cfg: Config, tell: Callable[[str], None], runs: int = 1, num_gpus: int = 1) -> dict[str, Any]:
    """Trains and tests one probe and writes its record; returns the record at once if it is already there.

    `tell` gets a line on where the features lie, then one an epoch. runs: how many share this machine and its GPUs.
    """
    planned = plan(cfg)
    if planned.record_path.exists():
        return load_record(planned.record_path)
    started_at, clock = datetime.now(UTC), time.perf_counter()
    software = provenance()  # of the code as it was loaded: a run takes long enough for a commit

    import torch

    from probe.probing.batches import TaggedWords
    from probe.probing.combine import bytes_needed
    from probe.probing.tagger import train_tagger
    from probe.scoring.metrics import HEADLINES, count, scores_of, slices

    device = training_device(cfg)
    store, features, where = read_features(planned, device, runs, num_gpus)
    tell(f"features: {bytes_needed(store, planned.selection) / 1e9:.2f} GB {PLACES[where]}")
    read_s = time.perf_counter() - clock
    if device == "cpu":
        torch.set_num_threads(1)  # many small steps: a second thread costs more than it gives
    else:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32

    splits = planned.corpus.splits
    labels = sorted({tag for tags in splits["train"].tags for tag in tags})
    label_ids = {label: i for i, label in enumerate(labels)}
    data = {name: TaggedWords(features.pop(name), split.tags, label_ids, device) for name, split in splits.items()}
    clock = time.perf_counter()
    headline = HEADLINES[cfg.data.task]
    tagger = train_tagger(cfg.probe, planned.selection, data["train"], data["dev"], labels, headline, cfg.seed, tell)
    train_s = time.perf_counter() - clock

    clock = time.perf_counter()
    known = {word for sentence in splits["train"].words for word in sentence}
    path = planned.record_path
    scores, counts, predictions = {}, {}, {}
    for name in ("dev", "test"):
        split = splits[name]
        predicted = tagger.best_dev_tags if name == "dev" else tagger.predict(data[name])
        counts[name] = count(split.tags, predicted, cfg.data.task)
        scores[name] = scores_of(counts[name])
        if cfg.data.task == "spans":
            scores[name]["slices"] = slices(split.words, split.tags, predicted, known)
        if split.documents is not None:
            counts[name]["documents"] = split.documents
        predictions[name] = write_predictions(path, name, split.words, split.tags, predicted)
    counts_sha256 = write_counts(path, counts)
    score_s = time.perf_counter() - clock

    trained_words = len(tagger.curve) * tagger.passes * splits["train"].num_words
    manifest = store.manifest()
    assert manifest is not None
    record = {
        "schema": SCHEMA,
        "key": planned.identity.key,
        "identity": planned.identity.as_dict(),
        "row": planned.selection.name,
        "config": science(cfg),
        "data": {
            "name": planned.corpus.name,
            "task": cfg.data.task,
            "splits": planned.corpus.counts(),
            **planned.corpus.about,
        },
        "encoder": {
            "name": planned.encoder.name,
            "source": planned.encoder.source,
            "fingerprint": planned.encoder.fingerprint,
            "lower_cases": planned.encoder.lower_cases,
            "num_layers": planned.encoder.num_layers,
            "hidden_size": planned.encoder.hidden_size,
        },
        "features": {
            "key": store.key,
            "identity": store.identity,
            "placement": where,
            "bytes_read": sum(
                store.bytes_of(shards, len(planned.selection.indices)) for shards in store.shards.values()
            ),
            "words_without_pieces": {k: v["words_without_pieces"] for k, v in manifest["splits"].items()},
        },
        "layers": {
            "indices": list(planned.selection.indices),
            "combine": planned.selection.combine,
            "width": planned.selection.width,
        },
        "scores": scores,
        "sha256": {"counts": counts_sha256, "predictions": predictions},
        "best_epoch": tagger.best_epoch,
        "curve": tagger.curve,
        "mix": tagger.learned_mix(),
        "parameters": sum(p.numel() for p in tagger.parameters()),
        "seconds": {"read": round(read_s, 3), "train": round(train_s, 3), "score": round(score_s, 3)},
        "words_per_second": round(trained_words / sum(point["train_s"] for point in tagger.curve)),
        "software": software,
        "hardware": hardware(device, torch.get_num_threads()),
        "started": started_at.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_record(path, record)
    return record


def read_features(planned: Plan, device: str, runs: int, num_gpus: int) -> tuple[FeatureStore, dict[str, Any], str]:
    """The store, each split's features for a selection, and where these lie; what is missing is extracted first."""
    from probe.features.extraction import ensure_features
    from probe.probing.combine import Streamed, bytes_needed, read_selection

    selection = planned.selection
    for attempt in range(1, ATTEMPTS_TO_READ + 1):
        store = ensure_features(planned.corpus, planned.encoder, planned.cfg.features, device)
        where = placement(planned.cfg.features.placement, bytes_needed(store, selection), device, runs, num_gpus)
        try:
            if where == "stream":
                return store, {name: Streamed(store, name, selection) for name in planned.corpus.splits}, where
            target = device if where == "device" else "cpu"
            return (
                store,
                {name: read_selection(store, name, selection, target) for name in planned.corpus.splits},
                where,
            )
        except DamagedShard as damaged:
            if attempt == ATTEMPTS_TO_READ:
                raise
            logging.getLogger("probe").warning("%s. Extracting it again.", damaged)
    raise AssertionError
