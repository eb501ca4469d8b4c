"""What a GPU gives: speed against bare loops, runs side by side, and the same results as the CPU.

    python tests/benchmarks/gpu.py                          one GPU, no network; needs some minutes
    python tests/benchmarks/gpu.py --encoder DIR            a checkpoint instead of random weights of BERT-base's shape
    python tests/benchmarks/gpu.py --only extraction epoch  some of the parts
    python tests/benchmarks/gpu.py --size small --device cpu  the same on a small CPU; --size tiny tries the logic

A part that fails is reported and the others go on. Each prints what it measured when it is done. The text is made up.
The last line is one JSON object, which is also written to --out. Exit code 1 if a part failed.

extraction  words/s of the store path and of a bare forward on the same batches, in float32 and bfloat16; memory
epoch       seconds per epoch of the paper's probe, of the same model in a bare loop, and of PyTorch's packed BiLSTM
sweep       the same runs one after another and several at a time on the card; are they the same?
agreement   one run with several seeds on CPU and GPU: is the difference of the means within the spread of seeds?
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scale import SHARES, write_encoder, write_text
from scale import TINY as TINY_BERT
from torch import Tensor, nn

from probe.config import Config, FeaturesConfig, ProbeConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.tasks.spans import SPANS
from probe.encoders.encoder import Encoder, open_encoder
from probe.encoders.model import hidden_states, load_model
from probe.probes.batches import Batch, TaggedWords, TrainingBatches
from probe.probes.selection import Selection
from probe.probes.tagger import Tagger, train_tagger
from probe.probes.training import classifier_labels, make_deterministic
from probe.runs.plan import plan, prepare_results
from probe.runs.run import run
from probe.settings import config_of
from probe.system.files import write_atomically
from probe.system.machine import num_cores, resolve_device
from probe.system.provenance import hardware, versions
from probe.vectors import extraction
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore
from probe.vectors.words import Text, batches, pieces_at_once, to_tensors

BERT_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
SIGNIFICANT_T = 3.36  # two-sided, p 0.01 with 8 degrees of freedom: two times five seeds
LARGEST_ROUNDING = 1e-3  # of a feature, whose values are of the order of 1


@dataclass(frozen=True)
class Size:
    """How much is computed. encoder: of `scale.write_encoder`. words: extracted. probe_words: trained on for an epoch.
    probe: hidden size per direction. sweep, small: words of the texts of `sweep` and of `agreement`. seeds: of
    `agreement`. sweep_seeds, epochs: of a row and a run of `sweep`. at_once: its runs side by side.
    """

    encoder: dict[str, Any]
    words: int
    probe_words: int
    probe: int
    sweep: int
    small: int
    seeds: int
    sweep_seeds: int
    epochs: int
    at_once: tuple[int, ...]
    repeat: int


SIZES = {
    "full": Size(BERT_BASE, 100_000, 60_000, 768, 30_000, 8_000, 5, 2, 3, (2, 4), 3),
    "small": Size(MINILM, 1_500, 6_000, 128, 3_000, 3_000, 3, 1, 1, (2,), 2),
    "tiny": Size(TINY_BERT, 600, 1500, 8, 1500, 1500, 2, 1, 1, (2,), 1),
}


class PartFailed(Exception):
    """A part that has measured something it should not have. measured: what."""

    def __init__(self, message: str, measured: dict[str, Any]) -> None:
        super().__init__(message)
        self.measured = measured


@dataclass(frozen=True)
class Bench:
    """What a part works with. checkpoint: an encoder's folder, or None for one made up."""

    size: Size
    device: str
    folder: Path
    checkpoint: Path | None

    def encoder_folder(self) -> Path:
        if self.checkpoint is not None:
            return self.checkpoint
        folder = self.folder / "encoder"
        if not folder.exists():
            write_encoder(folder, self.size.encoder)
        return folder

    def settings(self, num_words: int, *more: str) -> list[str]:
        """Returns the settings of a run on so many made-up words."""
        text = self.folder / f"text-{num_words}"
        if not text.exists():
            write_text(text, num_words)
        return [
            "data=columns",
            f"data.path={text}",
            "data.name=made-up",
            *(f"data.{name}={name}.txt" for name in SHARES),
            f"features.cache_dir={self.folder / 'store'}",
            f"device={self.device}",
            f"encoder.path={self.encoder_folder()}",
            *more,
        ]

    def config(self, num_words: int, *more: str) -> Config:
        return config_of(self.settings(num_words, *more))

    def seconds(self, work: Callable[[], Any]) -> float:
        """How long it takes, all that the card was told included."""
        clock = time.perf_counter()
        work()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - clock

    def peak_mb(self) -> int | None:
        """Most memory of the card in use since this was last asked for."""
        if self.device != "cuda":
            return None
        most = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return round(most / 1e6)


def bare_batches(corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, device: str) -> list:
    """Returns the very batches that extraction makes of dev."""
    text = Text(corpus, "dev", encoder, cfg)
    return [
        to_tensors(windows, text.pieces, encoder)
        for shard in FeatureStore.of(corpus, encoder, cfg).shards["dev"]
        for windows in batches(text, shard, pieces_at_once(cfg.batch_pieces, encoder, device), device)
    ]


@torch.inference_mode()
def bare_forward(model: nn.Module, made: list, device: str) -> None:
    """The encoder alone."""
    for ids, mask, types in made:
        hidden_states(model, ids.to(device), mask.to(device), None if types is None else types.to(device))


def store_path(corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, device: str) -> None:
    """All of extraction: cut into pieces, compute, pool, cast, hash, write."""
    with tempfile.TemporaryDirectory() as folder:
        complete_store(FeatureStore.of(corpus, encoder, replace(cfg, cache_dir=folder)), device)


def extract(bench: Bench) -> dict[str, Any]:
    """The store path against the same batches in a bare forward."""
    cfg = bench.config(bench.size.words)
    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    corpus = Corpus("made-up", {"dev": load_corpus(cfg.data).splits["train"]})
    words = corpus.splits["dev"].num_words
    torch.set_num_threads(num_cores())
    made = bare_batches(corpus, encoder, cfg.features, bench.device)
    disk = disk_speed(bench, 2 * words * (encoder.num_layers + 1) * encoder.hidden_size)
    result: dict[str, Any] = {"words": words, "batches": len(made), "disk_gb_per_second": round(disk, 2)}
    for precision in ("float32", "bfloat16"):
        features = replace(cfg.features, precision=precision)
        result[precision] = extracted(bench, corpus, encoder, features, made)
    return result


def extracted(bench: Bench, corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, made: list) -> dict[str, Any]:
    """Both in one precision. The first round makes room in memory; no loading of weights is measured."""
    words = corpus.splits["dev"].num_words
    model, original = load_model(encoder, bench.device, cfg.precision), extraction.load_model
    extraction.load_model = lambda *_, **__: model
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    memory = {}
    for _ in range(bench.size.repeat + 1):
        bench.peak_mb()
        seconds["ours"].append(bench.seconds(lambda: store_path(corpus, encoder, cfg, bench.device)))
        memory["ours"] = bench.peak_mb()
        seconds["bare"].append(bench.seconds(lambda: bare_forward(model, made, bench.device)))
        memory["bare"] = bench.peak_mb()
    extraction.load_model = original
    ours, bare = (statistics.median(values[1:]) for values in seconds.values())
    return {
        "words_per_second": round(words / ours),
        "bare_words_per_second": round(words / bare),
        "over_bare": round(ours / bare, 3),
        "peak_mb": memory,
    }


def disk_speed(bench: Bench, num_bytes: int) -> float:
    """GB/s of writing and syncing this much in eight files, with as many threads as extraction uses."""
    content = os.urandom(num_bytes // 8)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(extraction.WRITERS[bench.device]) as writers:
        paths = [Path(folder) / str(number) for number in range(8)]
        clock = time.perf_counter()
        list(writers.map(lambda path: write_atomically(path, content), paths))
        return num_bytes / 1e9 / (time.perf_counter() - clock)


class Packed(nn.Module):
    """The same probe as a PyTorch user would write it: lengths are on the host, which waits for them."""

    def __init__(self, cfg: ProbeConfig, width: int, num_labels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, cfg.hidden_size, cfg.num_layers, bidirectional=True, dropout=cfg.dropout)
        self.dropout = nn.Dropout(cfg.dropout)
        self.classifier = nn.Linear(2 * cfg.hidden_size, num_labels)

    def forward(self, batch: Batch) -> Tensor:
        x = self.dropout(batch.features.float())
        packed = nn.utils.rnn.pack_padded_sequence(x, batch.words.sum(0).cpu(), enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        scores: Tensor = self.classifier(self.dropout(out))
        return scores


def bare_epoch(model: nn.Module, made: TrainingBatches, cfg: ProbeConfig) -> None:
    """One epoch of a plain loop. Padding has no label that counts."""
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.learning_rate, fused=True)
    model.train()
    for batch in made:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.labels.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.gradient_clip)
        optimizer.step()


def epoch(bench: Bench) -> dict[str, Any]:
    """One epoch of BiLSTM 2 x 768 per direction on 3,072 features per word (the last four layers concatenated)."""
    cfg = bench.config(bench.size.probe_words, "layers=concat_last_four")
    tags = load_corpus(cfg.data).splits["train"].tags
    labels, label_ids = classifier_labels(tags)
    width = 4 * bench.size.encoder["hidden_size"]
    probe = replace(cfg.probe, hidden_size=bench.size.probe, max_epochs=1)
    num_words = sum(map(len, tags))
    torch.manual_seed(0)
    features = torch.randn(num_words, width).half().to(bench.device)
    make_deterministic(bench.device)
    data = TaggedWords(features, tags, label_ids, bench.device)
    first = TaggedWords(features[: len(tags[0])], tags[:1], label_ids, bench.device)
    selection = Selection("concat_last_four", (1, 2, 3, 4), "concat", width)
    num_updates = len(TrainingBatches(data, probe.batch_size, 0))

    def bare(model: nn.Module, seed: int) -> float:
        made = TrainingBatches(data, probe.batch_size, seed)
        return bench.seconds(lambda: bare_epoch(model.to(bench.device), made, probe))

    seconds: dict[str, list[float]] = {"ours": [], "bare": [], "packed": []}
    memory = {}
    for number in range(bench.size.repeat + 1):
        bench.peak_mb()
        trained = train_tagger(probe, selection, data, first, labels, SPANS, number, lambda _: None)
        memory["ours"] = bench.peak_mb()
        seconds["ours"].append(trained.progress.curve[0]["train_s"] / trained.passes)
        seconds["bare"].append(bare(Tagger(probe, selection, labels), number))
        memory["bare"] = bench.peak_mb()
        torch.use_deterministic_algorithms(False)
        seconds["packed"].append(bare(Packed(probe, width, len(labels)), number))
        memory["packed"] = bench.peak_mb()
        make_deterministic(bench.device)
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}  # the first round makes room
    return {
        "words": num_words,
        "updates": num_updates,
        "seconds_per_epoch": {name: round(value, 6) for name, value in median.items()},
        "over_bare": round(median["ours"] / median["bare"], 4),
        "over_packed": round(median["ours"] / median["packed"], 4),
        "words_per_second": round(num_words / median["ours"]),
        "peak_mb": memory,
    }


def typed(*arguments: str) -> float:
    """Seconds of one `probe` command."""
    clock = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "probe", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"probe {arguments[0]}: exit code {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    return time.perf_counter() - clock


def sweep(bench: Bench) -> dict[str, Any]:
    """Two rows of some seeds, as a user would type it, on the warm store; seconds with the start of the processes."""
    epochs, num_seeds = bench.size.epochs, bench.size.sweep_seeds
    of_seeds = f"seed={','.join(str(seed + 1) for seed in range(num_seeds))}"
    settings = bench.settings(
        bench.size.sweep,
        f"probe.max_epochs={epochs}",
        f"probe.patience={epochs}",
        f"probe.hidden_size={min(256, bench.size.probe)}",
    )
    extract_s = round(typed("extract", "layers=last", *settings), 2)
    seconds, predictions = {}, {}
    for at_once in (1, *bench.size.at_once):
        out = bench.folder / f"sweep-{at_once}"
        grid = ["-m", "layers=last,second_to_last", of_seeds, f"jobs={at_once}", f"results_dir={out}"]
        seconds[at_once] = round(typed(*grid, *settings), 2)
        records = [json.loads(file.read_text()) for file in (out / "records").glob("*.json")]
        predictions[at_once] = {record["key"]: record["sha256"]["predictions"] for record in records}
    result = {"runs": 2 * num_seeds, "extract_s": extract_s, "seconds_at_once": seconds}
    if len(predictions[1]) != 2 * num_seeds or any(others != predictions[1] for others in predictions.values()):
        raise PartFailed("runs side by side gave other predictions, or some are missing", result)
    return result


def agreement(bench: Bench) -> dict[str, Any]:
    """Dropout draws other numbers on a GPU, so scores differ as between seeds; features differ by rounding."""
    probe = [
        "layers=last",
        "probe.hidden_size=32",
        "probe.num_layers=1",
        "probe.learning_rate=0.01",
        "probe.max_epochs=1",
        "features.dtype=float32",
    ]
    scores: dict[str, list[float]] = {}
    stores = {}
    for device in ("cpu", bench.device):
        place = [f"device={device}", f"features.cache_dir={bench.folder / f'store-{device}'}"]
        cfg = bench.config(bench.size.small, *probe, *place, f"results_dir={bench.folder / device}")
        planned = plan(cfg)
        prepare_results(planned.results_dir)
        stores[device] = complete_store(planned.store, device)
        records = [run(replace(cfg, seed=seed), log=lambda _: None) for seed in range(1, bench.size.seeds + 1)]
        scores[device] = [record.scores.dev.headline for record in records]
    here, there = scores["cpu"], scores[bench.device]
    difference = statistics.mean(there) - statistics.mean(here)
    error = ((statistics.variance(here) + statistics.variance(there)) / len(here)) ** 0.5
    layers = range(stores["cpu"].num_layers + 1)
    of_both = zip(*(stores[device].read("dev", layers) for device in ("cpu", bench.device)), strict=True)
    apart = max(
        float((a - b).abs().max()) for (_, ours), (_, theirs) in of_both for a, b in zip(ours, theirs, strict=True)
    )
    result = {
        "dev_f1": {device: [round(100 * score, 2) for score in values] for device, values in scores.items()},
        "difference": round(100 * difference, 2),
        "standard_error": round(100 * error, 2),
        "largest_difference_of_a_feature": apart,
    }
    if apart > LARGEST_ROUNDING:
        raise PartFailed("features differ by more than rounding", result)
    if abs(difference) > SIGNIFICANT_T * error and abs(difference) > 1e-9:
        raise PartFailed("CPU and GPU differ by more than seeds do", result)
    return result


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "extraction": extract,
    "epoch": epoch,
    "sweep": sweep,
    "agreement": agreement,
}


def measure(part: Callable[[Bench], dict[str, Any]], bench: Bench) -> dict[str, Any]:
    """Returns what a part measured, or why it failed, and its seconds."""
    clock = time.perf_counter()
    try:
        measured: dict[str, Any] = {"ok": True, **part(bench)}
    except PartFailed as failed:
        measured = {"ok": False, "error": str(failed), **failed.measured}
    except (Exception, UserError) as error:
        measured = {"ok": False, "error": f"{type(error).__name__}: {str(error)[:500]}"}
    return {**measured, "seconds": round(time.perf_counter() - clock, 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="a checkpoint; default: random weights")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    options = parser.parse_args(arguments)
    clock = time.monotonic()
    try:
        resolve_device(options.device)
    except UserError as error:
        print(f"gpu.py: {error} Its logic without a GPU: --size tiny --device cpu", file=sys.stderr)
        return 2
    parts = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(SIZES[options.size], options.device, Path(folder), options.encoder)
        for name in PARTS:
            if name in options.only:
                parts[name] = measure(PARTS[name], bench)
                print(f"{name}: {json.dumps(parts[name])}", flush=True)
    about = hardware(options.device, 1)
    result = {
        "benchmark": "gpu",
        "ok": all(part["ok"] for part in parts.values()),
        "device": about.device_name,
        "cuda": about.cuda,
        "cudnn": about.cudnn,
        "driver": about.driver,
        "versions": versions(),
        "encoder": options.encoder.name if options.encoder else "random weights",
        "size": options.size,
        "seconds": round(time.monotonic() - clock, 1),
        "parts": parts,
    }
    line = json.dumps(result, ensure_ascii=False)
    options.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
