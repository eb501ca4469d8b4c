"""How fast extraction is, against the bare forward, the machine's peak and the tutorials' loop, in one run.

    python tests/benchmarks/extraction.py encoder=minilm_l6 data.path=DIR      the first 1,000 dev sentences
    python tests/benchmarks/extraction.py data=demo encoder=minilm_l6 --times 10   the same text ten times as long

Overrides are those of `probe`. Times are medians of --repeat rounds, the kinds taking turns within each round. The last
line is one JSON object. Peak memory is this process's, measured over the store path alone, before anything else runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import transformers

from probe.config import FeaturesConfig
from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.encoders.encoder import hidden_states, load_model
from probe.settings import configs_of
from probe.system.bfloat16 import SLOW, kernels_for
from probe.system.machine import num_cores, resolve_device
from probe.vectors import extraction
from probe.vectors.extraction import ensure_features
from probe.vectors.store import FeatureStore
from probe.vectors.words import Text, batches, pieces_at_once, to_tensors


def store_path(corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, device: str) -> tuple[float, FeatureStore]:
    """Seconds for everything: tokenise, load, compute, pool, cast, hash, write."""
    with tempfile.TemporaryDirectory() as folder:
        clock = time.perf_counter()
        store = ensure_features(corpus, encoder, replace(cfg, cache_dir=folder), device)
        return time.perf_counter() - clock, store


def bare_batches(corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, device: str) -> list:
    text = Text(corpus, "dev", encoder, cfg)
    store = FeatureStore.of(corpus, encoder, cfg)
    return [
        to_tensors(windows, text.pieces, encoder)
        for shard in store.shards["dev"]
        for windows in batches(text, shard, encoder, pieces_at_once(cfg.batch_pieces, encoder, device), device)
    ]


def forward(model: torch.nn.Module, batch: tuple, device: str) -> tuple[torch.Tensor, ...]:
    ids, mask, types = batch
    return hidden_states(model, ids.to(device), mask.to(device), None if types is None else types.to(device))


@torch.inference_mode()
def bare_forward(model: torch.nn.Module, made: list, device: str) -> float:
    """Seconds for the encoder alone on the very same batches."""
    clock = time.perf_counter()
    for batch in made:
        forward(model, batch, device)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - clock


@torch.no_grad()
def tutorial_loop(encoder: Encoder, sentences: Sequence[list[str]], device: str) -> float:
    """Seconds for one sentence a forward, as the tutorials show it, first piece a word."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder.folder)
    model = transformers.AutoModel.from_pretrained(encoder.folder, dtype=torch.float32).eval().to(device)
    clock = time.perf_counter()
    for words in sentences:
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt", truncation=True).to(device)
        states = torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0]
        word_ids = encoded.word_ids(0)
        first = [word_ids.index(i) for i in range(len(words)) if i in word_ids]
        states[:, first].cpu().numpy()
    return time.perf_counter() - clock


def matrix_peak(dtype: torch.dtype, device: str) -> float:
    """FLOP/s of a large matrix product."""
    size = 8192 if device == "cuda" else 2048
    a, b = torch.randn(2, size, size, dtype=dtype, device=device)
    seconds = []
    for _ in range(8):
        clock = time.perf_counter()
        a @ b
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - clock)
    return 2 * size**3 / statistics.median(seconds[2:])


def useful_flops(made: list, encoder: Encoder) -> float:
    """Products of a BERT-like encoder over real pieces, padding not counted: 24 H^2 + 4 P H a piece and block."""
    hidden, inner = encoder.hidden_size, getattr(encoder.config, "intermediate_size", 4 * encoder.hidden_size)
    lengths = torch.cat([mask.sum(1) for _, mask, _ in made]).double()
    return float(encoder.num_layers * (lengths * (8 * hidden**2 + 4 * hidden * inner) + 4 * hidden * lengths**2).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1000, help="of the dev split")
    parser.add_argument("--times", type=int, default=1, help="the text so many times as long")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only-memory", action="store_true", help="stop after the store path's peak memory")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    cfg = configs_of(options.overrides)[0][0]
    dev = load_corpus(cfg.data).splits["dev"]
    n, times = options.sentences, options.times
    lines = list(range(1, min(n, len(dev.words)) * times + 1))
    documents = None if cfg.features.context == "sentence" or dev.documents is None else [
        d + k * (dev.documents[-1] + 1) for k in range(times) for d in dev.documents[:n]
    ]  # fmt: skip
    corpus = Corpus("benchmark", {"dev": Split(dev.words[:n] * times, dev.tags[:n] * times, documents, lines, "dev")})
    words = corpus.splits["dev"].num_words
    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    device = resolve_device(cfg.device)
    torch.set_num_threads(num_cores())

    features = replace(cfg.features, precision="float32")
    _, store = store_path(corpus, encoder, features, device)
    peak_rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    written = store.bytes_of([shard for shards in store.shards.values() for shard in shards])
    print(f"{words} words, {len(lines)} sentences, {encoder.name} on {device}, {num_cores()} threads")
    print(f"store path's peak memory {peak_rss_mb:.0f} MB, {written / 1e6:.1f} MB of vectors written")
    if options.only_memory:
        print(json.dumps({"peak_rss_mb": round(peak_rss_mb), "bytes_written": written, "words": words}))
        return

    with tempfile.TemporaryDirectory() as folder:
        warm = replace(features, cache_dir=folder)
        ensure_features(corpus, encoder, warm, device)
        clock = time.perf_counter()
        store = ensure_features(corpus, encoder, warm, device)
        opened = time.perf_counter() - clock
        chosen = range(max(0, encoder.num_layers - 3), encoder.num_layers + 1)
        clock = time.perf_counter()
        read = sum(t.numel() * t.element_size() for _, layers in store.read("dev", chosen) for t in layers)
        speed = read / (time.perf_counter() - clock) / 1e9
        print(f"warm store: opened in {opened:.3f} s, {len(chosen)} layers read and checked at {speed:.1f} GB/s")

    made = bare_batches(corpus, encoder, features, device)
    clock = time.perf_counter()
    models = {precision: load_model(encoder, device, precision) for precision in ("float32", "bfloat16")}
    print(f"loading the weights twice {time.perf_counter() - clock:.2f} s, once a run; not counted below")

    def loaded(encoder: Encoder, device: str, precision: str, **_: object) -> torch.nn.Module:
        return models[precision]

    extraction.load_model = loaded  # type: ignore[assignment]
    # Where bfloat16 is slow, a product to measure its peak by takes minutes.
    products = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if kernels_for(device, lstm=False) == "pytorch":
        print(f"{SLOW[device]}; its peak is given as float32's")
        products["bfloat16"] = torch.float32
    padded = sum(ids.numel() for ids, _, _ in made) / sum(int(mask.sum()) for _, mask, _ in made)
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {precision: [] for precision in products}
    for _ in range(options.repeat):
        for precision, dtype in products.items():
            peaks[precision].append(matrix_peak(dtype, device))
        for precision in peaks:
            ours, _ = store_path(corpus, encoder, replace(features, precision=precision), device)
            seconds.setdefault(f"store {precision}", []).append(ours)
            bare = bare_forward(models[precision], made, device)
            seconds.setdefault(f"bare {precision}", []).append(bare)
        seconds.setdefault("loop", []).append(tutorial_loop(encoder, corpus.splits["dev"].words[:n], device) * times)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    over = {  # of each round, since the machine's own speed drifts between rounds
        precision: statistics.median(
            ours / bare for ours, bare in zip(seconds[f"store {precision}"], seconds[f"bare {precision}"], strict=True)
        )
        for precision in peaks
    }
    peak = {name: statistics.median(values) for name, values in peaks.items()}
    flops = useful_flops(made, encoder)
    for precision in peaks:
        ours, bare = median[f"store {precision}"], median[f"bare {precision}"]
        print(
            f"{precision:8s}  {words / ours:8.0f} words/s  {over[precision]:5.3f} of the bare forward  "
            f"{flops / bare / peak[precision]:5.1%} of the peak {peak[precision] / 1e9:.0f} GFLOP/s in the forward, "
            f"{flops / ours / peak[precision]:5.1%} over all"
        )
    print(
        f"one sentence a forward: {words / median['loop']:.0f} words/s; padding {padded - 1:.1%}, {len(made)} batches"
    )
    with torch.inference_mode():
        exact, rough = (forward(models[precision], made[0], device) for precision in ("float32", "bfloat16"))
        errors = [float((a - b.float()).norm() / a.norm()) for a, b in zip(exact, rough, strict=True)]
    print("bfloat16 against float32, size of the difference by layer: " + " ".join(f"{error:.2%}" for error in errors))
    result = {
        "words_per_second": round(words / median["store float32"]),
        "over_forward": round(over["float32"], 3),
        "peak_fraction": round(flops / median["store float32"] / peak["float32"], 3),
        "peak_rss_mb": round(peak_rss_mb),
        "naive_over_ours": round(median["loop"] / median["store float32"], 2),
        "bytes_written": written,
        "bfloat16_over_float32": round(median["store float32"] / median["store bfloat16"], 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
