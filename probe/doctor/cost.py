"""Estimates the cost of runs: disk and time to extract missing features, and time to train.

Times are extrapolated from short measurements on this machine, with pieces and words of the text itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe.config import Config, UserError
from probe.data.warnings import WARNING
from probe.encoders.encoder import Encoder
from probe.encoders.pieces import notes_on_pieces
from probe.format import duration, first_few, pluralize
from probe.probes.schedule import Schedule, passes
from probe.runs.plan import Plan, plan
from probe.system.files import short, why_not_writable
from probe.system.machine import gpus, num_cores, resolve_device, side_by_side
from probe.system.speed import units_per_second

FEWEST_EPOCHS = 10  # the fewest epochs of converged runs in the committed result sets
MEASURED_SENTENCES = 2000


def cost_lines(configs: Sequence[Config]) -> list[str]:
    """Says how many runs there are, which stores they read, and how long it takes to fill these and to train.

    Raises UserError for a run that is not possible, and if there is no space for the features.
    """
    plans = list({planned.identity.key: planned for planned in map(plan, configs)}.values())
    todo = [planned for planned in plans if not planned.is_done]
    rows = dict.fromkeys(planned.selection.as_text() for planned in plans)
    lines = [f"{pluralize(len(plans), 'run')}, {len(todo)} not done yet", f"rows: {first_few(list(rows), glue='; ')}"]
    device = resolve_device(configs[0].device)
    if frozen := [planned for planned in todo if planned.kind.reads_features]:
        lines += [*_extraction(frozen, device), _training(frozen, device)]
    if tuned := [planned for planned in todo if planned.kind.is_trained and not planned.kind.reads_features]:
        lines.append(f"to fine-tune: {pluralize(len(tuned), 'run')}")
    return lines


def _extraction(frozen: Sequence[Plan], device: str) -> list[str]:
    """Describes the stores that these runs read, and the time to fill them. Raises UserError without the space."""
    lines, num_stores, num_bytes, seconds = [], 0, 0, 0.0
    for planned in {planned.store.key: planned for planned in frozen}.values():
        store, folder = planned.store, planned.cfg.features.cache_dir
        missing, shards = store.missing(), sum(map(len, store.shards.values()))
        lines.append(f"store {short(store.key)} in {folder}: {shards - len(missing)} of {shards} shards there")
        if missing:
            num_stores, num_bytes = num_stores + 1, num_bytes + store.bytes_of(missing)
            if reason := why_not_writable(Path(folder), num_bytes):
                raise UserError(f"features.cache_dir={folder}: {reason}.")
            store_s, notes = estimate_extraction(planned, device)
            seconds += store_s
            lines += [f"{WARNING}{note}" for note in notes]
    if num_stores:
        lines.append(f"to extract: {pluralize(num_stores, 'store')}, {num_bytes / 1e9:.2f} GB, {duration(seconds)}")
    return lines


def _training(frozen: Sequence[Plan], device: str) -> str:
    """Estimates the time of training probes on stored features."""
    per_word: dict[tuple[object, ...], float] = {}  # seconds, by what determines them
    epochs: list[int] = []
    runs: list[tuple[float, float]] = []  # seconds of each, at least and at most
    for planned in frozen:
        chosen, cfg, splits = planned.selection, planned.cfg.probe, planned.corpus.splits
        work = (chosen.width, len(chosen.indices), chosen.combine, repr(cfg))
        if work not in per_word:
            per_word[work] = training_s_per_word(planned, device)
        sentences = len(splits["train"].words)
        words = splits["train"].num_words * passes(sentences, cfg.batch_size)
        epoch_s = per_word[work] * (words + splits["dev"].num_words / 3)  # dev: forward pass only
        schedule = Schedule.of(cfg, sentences)
        fewest = min(max(FEWEST_EPOCHS, schedule.shortest), schedule.max_epochs)
        runs.append((epoch_s * fewest, epoch_s * schedule.max_epochs))
        epochs += [fewest, schedule.max_epochs]
    at_once = min(len(runs), side_by_side(frozen[0].cfg.jobs, len(gpus()) if device == "cuda" else 0))
    both = [max(sum(seconds) / at_once, *seconds) for seconds in zip(*runs, strict=True)]
    time = f"{' to '.join(dict.fromkeys(map(duration, both)))}, {at_once} at once"
    return f"to train: {time}; runs take {' to '.join(map(str, sorted({min(epochs), max(epochs)})))} epochs"


def estimate_extraction(planned: Plan, device: str) -> tuple[float, list[str]]:
    """Estimates the seconds of filling a run's store, by running the encoder for a moment.

    Also returns notes on words that the encoder does not know.
    """
    import torch

    from probe.encoders.model import load_model
    from probe.vectors.words import Text, batches, pieces_at_once, states_of

    encoder, store = planned.encoder, planned.store
    if not isinstance(encoder, Encoder):
        return 0.0, []  # vectors that are there are only copied
    torch.set_num_threads(num_cores())
    missing = store.missing()
    features = planned.cfg.features
    texts = {name: Text(store.corpus, name, encoder, features) for name in store.shards}
    model = load_model(encoder, device, features.precision, deepest=store.layers[-1], final_norm=features.final_norm)

    def num_pieces(text: Text, windows: list) -> int:
        return sum(text.pieces.count(window.first, window.last) + text.encoder.special.count for window in windows)

    text = texts[missing[0].split]
    some = batches(text, missing[0], pieces_at_once(features.batch_pieces, encoder, device), device)
    some = some[:: max(1, len(some) // 8)]

    def encode(windows: list) -> int:
        states, _ = states_of(windows, text, model, device)
        states.sum().item()  # waits for a GPU
        return num_pieces(text, windows)

    speed = units_per_second([some[len(some) // 2], *some], encode)
    pieces = sum(num_pieces(texts[shard.split], texts[shard.split].windows_of(shard)) for shard in missing)
    return pieces / speed, notes_on_pieces(text.pieces, encoder.tokenizer, encoder.name)


def training_s_per_word(planned: Plan, device: str) -> float:
    """Estimates the seconds per word of training a run's probe, by training one briefly on random vectors."""
    import torch

    from probe.probes.batches import Batch, TaggedWords, TrainingBatches
    from probe.probes.tagger import Tagger
    from probe.probes.training import classifier_labels

    torch.set_num_threads(1)
    tags = planned.corpus.splits["train"].tags[:MEASURED_SENTENCES]
    labels, label_ids = classifier_labels(tags)
    layers = [len(planned.selection.indices)] if planned.selection.combine == "mix" else []
    features = torch.randn(sum(map(len, tags)), *layers, planned.selection.width)
    data = TaggedWords(features, tags, label_ids, device)
    cfg = planned.cfg.probe
    tagger = Tagger(cfg, planned.selection, labels).to(device)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=cfg.learning_rate, fused=True)

    def update(batch: Batch) -> int:
        optimizer.zero_grad()
        tagger.loss(tagger(batch), batch).backward()
        optimizer.step()
        return int(batch.words.sum())

    return 1 / units_per_second(TrainingBatches(data, cfg.batch_size, 0, passes=2), update)
