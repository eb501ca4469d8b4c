"""Fills a feature store, shard by shard: windows go through the frozen encoder, giving one vector per word and layer.

A shard is the unit of batching (its windows are sorted by length, so a batch depends only on the shard), of writing,
of resuming, and of sharing work between processes. While one shard is computed, other threads hash and write earlier
ones. A GPU needs larger batches, so a few neighbouring shards are computed together. It is always the same group, and
the whole group if one shard is missing, so that batches, and therefore bits, never change.

Only the writer threads wait for the GPU's results: batches are copied from pinned memory, shards into pinned memory,
and the shards in flight bound the work enqueued ahead. See `words.states_of`, too.

B windows in a batch, P pieces, W words, H hidden size.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder, refuse_changed
from probe.encoders.model import load_model, notes_on
from probe.encoders.pieces import notes_on_pieces
from probe.format import pluralize
from probe.system.bfloat16 import SLOW, kernels_for
from probe.system.locks import FileLock
from probe.system.machine import num_cores
from probe.system.progress import progress_bar
from probe.vectors.sources import text_encoder
from probe.vectors.store import FeatureStore, Shard, stored_layers
from probe.vectors.words import Text, batches, pieces_at_once, states_of

# Writer threads. At most this many shards are unwritten when the next computation starts, which bounds memory. On a
# CPU, the cores are for the encoder. A GPU computes faster than a disk writes: on an H200, 80,000 words of BERT-base
# took 2.4 s with four threads and 1.6 s with eight; 1.0 s without writing.
WRITERS = {"cpu": 1, "cuda": 8}
# Shards computed together. With four of them and a GPU's BATCH_COST, CoNLL-2003 takes half as many batches and a
# quarter less work (pieces, padding and starts of batches). More shards take more memory.
TOGETHER = {"cpu": 1, "cuda": 4}


def report_empty_words(corpus: Corpus, texts: dict[str, Text]) -> None:
    """Reports how many words have no piece of their own, and where the first is."""
    for name, text in texts.items():
        if len(text.pieces.empty):
            print(
                f"{name}: {len(text.pieces.empty)} words have no piece in this tokenizer; they get the unknown piece. "
                f"The first: {corpus.splits[name].place(text.pieces.empty[0])}",
                file=sys.stderr,
            )


def load_reported(encoder: Encoder, cfg: FeaturesConfig, device: str, deepest: int | None = None) -> torch.nn.Module:
    """Loads an encoder to read text with, and reports what a user must know of it, and whether it will be slow here.

    deepest: see `load_model`. Raises UserError, also if the encoder's files have changed since it was opened.
    """
    model = load_model(encoder, device, cfg.precision, deepest=deepest, final_norm=cfg.final_norm)
    refuse_changed(encoder, Path(cfg.cache_dir))
    if cfg.precision == "bfloat16" and kernels_for(device, lstm=False) == "pytorch":
        print(f"features.precision: {SLOW[device]}", file=sys.stderr)
    for note in notes_on(encoder, model, cfg.subword):
        print(note, file=sys.stderr)
    return model


def fill(
    store: FeatureStore, missing: list[Shard], device: str, model: torch.nn.Module | None = None
) -> dict[str, int]:
    """Extracts the missing shards that no other process computes. Returns how many words of each split have no piece.

    missing: the shards to compute. It is empty if only the manifest was damaged.
    """
    corpus, encoder, cfg = store.corpus, text_encoder(store.source), store.cfg
    texts = {name: Text(corpus, name, encoder, cfg) for name in corpus.splits}
    report_empty_words(corpus, texts)
    without_pieces = {name: len(text.pieces.empty) for name, text in texts.items()}
    if not missing:
        return without_pieces
    torch.set_num_threads(num_cores())
    if model is None:
        model = load_reported(encoder, cfg, device, deepest=store.layers[-1])
    for note in notes_on_pieces(next(iter(texts.values())).pieces, encoder.tokenizer, encoder.name):
        print(note, file=sys.stderr)
    batch_pieces = pieces_at_once(cfg.batch_pieces, encoder, device)
    # In random order: where locks do nothing, processes that share the work would else compute the same shards.
    together = TOGETHER[device]
    wanted = dict.fromkeys((shard.split, shard.number // together * together) for shard in missing)
    groups = [store.shards[split][first : first + together] for split, first in wanted]
    waiting = deque(random.SystemRandom().sample(groups, len(groups)))
    writes: deque[Future[None]] = deque()
    total = sum(group[-1].last - group[0].first for group in groups)
    what = f"extracting {pluralize(len(missing), 'shard')}, {store.bytes_of(missing) / 1e9:.2f} GB"
    bar = progress_bar(total, what)
    with ThreadPoolExecutor(max_workers=WRITERS[device]) as writer, bar:
        while waiting:
            group = waiting.popleft()
            paths = {shard: store.directory / f".{store.path(shard).name}.lock" for shard in group}
            locks = {shard: FileLock(path, exclusive=True) for shard, path in paths.items()}
            if any(lock.busy for lock in locks.values()):
                _release(locks.values())
                waiting.append(group)
                time.sleep(0.2 / len(waiting))  # other processes may compute all remaining groups
                continue
            to_write = [shard for shard in group if not store.path(shard).exists()]
            _release(locks.pop(shard) for shard in group if shard not in to_write)
            whole = group[0]._replace(last=group[-1].last)
            if not to_write:
                bar.update(whole.last - whole.first)
                continue
            try:
                layers, arrived = compute_shard(whole, texts[whole.split], model, batch_pieces, device, bar)
            except BaseException:
                _release(locks.values())
                raise
            for shard in to_write:
                part = layers[:, shard.first - whole.first : shard.last - whole.first]
                writes.append(writer.submit(_finish, store, shard, part, arrived, locks[shard]))
            while len(writes) > WRITERS[device]:
                writes.popleft().result()
        for write in writes:
            write.result()
    return without_pieces


def _release(locks: Iterable[FileLock]) -> None:
    for lock in locks:
        lock.release()


def _finish(
    store: FeatureStore,
    shard: Shard,
    layers: Tensor,
    arrived: Callable[[], float],
    lock: FileLock,
) -> None:
    """Writes a computed shard, then releases its lock. See `compute_shard`. Raises UserError for values too large."""
    try:
        largest = arrived()
        place = f"{shard.split}, words {shard.first} to {shard.last}"
        if largest != largest or largest == float("inf"):
            raise UserError(
                f"The encoder gives NaN or infinite values ({place}). Use another: encoder.name=OWNER/NAME."
            )
        if not largest <= torch.finfo(layers.dtype).max:
            raise UserError(
                f"{store.dtype} cannot hold every value of this encoder's layers ({place}: up to {largest:.3g}). "
                "Use features.dtype=float32 (or bfloat16)."
            )
        store.write(shard, layers)
    finally:
        lock.release()


def compute_shard(
    shard: Shard, text: Text, model: torch.nn.Module, batch_pieces: int, device: str, bar: tqdm
) -> tuple[Tensor, Callable[[], float]]:
    """Computes a shard's vectors, (stored layers, W, H) in the storage dtype.

    Also returns a function to call before the vectors are read. It waits for them, and returns their largest absolute
    value before the cast.
    """
    encoder, cfg = text.encoder, text.cfg
    shape = len(stored_layers(cfg, encoder.num_layers)), shard.last - shard.first, encoder.hidden_size
    layers = torch.empty(shape, dtype=getattr(torch, cfg.dtype), device=device)
    largest = torch.zeros((), device=device)
    for windows in batches(text, shard, batch_pieces, device):
        states, rows = states_of(windows, text, model, device)
        if text.normalized:
            states = torch.nn.functional.normalize(states, dim=-1)
        largest = torch.maximum(largest, states.abs().amax())
        layers.index_copy_(1, rows - shard.first, states.to(layers.dtype))
        bar.update(len(rows))
    if device == "cpu":
        return layers, largest.item
    layers, largest = (  # pinned memory, filled while the next shard is computed
        torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
        for tensor in (layers, largest)
    )
    event = torch.cuda.Event()
    event.record()

    def arrived() -> float:
        event.synchronize()
        return largest.item()

    return layers, arrived
