"""Fits a network to the stored features of a frozen encoder, and predicts dev and test with it.

`network_of` chooses the network. Everything else is the same for all kinds of probes that read features.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed, bytes_needed, read_selection
from probe.probes.fitting import Epoch, Fit, FitInputs
from probe.probes.kinds import bfloat16_kernels
from probe.probes.normalization import Normalization, deviations_in, normalization_of
from probe.probes.selection import ADDED, REMEDY, unlike_layers
from probe.probes.tagger import train_tagger
from probe.probes.training import classifier_labels, make_deterministic
from probe.system.machine import placement, resolve_device
from probe.system.provenance import hardware
from probe.vectors.sources import complete_store
from probe.vectors.store import read_again_if_damaged

PLACES = {"device": "in the GPU's memory", "memory": "in memory", "stream": "streamed from the store"}


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Trains the probe, after extracting missing features."""
    cfg, splits, task = inputs.cfg, inputs.corpus.splits, inputs.corpus.task
    clock = time.perf_counter()
    device = resolve_device(cfg.device)
    features, where, normalization = read_again_if_damaged(
        lambda: read_features(inputs, device, log), lambda damage: print(f"{inputs.label}: {damage}", flush=True)
    )
    deviations = _deviations(inputs)
    if deviations and (message := unlike_layers(inputs.selection.name, inputs.selection.combine, deviations)):
        log(f"WARNING: {message}: {REMEDY}")
    read_s = time.perf_counter() - clock
    make_deterministic(device)
    labels, label_ids = classifier_labels(splits["train"].tags)
    data = {name: TaggedWords(features[name], split.tags, label_ids, device) for name, split in splits.items()}
    clock = time.perf_counter()
    training = train_tagger(cfg.probe, inputs.selection, data["train"], data["dev"], labels, task, cfg.seed, log)
    train_s = time.perf_counter() - clock
    tagger, progress = training.tagger, training.progress
    test, _ = tagger.predict(data["test"])
    return Fit(
        predictions={"dev": progress.best_dev_tags, "test": test},
        curve=[Epoch(**point) for point in progress.curve],
        outcome=training.schedule.outcome or "converged",
        best_epoch=progress.best_epoch,
        mix=tagger.learned_mix(),
        parameters=sum(parameter.numel() for parameter in tagger.parameters()),
        placement=where,
        hardware=hardware(device, torch.get_num_threads(), bfloat16_kernels(cfg, device)),
        read_s=read_s,
        train_s=train_s,
        labels=labels,
        deviations=deviations,
        weights=progress.best_weights | (normalization.tensors if normalization else {}),
    )


def _deviations(inputs: FitInputs) -> list[float] | None:
    """Returns the deviation per feature of each layer that is added without normalization; None for other rows."""
    selection = inputs.selection
    if selection.normalize is not None or selection.combine not in ADDED or len(selection.indices) < 2:
        return None
    return [float(f"{deviation:.4g}") for deviation in deviations_in(inputs.store, selection.indices)]


def read_features(
    inputs: FitInputs, device: str, log: Callable[[str], None]
) -> tuple[dict[str, torch.Tensor | Streamed], str, Normalization | None]:
    """Returns each split's features for the run's layers, where they are, and how they are normalized."""
    selection = inputs.selection
    store = complete_store(inputs.store, device)
    needed = bytes_needed(store, selection)
    where = placement(inputs.cfg.features.placement, needed, device, inputs.runs, inputs.num_gpus)
    log(f"features: {needed / 1e9:.2f} GB {PLACES[where]}")
    normalization = normalization_of(store, selection)
    features: dict[str, torch.Tensor | Streamed] = {
        name: Streamed(store, name, selection, normalization=normalization)
        if where == "stream"
        else read_selection(store, name, selection, device if where == "device" else "cpu", normalization)
        for name in inputs.corpus.splits
    }
    return features, where, normalization
