"""Fits a probe to the features of a planned run, and predicts dev and test with it.

A probe of another kind enters here: what comes after, scores and record, is the same for all.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from probe.data.derived import ONLINE_CODE_SHARES, Sample
from probe.data.tags import Tags
from probe.features.extraction import ensure_features
from probe.features.store import DamagedShard, FeatureStore
from probe.features.words import Text
from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed, bytes_needed, read_selection
from probe.probes.finetune import TaggedText, fine_tune
from probe.probes.majority_tag import MajorityTag
from probe.probes.normalization import Normalization, normalization_of, scales_in
from probe.probes.scales import ADDED, REMEDY, adds_unlike, unlike_layers
from probe.probes.schedule import Outcome
from probe.probes.tagger import Tagger, train_tagger
from probe.runs.outputs import unfinished_path
from probe.runs.plan import Plan, resolve_device
from probe.runs.provenance import bfloat16_way, hardware, versions
from probe.runs.records import Bits, CodeBlock, Epoch, Hardware, Mix, OnlineCode, SplitBits
from probe.scoring.metrics import headline
from probe.system.bfloat16 import EMULATED
from probe.system.files import canonical, plain
from probe.system.machine import placement, room

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
    bits: Bits | None = None
    bits_epoch: int | None = None  # the epoch of least dev loss, at which bits and unseen were read
    unseen: OnlineCode | None = None
    labels: list[str] = field(default_factory=list)  # in the order of the classifier's outputs
    deviations: list[float] | None = None  # of layers that are added up as they are, on train
    weights: dict[str, torch.Tensor] | None = None  # of the best epoch; None where there is nothing to keep


def fit(planned: Plan, tell: Callable[[str], None], runs: int = 1, num_gpus: int = 1) -> Fit:
    """Trains the probe of a planned run, after extracting what is missing of its features; of a word memory, counts.

    `tell` gets a line on where the features lie, then one an epoch. runs: how many share this machine and its GPUs.
    """
    cfg, splits, task, sample = planned.cfg, planned.corpus.splits, planned.corpus.task, planned.sample
    if planned.selection.is_majority_tag:
        return fit_majority_tag(planned)
    if cfg.probe.train_encoder:
        return fit_finetuned(planned, tell, runs, num_gpus)
    clock = time.perf_counter()
    device = resolve_device(cfg.device)
    features, where, normalization = read_features(planned, device, runs, num_gpus)
    tell(f"features: {bytes_needed(planned.store, planned.selection) / 1e9:.2f} GB {PLACES[where]}")
    deviations = _deviations(planned)
    if deviations and adds_unlike(planned.selection.combine, planned.selection.normalize, deviations):
        told = unlike_layers(planned.selection.name, planned.selection.combine, deviations)
        tell(f"WARNING: {told}: {REMEDY}")
    read_s = time.perf_counter() - clock
    _settle(device)
    # With a part of train the label set is still that of all of it, so that the task is the same.
    train = splits["train"] if sample is None else sample.train
    labels, label_ids = _labels(train.tags)
    chosen = None if sample is None else sample.sentences(sample.share)
    data = {"train": TaggedWords(features["train"], train.tags, label_ids, device, chosen)}
    data |= {name: TaggedWords(features[name], splits[name].tags, label_ids, device) for name in ("dev", "test")}
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
    test = tagger.predict(data["test"])
    with tagger.at_least_loss():
        bits = _in_both({name: _bits(tagger, data[name], train.tags) for name in ("dev", "test")})
        unseen = None if sample is None else _unseen(tagger, features["train"], sample, label_ids, device)
    return Fit(
        predictions={"dev": tagger.best_dev_tags, "test": test},
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
        bits=bits,
        bits_epoch=tagger.least_loss_epoch if bits or unseen else None,
        unseen=unseen,
        labels=labels,
        deviations=deviations,
        weights=tagger.best_weights | (normalization.tensors if normalization else {}),
    )


def _deviations(planned: Plan) -> list[float] | None:
    """The deviation per feature of each layer that is added up as it is; None of other rows."""
    selection = planned.selection
    if selection.normalize is not None or selection.combine not in ADDED or len(selection.indices) < 2:
        return None
    found = scales_in(planned.store.serving(), selection.indices).deviations
    return [float(f"{deviation:.4g}") for deviation in found]


def _labels(train: Tags) -> tuple[list[str], dict[str, int]]:
    """What a classifier's outputs stand for, and the place of each."""
    labels = sorted({tag for tags in train for tag in tags})
    return labels, {label: i for i, label in enumerate(labels)}


def _settle(device: str) -> None:
    """Makes what is trained on the device from here on the same every time."""
    if device == "cpu":
        torch.set_num_threads(1)  # many small steps: a second thread costs more than it gives
    else:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32


def _in_both(by_split: dict[str, SplitBits | None]) -> Bits | None:
    """The bits of dev and test; None where one of them has none."""
    given = {name: bits for name, bits in by_split.items() if bits is not None}
    return Bits(**given) if len(given) == len(by_split) else None


def _bits(tagger: Tagger, data: TaggedWords, train: Tags) -> SplitBits | None:
    """The cross-entropy of a split's tags under the probe, and under their frequency in train, in bits a word.

    None for a split in which no word has a tag that train has.
    """
    known = data.labels >= 0
    if not known.any():
        return None
    nats = float(tagger.losses(data)[known].mean())
    return SplitBits(nats / math.log(2), _bits_by_frequency(data.labels[known], tagger.labels, train))


def _bits_by_frequency(labels: torch.Tensor, names: list[str], train: Tags) -> float:
    """The cross-entropy of labels under their frequency in train, in bits a word."""
    frequent = Counter(tag for tags in train for tag in tags)
    shares = torch.tensor([frequent[name] / frequent.total() for name in names], dtype=torch.float64)
    return float(-shares[labels].log2().mean())


def _unseen(
    tagger: Tagger, features: torch.Tensor | Streamed, sample: Sample, label_ids: dict[str, int], device: str
) -> OnlineCode:
    """The probe's code lengths of the training text beyond its sample, up to each of PORTIONS."""
    own = set(sample.sentences(sample.share))
    rest = [i for i in range(len(sample.train.tags)) if i not in own]
    if not rest:
        return OnlineCode(len(label_ids), [])
    data = TaggedWords(features, sample.train.tags, label_ids, device, rest)
    losses = tagger.losses(data)
    in_sentence = {i: losses[a : a + n].sum() for i, a, n in zip(rest, data.starts, data.lengths, strict=True)}
    portions = []
    for share in (share for share in ONLINE_CODE_SHARES if share > sample.share):
        added = [i for i in sample.sentences(share) if i not in own]
        words = sum(len(sample.train.tags[i]) for i in added)
        portions.append(CodeBlock(share, words, float(sum(in_sentence[i] for i in added)) / math.log(2)))
    return OnlineCode(len(label_ids), portions)


def fit_finetuned(planned: Plan, tell: Callable[[str], None], runs: int, num_gpus: int) -> Fit:
    """Fine-tunes the encoder of a planned run with a linear layer; no features are read or written.

    Raises UserError where free memory does not suffice.
    """
    cfg, train = planned.cfg, planned.corpus.splits["train"].tags
    clock = time.perf_counter()
    device = resolve_device(cfg.device)
    _settle(device)
    data, labels = texts_of(planned)
    here = hardware(device, torch.get_num_threads(), bfloat16_way(cfg, device))
    if here.bfloat16 == "emulated":
        tell(f"probe.precision=bfloat16: {EMULATED[device]}")
    read_s = time.perf_counter() - clock
    tuned = fine_tune(
        cfg.probe,
        cfg.features.subword,
        planned.encoder,
        data["train"],
        data["dev"],
        labels,
        lambda gold, predicted: headline(planned.corpus.task, gold, predicted),
        cfg.seed,
        device,
        unfinished_path(planned.record_path),
        canonical([versions(), plain(here)]),
        room(device, runs, num_gpus),
        tell,
    )
    test, test_loss = tuned.predict(data["test"])
    best = tuned.curve[tuned.best_epoch - 1]
    if tuned.least_loss_epoch != tuned.best_epoch:
        tuned.load_state_dict(tuned.least_loss_weights)
        _, test_loss = tuned.predict(data["test"])
        tuned.load_state_dict(tuned.best_weights)
    nats = {"dev": tuned.curve[tuned.least_loss_epoch - 1]["dev_loss"], "test": test_loss}
    known = {name: data[name].labels[data[name].labels >= 0] for name in nats}
    bits = {
        name: SplitBits(nats[name] / math.log(2), _bits_by_frequency(of, labels, train)) if len(of) else None
        for name, of in known.items()
    }
    both = _in_both(bits)
    return Fit(
        predictions={"dev": tuned.best_dev_tags, "test": test},
        curve=[Epoch(**point) for point in tuned.curve],
        passes=1,
        outcome="converged" if best["dev"] > 0 else "silent",  # as many epochs as were asked for, no more or less
        best_epoch=tuned.best_epoch,
        mix=None,
        parameters=sum(parameter.numel() for parameter in tuned.parameters()),
        placement="none",
        hardware=here,
        read_s=read_s,
        train_s=sum(point["train_s"] for point in tuned.curve),  # with the epochs before an interruption
        bits=both,
        bits_epoch=tuned.least_loss_epoch if both else None,
        labels=labels,
    )


def texts_of(planned: Plan) -> tuple[dict[str, TaggedText], list[str]]:
    """Each split of a planned run as windows with labels, and what the labels stand for."""
    encoder, splits = planned.encoder, planned.corpus.splits
    labels, label_ids = _labels(splits["train"].tags)
    data = {
        name: TaggedText(
            Text(planned.text, name, encoder, planned.cfg.features), split.tags, label_ids, encoder.special.count
        )
        for name, split in splits.items()
    }
    return data, labels


def fit_majority_tag(planned: Plan) -> Fit:
    """The word memory of a planned run: no features, no training."""
    clock = time.perf_counter()
    splits, task = planned.corpus.splits, planned.corpus.task
    memory = MajorityTag(splits["train"].words, splits["train"].tags, task)
    return Fit(
        predictions={name: memory.predict(splits[name].words) for name in ("dev", "test")},
        curve=[],
        passes=0,
        outcome="converged",
        best_epoch=0,
        mix=None,
        parameters=len(memory),
        placement="none",
        hardware=hardware("cpu", 1),
        read_s=0.0,
        train_s=time.perf_counter() - clock,
    )


def read_features(
    planned: Plan, device: str, runs: int, num_gpus: int
) -> tuple[dict[str, torch.Tensor | Streamed], str, Normalization | None]:
    """Each split's features for the run's layers, where they lie, and how they are normalized; what is missing is
    extracted first."""
    selection = planned.selection
    for attempt in range(1, ATTEMPTS_TO_READ + 1):
        store: FeatureStore = ensure_features(planned.text, planned.encoder, planned.cfg.features, device)
        where = placement(planned.cfg.features.placement, bytes_needed(store, selection), device, runs, num_gpus)
        try:
            normalization = normalization_of(store, selection)
            features: dict[str, torch.Tensor | Streamed] = {
                name: Streamed(store, name, selection, normalization=normalization)
                if where == "stream"
                else read_selection(store, name, selection, device if where == "device" else "cpu", normalization)
                for name in planned.corpus.splits
            }
            return features, where, normalization
        except DamagedShard as damaged:
            if attempt == ATTEMPTS_TO_READ:
                raise
            print(f"{planned.label}: {damaged}. Extracting it again.", flush=True)
    raise AssertionError
