"""Estimates the cost of a sweep: disk and time to extract missing features, and time to train.

Times are extrapolated from short measurements on this machine, with pieces and words of the text itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.config import Config, UserError
from probe.encoders.checkpoint import Encoder
from probe.features.store import FeatureStore, Shard
from probe.probes.schedule import Schedule, passes
from probe.runs.outputs import is_truncated
from probe.runs.plan import Plan, plan
from probe.system.files import why_not_writable
from probe.system.machine import gpus, num_cores, resolve_device, side_by_side
from probe.system.speed import units_per_second

if TYPE_CHECKING:
    import torch

    from probe.features.words import Text

FEWEST_EPOCHS = 10  # the fewest epochs of converged runs in the committed result sets
MEASURED_SENTENCES = 2000


def cost_of_sweep(configs: Sequence[Config], measured: Mapping[str, float]) -> dict[str, Any]:
    """Estimates a sweep's number of runs, the stores to fill, and the seconds (s) of training.

    measured: the seconds of filling a store, by its key, where they are known already. Raises UserError for a run that
    is not possible, and if there is no space for the features.
    """
    plans = list({planned.identity.key: planned for planned in map(plan, configs)}.values())
    todo = [planned for planned in plans if not planned.is_done or is_truncated(planned.record_path)]
    facts: dict[str, Any] = {"runs": len(plans), "to_make": len(todo)}
    trained = [planned for planned in todo if planned.kind.reads_features]
    tuned = [planned for planned in todo if planned.kind.is_trained and not planned.kind.reads_features]
    if not trained + tuned:
        return facts
    first = (trained + tuned)[0].cfg
    device = resolve_device(first.device)
    at_once = side_by_side(first.jobs, len(gpus()) if device == "cuda" else 0)
    if trained:
        facts |= _of_frozen(trained, device, at_once, measured)
    if tuned:
        by_row = {planned.identity.cell: planned for planned in tuned}  # seeds cost the same
        at_once = min(at_once, len(tuned))
        num_gpus = len(gpus()) if device == "cuda" else 0
        seconds = {
            cell: planned.kind.training_s(planned.fit_inputs(at_once, num_gpus)) for cell, planned in by_row.items()
        }
        total = sum(seconds[planned.identity.cell] for planned in tuned)
        facts["fine_tune"] = {"runs": len(tuned), "s": total / at_once}
    return facts


def _of_frozen(trained: Sequence[Plan], device: str, at_once: int, measured: Mapping[str, float]) -> dict[str, Any]:
    """Estimates, for runs on stored features, what must be extracted and how long the probes train."""
    facts: dict[str, Any] = {}
    by_store = {planned.store.key: planned for planned in trained}.values()
    stores = [(one, store) for one in by_store if (store := one.store).missing()]
    if stores:
        num_bytes = sum(store.bytes_of(store.missing()) for _, store in stores)
        folder = Path(trained[0].cfg.features.cache_dir)
        if reason := why_not_writable(folder, num_bytes):
            raise UserError(f"features.cache_dir={folder}: {reason}.")
        from probe.features.words import cut_texts

        seconds = dict(measured)
        for one, store in stores:
            if store.key not in seconds:
                texts = cut_texts(one.text, one.encoder, one.cfg.features)
                seconds[store.key] = extraction_s(one.cfg, texts, one.encoder, store, device)
        total = sum(seconds[store.key] for _, store in stores)
        facts["extract"] = {"stores": len(stores), "bytes": num_bytes, "s": total}
    by_work = {_work(planned): planned for planned in trained}
    speeds = {work: training_s_per_word(planned, device) for work, planned in by_work.items()}
    least = most = 0.0
    epochs = {planned.identity.key: _epochs(planned) for planned in trained}
    for planned in trained:
        splits, cfg = planned.corpus.splits, planned.cfg.probe
        words = splits["train"].num_words * passes(len(splits["train"].words), cfg.batch_size)
        epoch_s = speeds[_work(planned)] * (words + splits["dev"].num_words / 3)  # dev: forward pass only
        least += epoch_s * epochs[planned.identity.key][0]
        most += epoch_s * epochs[planned.identity.key][1]
    fewest, at_most = min(first for first, _ in epochs.values()), max(last for _, last in epochs.values())
    at_once = min(at_once, len(trained))
    seconds_of_training = [least / at_once, most / at_once]
    facts["train"] = {"s": seconds_of_training, "at_once": at_once, "epochs": [fewest, at_most]}
    return facts


def _work(planned: Plan) -> tuple[int, int, str, str]:
    """Returns what determines a word's cost in training: the width, the combination and the probe."""
    chosen = planned.selection
    return chosen.width, len(chosen.indices), chosen.combine, repr(planned.cfg.probe)


def _epochs(planned: Plan) -> tuple[int, int]:
    """Returns the fewest and the most epochs that a run may take."""
    schedule = Schedule.of(planned.cfg.probe, len(planned.corpus.splits["train"].words))
    return min(max(FEWEST_EPOCHS, schedule.shortest), schedule.max_epochs), schedule.max_epochs


def extraction_s(
    cfg: Config,
    texts: Mapping[str, Text],
    encoder: Encoder,
    store: FeatureStore,
    device: str,
    keep: Callable[[torch.Tensor], None] | None = None,
) -> float:
    """Estimates the seconds of extracting what is missing, by running the encoder for a moment on some of it.

    texts: of all splits. keep: gets the resulting vectors, (stored layers, W, H).
    """
    import torch

    from probe.encoders.encoder import load_model
    from probe.features.words import batches, pieces_at_once, states_of

    torch.set_num_threads(num_cores())
    missing: list[Shard] = store.missing()
    features = replace(cfg.features, layers=list(store.layers))
    model = load_model(encoder, device, features.precision, deepest=store.layers[-1])

    def num_pieces(text: Text, windows: list) -> int:
        return sum(text.pieces.count(window.first, window.last) + encoder.special.count for window in windows)

    text = texts[missing[0].split]
    at_once = pieces_at_once(features.batch_pieces, encoder, device)
    some = batches(text, missing[0], encoder, at_once, device)
    some = some[:: max(1, len(some) // 8)]

    def encode(windows: list) -> int:
        states, _ = states_of(windows, text.pieces, model, encoder, features, device)
        states.sum().item()  # waits for a GPU
        if keep is not None:
            keep(states.cpu())
        return num_pieces(text, windows)

    speed = units_per_second([some[len(some) // 2], *some], encode)
    return sum(num_pieces(texts[shard.split], texts[shard.split].windows_of(shard)) for shard in missing) / speed


def training_s_per_word(planned: Plan, device: str) -> float:
    """Estimates the seconds per word of training a run's probe, by training one briefly on random vectors."""
    import torch

    from probe.probes.batches import Batch, TaggedWords, TrainingBatches
    from probe.probes.tagger import Tagger
    from probe.probes.training import labels_of

    torch.set_num_threads(1)
    tags = planned.corpus.splits["train"].tags[:MEASURED_SENTENCES]
    labels, label_ids = labels_of(tags)
    layers = [len(planned.selection.indices)] if planned.selection.combine == "mix" else []
    features = torch.randn(sum(map(len, tags)), *layers, planned.selection.width)
    data = TaggedWords(features, tags, label_ids, device)
    cfg = planned.cfg.probe
    tagger = Tagger(cfg, planned.selection, labels, data, data, lambda gold, predicted: 0.0).to(device)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=cfg.learning_rate, fused=True)

    def update(batch: Batch) -> int:
        optimizer.zero_grad()
        tagger.training_step(batch).backward()
        optimizer.step()
        return int(batch.words.sum())

    return 1 / units_per_second(TrainingBatches(data, cfg.batch_size, 0, passes=2), update)
