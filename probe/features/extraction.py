"""Fills a feature store: windows through the frozen encoder, one vector a word and layer, shard by shard.

A shard is the unit of everything: of batching (its windows are sorted by length, so what is in a batch depends on the
shard alone), of writing, of resuming, and of sharing work between processes. While one shard is computed the one before
is cast, hashed and written by a second thread.

B windows in a batch, P pieces, W words, H hidden size.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch
from tqdm import tqdm

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus
from probe.features.checkpoint import Encoder
from probe.features.depth import stop_at
from probe.features.encoder import load_model
from probe.features.store import FeatureStore, Shard
from probe.features.words import Text, batches, states_of
from probe.system.bfloat16 import EMULATED, way
from probe.system.locks import Hold
from probe.system.machine import num_cores

SHARDS_IN_FLIGHT = 2  # computed but not yet on disk; bounds memory


def ensure_features(corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, device: str) -> FeatureStore:
    """A store of this corpus and encoder, with the layers asked for or more and every shard present.

    Extracts what is missing, which in a store that was finished is what was damaged, all its layers.
    """
    store = FeatureStore.of(corpus, encoder, cfg).serving()
    cfg = replace(cfg, layers=list(store.layers))
    store.hold()
    missing = store.missing()
    if missing or store.manifest() is None:
        store.prepare(missing)
        texts = {name: Text(corpus, name, encoder, cfg) for name in corpus.splits}
        report_empty_words(corpus, texts)
        if missing:
            fill(store, missing, texts, encoder, cfg, device)
            if device == "cuda":
                torch.cuda.empty_cache()  # the encoder's memory is for the probes now
        about = {"encoder": encoder.name, "data": corpus.name}
        store.write_manifest(about, {name: len(text.pieces.empty) for name, text in texts.items()})
    store.tidy()
    return store


def report_empty_words(corpus: Corpus, texts: dict[str, Text]) -> None:
    """Says how many words have no piece of their own, and where the first is."""
    for name, text in texts.items():
        if len(text.pieces.empty):
            print(
                f"{name}: {len(text.pieces.empty)} words have no piece in this tokenizer; the unknown piece stands for "
                f"them. The first: {corpus.splits[name].place(int(text.pieces.empty[0]))}",
                file=sys.stderr,
            )


def report_causal(encoder: Encoder) -> None:
    if encoder.causal:
        print(f"{encoder.name} is causal: a word's vector knows only what stands before it.", file=sys.stderr)


def report_emulation(cfg: FeaturesConfig, device: str) -> None:
    if cfg.precision == "bfloat16" and way(device, lstm=False) == "emulated":
        print(f"features.precision=bfloat16: {EMULATED}", file=sys.stderr)


def fill(
    store: FeatureStore,
    missing: list[Shard],
    texts: dict[str, Text],
    encoder: Encoder,
    cfg: FeaturesConfig,
    device: str,
) -> None:
    """Extracts the missing shards, leaving to other processes what they are at."""
    torch.set_num_threads(num_cores())
    report_causal(encoder)
    report_emulation(cfg, device)
    model = load_model(encoder, device, cfg.precision)
    stop_at(store.layers[-1], model, encoder, device)
    # In no order: where locks do nothing, processes that share the work would else walk through it side by side.
    waiting = deque(random.SystemRandom().sample(missing, len(missing)))
    writes: deque[Future[None]] = deque()
    bar = tqdm(
        total=sum(shard.last - shard.first for shard in missing),
        desc=f"extracting {len(missing)} shards, {store.bytes_of(missing) / 1e9:.2f} GB",
        unit=" words",
        unit_scale=True,
        dynamic_ncols=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
    )
    with ThreadPoolExecutor(max_workers=1) as writer, bar:
        locked_in_a_row = 0
        while waiting:
            shard = waiting.popleft()
            lock = Hold(store.directory / f".{store.path(shard).name}.lock", exclusive=True)
            if lock.busy:
                lock.release()
                waiting.append(shard)
                locked_in_a_row += 1
                if locked_in_a_row >= len(waiting):  # all that is left is being done elsewhere
                    time.sleep(0.2)
                continue
            locked_in_a_row = 0
            if store.path(shard).exists():
                lock.release()
                bar.update(shard.last - shard.first)
                continue
            try:
                layers, wait = compute_shard(store, shard, texts[shard.split], model, encoder, cfg, device, bar)
            except BaseException:
                lock.release()
                raise
            writes.append(writer.submit(_finish, store, shard, layers, wait, lock))
            while len(writes) >= SHARDS_IN_FLIGHT:
                writes.popleft().result()
        for write in writes:
            write.result()


def _finish(
    store: FeatureStore,
    shard: Shard,
    layers: torch.Tensor,
    wait: Callable[[], None],
    lock: Hold,
) -> None:
    """Writes a computed shard, then lets its lock go."""
    try:
        wait()
        store.write(shard, layers)
    finally:
        lock.release()


def compute_shard(
    store: FeatureStore,
    shard: Shard,
    text: Text,
    model: torch.nn.Module,
    encoder: Encoder,
    cfg: FeaturesConfig,
    device: str,
    bar: tqdm,
) -> tuple[torch.Tensor, Callable[[], None]]:
    """A shard's words: (stored layers, W, H), in the storage dtype, and what to call before reading them."""
    words = shard.last - shard.first
    layers = torch.empty(
        (len(store.layers), words, store.hidden_size), dtype=getattr(torch, store.dtype), device=device
    )
    largest = torch.zeros((), device=device)
    for windows in batches(text, shard, encoder, cfg.batch_pieces):
        states, rows = states_of(windows, text.pieces, model, encoder, cfg, device)
        largest = torch.maximum(largest, states.abs().amax())
        layers.index_copy_(1, rows - shard.first, states.to(layers.dtype))
        bar.update(len(rows))
    if not largest <= torch.finfo(layers.dtype).max:  # not a number compares to nothing
        raise UserError(
            f"{store.dtype} cannot hold every value of this encoder's layers ({shard.split}, words {shard.first} to "
            f"{shard.last}: up to {largest:.3g}). Use features.dtype=float32 (or bfloat16)."
        )
    if device != "cuda":
        return layers, lambda: None
    on_host = torch.empty_like(layers, device="cpu", pin_memory=True)
    on_host.copy_(layers, non_blocking=True)  # crosses the bus while the next shard is computed
    arrived = torch.cuda.Event()
    arrived.record()
    return on_host, arrived.synchronize
