"""One run, from settings to record: the recipe, read top to bottom."""

from __future__ import annotations

import functools
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probe.config import Config, DataConfig, EncoderConfig, FeaturesConfig, UserError
from probe.corpus import Corpus, load_corpus
from probe.encoder import Encoder, open_encoder
from probe.features import DamagedShard, FeatureStore, canonical
from probe.layers import Selection, select
from probe.machine import placement
from probe.records import (
    SCHEMA,
    RunIdentity,
    hardware,
    load_record,
    provenance,
    record_path,
    write_counts,
    write_predictions,
    write_record,
)

PLACES = {"device": "in the GPU's memory", "memory": "in memory", "stream": "streamed from the store"}
ROOM_FOR_A_RUN = 2**20  # bytes; a record, its counts and predictions take about that
ATTEMPTS_TO_READ = 3  # a store damaged again right after it was repaired has a problem no retry solves


@dataclass(frozen=True)
class Plan:
    """A run that is known but not done: everything that its key depends on, nothing that takes long."""

    cfg: Config
    corpus: Corpus
    encoder: Encoder
    selection: Selection
    store: FeatureStore
    identity: RunIdentity

    @property
    def record_path(self) -> Path:
        return record_path(Path(self.cfg.results_dir), self.selection.name, self.identity)

    @property
    def label(self) -> str:
        return f"{self.selection.name} seed {self.identity.seed}"


def plan(cfg: Config) -> Plan:
    """Settles what a run is. Raises UserError for data, encoder or layers that cannot be."""
    if cfg.encoder.num_layers is not None:
        select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before anything is fetched
    inputs = canonical([asdict(cfg.data), asdict(cfg.encoder), asdict(cfg.features)])
    corpus, encoder, store, fingerprint = _inputs(inputs)
    selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    layers = {"indices": list(selection.indices), "combine": selection.combine}
    identity = RunIdentity(fingerprint, cfg.data.task, store.key, layers, asdict(cfg.probe), cfg.seed)
    return Plan(cfg, corpus, encoder, selection, store, identity)


@functools.lru_cache(maxsize=2)
def _inputs(inputs: str) -> tuple[Corpus, Encoder, FeatureStore, str]:
    """Text, encoder and store, kept between the runs of a sweep that share them."""
    data, encoder_cfg, features = json.loads(inputs)
    corpus = load_corpus(DataConfig(**data))
    encoder = open_encoder(EncoderConfig(**encoder_cfg), Path(features["cache_dir"]) / "hashes.json")
    store = FeatureStore.of(corpus, encoder, FeaturesConfig(**features))
    return corpus, encoder, store, corpus.fingerprint()


def resolve_device(device: str) -> str:
    """cpu or cuda; `auto` takes a GPU where there is one. Raises UserError if the one asked for is not there."""
    # Deterministic products on a GPU need it, and it is read when the GPU is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch sees no GPU here. Use device=cpu, or auto.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def training_device(cfg: Config) -> str:
    """The device a probe trains on. Raises UserError for what it would not do as it is told to."""
    device = resolve_device(cfg.device)
    if device == "cuda" and cfg.probe.num_layers and cfg.probe.precision == "bfloat16":
        raise UserError(
            "probe.precision=bfloat16 is for CPUs: PyTorch's autocast gives a GPU's LSTM float16. "
            "Type probe.precision=float32, or device=cpu."
        )
    return device


def prepare_results(results_dir: Path) -> None:
    """Makes the folders of results and tries them, before anything is computed that could be lost."""
    for folder in (results_dir / "records", results_dir / "logs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as stream:
                stream.write(bytes(ROOM_FOR_A_RUN))
        except OSError as error:
            raise UserError(
                f"results_dir={results_dir}: {folder} cannot be written ({error.strerror}). What is finished is kept; "
                "once it can, the same command continues."
            ) from None


def extract(cfg: Config) -> FeatureStore:
    """The features of a config's text, whole on disk."""
    from probe.extraction import ensure_features

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

    from probe.layers import bytes_needed
    from probe.metrics import HEADLINES, count, scores_of, slices
    from probe.tagger import TaggedWords, train_tagger

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

    epochs = len(tagger.curve)
    trained_words = epochs * splits["train"].num_words
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


def science(cfg: Config) -> dict[str, Any]:
    """The config without what only says where things lie and how many run at once."""
    config = asdict(cfg)
    for name in ("results_dir", "jobs"):
        del config[name]
    for name in ("cache_dir", "placement"):
        del config["features"][name]
    return config


def read_features(planned: Plan, device: str, runs: int, num_gpus: int) -> tuple[FeatureStore, dict[str, Any], str]:
    """The store, each split's features for a selection, and where these lie; what is missing is extracted first."""
    from probe.extraction import ensure_features
    from probe.layers import Streamed, bytes_needed, read_selection

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
