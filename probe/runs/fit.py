"""Fits a probe to the features of a planned run, and predicts dev and test with it.

A probe of another kind enters here: what comes after, scores and record, is the same for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from probe.data.tags import Tags
from probe.features.extraction import ensure_features
from probe.features.store import DamagedShard, FeatureStore
from probe.probing.batches import TaggedWords
from probe.probing.combine import Streamed, bytes_needed, read_selection
from probe.probing.schedule import Outcome
from probe.probing.tagger import train_tagger
from probe.runs.plan import Plan, training_device
from probe.runs.provenance import bfloat16_way, hardware
from probe.runs.records import Epoch, Hardware, Mix
from probe.scoring.metrics import headline
from probe.system.machine import placement

PLACES = {"device": "in the GPU's memory", "memory": "in memory", "stream": "streamed from the store"}
ATTEMPTS_TO_READ = 3  # a store damaged again right after it was repaired has a problem no retry solves


@dataclass(frozen=True)
class Fit:
    """What a probe gives: its predictions for dev and test, and how it came to them."""

    predictions: dict[str, Tags]
    curve: list[Epoch]
    passes: int  # how often an epoch shows every sentence
    outcome: Outcome
    best_epoch: int
    mix: Mix | None
    parameters: int
    placement: str
    hardware: Hardware
    read_s: float
    train_s: float
    labels: list[str] = field(default_factory=list)  # in the order of the classifier's outputs
    weights: dict[str, torch.Tensor] | None = None  # of the best epoch; None where there is nothing to keep


def fit(planned: Plan, tell: Callable[[str], None], runs: int = 1, num_gpus: int = 1) -> Fit:
    """Trains the probe of a planned run, after extracting what is missing of its features.

    `tell` gets a line on where the features lie, then one an epoch. runs: how many share this machine and its GPUs.
    """
    cfg, splits, task = planned.cfg, planned.corpus.splits, planned.corpus.task
    clock = time.perf_counter()
    device = training_device(cfg)
    features, where = read_features(planned, device, runs, num_gpus)
    tell(f"features: {bytes_needed(planned.store, planned.selection) / 1e9:.2f} GB {PLACES[where]}")
    read_s = time.perf_counter() - clock
    if device == "cpu":
        torch.set_num_threads(1)  # many small steps: a second thread costs more than it gives
    else:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32

    labels = sorted({tag for tags in splits["train"].tags for tag in tags})
    label_ids = {label: i for i, label in enumerate(labels)}
    data = {name: TaggedWords(features.pop(name), split.tags, label_ids, device) for name, split in splits.items()}
    clock = time.perf_counter()
    tagger = train_tagger(
        cfg.probe,
        planned.selection,
        data["train"],
        data["dev"],
        labels,
        lambda gold, predicted: headline(task, gold, predicted),
        cfg.seed,
        tell,
    )
    train_s = time.perf_counter() - clock
    learned = tagger.learned_mix()
    return Fit(
        predictions={"dev": tagger.best_dev_tags, "test": tagger.predict(data["test"])},
        curve=[Epoch(**point) for point in tagger.curve],
        passes=tagger.passes,
        outcome=tagger.schedule.outcome or "converged",
        best_epoch=tagger.best_epoch,
        mix=None if learned is None else Mix(**learned),
        parameters=sum(parameter.numel() for parameter in tagger.parameters()),
        placement=where,
        hardware=hardware(device, torch.get_num_threads(), bfloat16_way(cfg, device)),
        read_s=read_s,
        train_s=train_s,
        labels=labels,
        weights=tagger.best_weights,
    )


def read_features(
    planned: Plan, device: str, runs: int, num_gpus: int
) -> tuple[dict[str, torch.Tensor | Streamed], str]:
    """Each split's features for the run's layers, and where they lie; what is missing is extracted first."""
    selection = planned.selection
    for attempt in range(1, ATTEMPTS_TO_READ + 1):
        store: FeatureStore = ensure_features(planned.corpus, planned.encoder, planned.cfg.features, device)
        where = placement(planned.cfg.features.placement, bytes_needed(store, selection), device, runs, num_gpus)
        try:
            if where == "stream":
                return {name: Streamed(store, name, selection) for name in planned.corpus.splits}, where
            target = device if where == "device" else "cpu"
            return {name: read_selection(store, name, selection, target) for name in planned.corpus.splits}, where
        except DamagedShard as damaged:
            if attempt == ATTEMPTS_TO_READ:
                raise
            print(f"{planned.label}: {damaged}. Extracting it again.", flush=True)
    raise AssertionError
