"""What a GPU gives: the tests marked `gpu`, speed against bare loops and the card's own products, and the same results.

    python tests/benchmarks/gpu.py                          one GPU, no network, within eight minutes
    python tests/benchmarks/gpu.py --encoder DIR            a checkpoint instead of random weights of BERT-base's shape
    python tests/benchmarks/gpu.py --only extraction epoch  some of the parts
    python tests/benchmarks/gpu.py --size tiny --device cpu tries its logic where there is no GPU

Each part runs in a process of its own and is ended when its seconds are over; a part that fails is reported and the
others go on. The text is made up. The last line is one JSON object, which is also written to --out. Exit code 1 if a
part failed.

tests       pytest -m gpu tests/runs/test_gpu.py
products    FLOP/s of large matrix products, with the cuBLAS workspace that deterministic runs need, and with its own
extraction  words/s of the store path and of a bare forward on the same batches, in float32 and bfloat16; memory
epoch       seconds per epoch of the paper's probe, of the same model in a bare loop, and of PyTorch's packed BiLSTM
sweep       the same runs one after another and several at a time on the card; are they the same?
waits       how often the host waits for the card, per update of a training, of fine-tuning, and per batch of extraction
agreement   one run with several seeds on CPU and GPU: is the difference of the means within the spread of seeds?
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from extraction import bare_batches, bare_forward, store_path, useful_flops
from scale import BERT_BASE, SHARES, write_encoder, write_text
from scale import TINY as TINY_BERT
from torch import Tensor, nn
from training import Packed, bare_epoch, flops_of_a_word

from probe.config import Config, FeaturesConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.tasks.spans import span_f1
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.encoders.encoder import load_model
from probe.probes import schedule, tagger
from probe.probes.batches import Batch, TaggedWords, TrainingBatches
from probe.probes.selection import Selection
from probe.probes.tagger import Tagger, train_tagger
from probe.probes.training import labels_of, make_deterministic
from probe.runs.plan import plan, prepare_results
from probe.runs.run import run
from probe.settings import config_of
from probe.system.files import write_atomically
from probe.system.machine import gpus, num_cores, resolve_device
from probe.system.provenance import hardware, versions
from probe.vectors import extraction
from probe.vectors.extraction import ensure_features
from probe.vectors.words import Text

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SIGNIFICANT_T = 3.36  # two-sided, p 0.01 with 8 degrees of freedom: two times five seeds
LARGEST_ROUNDING = 1e-3  # of a feature, whose values are of the order of 1


@dataclass(frozen=True)
class Size:
    """How much is computed. encoder: of `scale.write_encoder`. product: rows of the square matrices. words: extracted.
    probe_words: trained on for an epoch. probe: hidden size per direction. sweep, small: words of the texts of `sweep`,
    and of `agreement` and `waits`. seeds: of `agreement`. sweep_seeds, epochs: of a row and a run of `sweep`. at_once:
    its runs side by side.
    """

    encoder: dict[str, Any]
    product: int
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
    "full": Size(BERT_BASE, 8192, 100_000, 60_000, 768, 30_000, 8_000, 5, 2, 3, (2, 4), 3),
    "tiny": Size(TINY_BERT, 64, 600, 1500, 8, 1500, 1500, 2, 1, 1, (2,), 1),
}


@dataclass(frozen=True)
class Bench:
    """What a part is given. checkpoint: an encoder's folder, or None for one made up. until: when it should be over, by
    `time.monotonic`; what it has not begun by then it leaves out."""

    size: Size
    device: str
    folder: Path
    checkpoint: Path | None
    tests: str
    until: float

    def encoder_folder(self) -> Path:
        if self.checkpoint is not None:
            return self.checkpoint
        folder = self.folder / "encoder"
        if not folder.exists():
            write_encoder(folder, self.size.encoder)
        return folder

    def settings(self, num_words: int, *more: str) -> list[str]:
        """Settings of a run on so many made-up words."""
        text = self.folder / f"text-{num_words}"
        if not text.exists():
            write_text(text, num_words)
        files = [f"data.{name}={name}.txt" for name in SHARES]
        own = [
            f"features.cache_dir={self.folder / 'store'}",
            f"device={self.device}",
            f"encoder.path={self.encoder_folder()}",
        ]
        return ["data=columns", f"data.path={text}", "data.name=made-up", *files, *own, *more]

    def config(self, num_words: int, *more: str) -> Config:
        return config_of(self.settings(num_words, *more))

    def encoder(self, cfg: Config) -> Encoder:
        return open_encoder(cfg.encoder, Path(cfg.features.cache_dir))

    def is_time_left(self, needed_s: float = 0) -> bool:
        return time.monotonic() + needed_s < self.until

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any]) -> float:
        """How long it takes, all that the card was told included."""
        self.wait()
        clock = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - clock

    def peak_mb(self) -> int | None:
        """Most memory of the card in use since this was last asked for."""
        if self.device != "cuda":
            return None
        most = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return round(most / 1e6)


def run_tests(bench: Bench) -> dict[str, Any]:
    report = bench.folder / "tests.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run([*command, bench.tests], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    if not report.exists():
        raise RuntimeError(f"pytest: {(done.stdout + done.stderr)[-500:]}")
    suite = next(ElementTree.parse(report).iter("testsuite"))
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    names = [
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"  # the file's name: its folders vary
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    passed = number["tests"] - number["failures"] - number["errors"] - number["skipped"]
    result = {"passed": passed, "skipped": number["skipped"], "failed": names}
    if names or (bench.device == "cuda" and not passed):
        raise PartFailed("tests failed, or none ran", result)
    return result


def peak(bench: Bench, dtype: torch.dtype, shape: tuple[int, int, int]) -> float:
    """FLOP/s of a product of matrices (rows, inner) and (inner, columns)."""
    rows, inner, columns = shape
    a = torch.randn(rows, inner, device=bench.device).to(dtype)
    b = torch.randn(inner, columns, device=bench.device).to(dtype)
    a @ b
    seconds = [bench.seconds(lambda: [a @ b for _ in range(4)]) / 4 for _ in range(5)]
    return 2 * rows * inner * columns / statistics.median(seconds)


def products(bench: Bench) -> dict[str, Any]:
    """TFLOP/s of square products and of those of a BERT-base block; in tf32 only for comparison, as nothing uses it."""
    size = bench.size.product
    shapes = {"square": (size, size, size), "block": (2 * size, 768, 3072) if size > 1000 else (size, size, size)}
    found = {
        f"{name} {shape}": round(peak(bench, dtype, of) / 1e12, 3)
        for name, dtype in DTYPES.items()
        for shape, of in shapes.items()
    }
    with _tf32():
        found["tf32 square"] = round(peak(bench, torch.float32, shapes["square"]) / 1e12, 3)
    return {"workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "cuBLAS's own"), "tflops": found}


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def extract(bench: Bench) -> dict[str, Any]:
    """The store path (cut into pieces, compute, pool, cast, hash, write) against the same batches in a bare forward."""
    cfg = bench.config(bench.size.words)
    encoder = bench.encoder(cfg)
    corpus = Corpus("made-up", {"dev": load_corpus(cfg.data).splits["train"]})
    words = corpus.splits["dev"].num_words
    torch.set_num_threads(num_cores())
    made = bare_batches(corpus, encoder, cfg.features, bench.device)
    result: dict[str, Any] = {
        "words": words,
        "pieces": sum(int(mask.sum()) for _, mask, _ in made),
        "batches": len(made),
        "cut_into_pieces_s": round(bench.seconds(lambda: Text(corpus, "dev", encoder, cfg.features)), 3),
        "disk_gb_per_second": round(disk_speed(bench, 2 * words * (encoder.num_layers + 1) * encoder.hidden_size), 2),
    }
    for precision, dtype in DTYPES.items():
        features = replace(cfg.features, precision=precision)
        if bench.is_time_left(5):
            result[precision] = _extracted(bench, corpus, encoder, features, made, dtype)
        else:
            result[precision] = "left out: no time left"
    return result


def disk_speed(bench: Bench, num_bytes: int) -> float:
    """GB/s of writing and syncing this much in eight files, with as many threads as extraction uses."""
    content = os.urandom(num_bytes // 8)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(extraction.WRITERS[bench.device]) as writers:
        paths = [Path(folder) / str(number) for number in range(8)]
        clock = time.perf_counter()
        list(writers.map(lambda path: write_atomically(path, content), paths))
        return num_bytes / 1e9 / (time.perf_counter() - clock)


def _extracted(
    bench: Bench, corpus: Corpus, encoder: Encoder, features: FeaturesConfig, made: list, dtype: torch.dtype
) -> dict[str, Any]:
    """Both in one precision. made: the batches."""
    words = corpus.splits["dev"].num_words
    clock = time.perf_counter()
    model = load_model(encoder, bench.device, features.precision)
    bench.wait()
    load_s = time.perf_counter() - clock
    with _loaded(model):
        store_path(corpus, encoder, features, bench.device)  # the first pass makes room in memory
        bare_forward(model, made, bench.device)
        bench.peak_mb()
        ours = _median(lambda: store_path(corpus, encoder, features, bench.device)[0], bench)
        memory = bench.peak_mb()
        bare = _median(lambda: bare_forward(model, made, bench.device), bench)
    bare_memory = bench.peak_mb()
    size = bench.size.product
    own = peak(bench, dtype, (size, size, size))
    return {
        "words_per_second": round(words / ours),
        "bare_words_per_second": round(words / bare),
        "over_bare": round(ours / bare, 3),
        "bare_peak_fraction": round(useful_flops(made, encoder) / bare / own, 3),
        "peak_mb": memory,
        "bare_peak_mb": bare_memory,
        "load_s": round(load_s, 2),
    }


@contextlib.contextmanager
def _loaded(model: nn.Module) -> Iterator[None]:
    """Inside, extraction takes this model, so that no loading of weights is measured."""
    honest = extraction.load_model
    extraction.load_model = lambda *_, **__: model
    try:
        yield
    finally:
        extraction.load_model = honest


def _median(work: Callable[[], float], bench: Bench) -> float:
    """The median of the seconds that it returns, over as many rounds as there is time for."""
    seconds = [work()]
    while len(seconds) < bench.size.repeat and bench.is_time_left(2 * seconds[-1]):
        seconds.append(work())
    return statistics.median(seconds)


class PackedOnAnyDevice(Packed):
    """As a PyTorch user would write it: lengths go back to the host, which waits for them."""

    def loss(self, batch: Batch) -> Tensor:
        x = self.dropout(batch.features.float())
        packed = nn.utils.rnn.pack_padded_sequence(x, batch.words.sum(0).cpu(), enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        return _loss(self.classifier(self.dropout(out)), batch)


def _loss(scores: Tensor, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), batch.labels.flatten())


def epoch(bench: Bench) -> dict[str, Any]:
    """One epoch of BiLSTM 2 x 768 per direction on 3,072 features per word (the last four layers concatenated)."""
    cfg = bench.config(bench.size.probe_words, "layers=concat_last_four")
    tags = load_corpus(cfg.data).splits["train"].tags
    labels, label_ids = labels_of(tags)
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

    def bare(model: nn.Module, loss: Callable[[Batch], Tensor], seed: int) -> float:
        batches = TrainingBatches(data, probe.batch_size, seed)
        return bench.seconds(lambda: bare_epoch(model, loss, batches, probe))

    seconds: dict[str, list[float]] = {}
    memory = {}
    for number in range(bench.size.repeat + 1):  # the first round makes room in memory and is not counted
        bench.peak_mb()
        trained = train_tagger(probe, selection, data, first, labels, span_f1, number, lambda _: None)
        bench.wait()
        memory["ours"] = bench.peak_mb()
        same = Tagger(probe, selection, labels).to(bench.device)
        packed = PackedOnAnyDevice(probe, width, len(labels)).to(bench.device)
        found = {
            "ours": trained.progress.curve[0]["train_s"] / trained.passes,
            "bare": bare(same, lambda batch, model=same: _loss(model(batch), batch), number),  # type: ignore[misc]
        }
        memory["bare"] = bench.peak_mb()
        torch.use_deterministic_algorithms(False)
        found["packed"] = bare(packed, packed.loss, number)
        memory["packed"] = bench.peak_mb()
        make_deterministic(bench.device)
        for name, value in found.items():
            if number or not bench.size.repeat:
                seconds.setdefault(name, []).append(value)
        if number and not bench.is_time_left(2 * sum(found.values())):
            break
    median = {name: statistics.median(values) for name, values in seconds.items()}
    size = bench.size.product
    own = peak(bench, torch.float32, (size, size, size))
    return {
        "words": num_words,
        "updates": num_updates,
        "seconds_per_epoch": {name: round(value, 6) for name, value in median.items()},
        "over_bare": round(median["ours"] / median["bare"], 4),
        "over_packed": round(median["ours"] / median["packed"], 4),
        "words_per_second": round(num_words / median["ours"]),
        "peak_fraction": round(num_words * flops_of_a_word(probe, width) / median["ours"] / own, 4),
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
    result: dict[str, Any] = {
        "runs": 2 * num_seeds,
        "extract_s": round(typed("extract", "layers=last", *settings), 2),
        "seconds_at_once": {},
    }
    scores: dict[int, dict[str, Any]] = {}
    took = 0.0
    for at_once in (1, *bench.size.at_once):
        if not bench.is_time_left(took):
            result["seconds_at_once"][at_once] = "left out: no time left"
            continue
        out = bench.folder / f"sweep-{at_once}"
        grid = ["-m", "layers=last,second_to_last", of_seeds, f"jobs={at_once}", f"results_dir={out}"]
        took = typed(*grid, *settings)
        result["seconds_at_once"][at_once] = round(took, 2)
        records = [json.loads(file.read_text()) for file in (out / "records").glob("*.json")]
        scores[at_once] = {record["key"]: record["sha256"]["predictions"] for record in records}
    result["same_predictions"] = {
        at_once: sum(others[key] == value for key, value in scores[1].items())
        for at_once, others in scores.items()
        if at_once > 1
    }
    wrong = [at_once for at_once, same in result["same_predictions"].items() if same != len(scores[1])]
    if wrong or any(len(made) != result["runs"] for made in scores.values()):
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
    ]
    devices = ("cpu", bench.device)
    configs, stores = {}, {}
    for device in devices:
        own = [f"features.cache_dir={bench.folder / f'store-{device}'}", "features.dtype=float32", f"device={device}"]
        configs[device] = bench.config(bench.size.small, *probe, *own, f"results_dir={bench.folder / device}")
        planned = plan(configs[device])
        prepare_results(planned.results_dir)
        stores[device] = ensure_features(planned.text, planned.encoder, configs[device].features, device)
    scores: dict[str, list[float]] = {device: [] for device in devices}
    seconds: dict[str, list[float]] = {device: [] for device in devices}
    for seed in range(1, bench.size.seeds + 1):
        if seed > 2 and not bench.is_time_left(sum(took[-1] for took in seconds.values())):
            break
        for device in scores:
            clock = time.monotonic()
            record = run(replace(configs[device], seed=seed), log=lambda _: None)
            seconds[device].append(round(time.monotonic() - clock, 1))
            scores[device].append(record.scores.dev.headline)
            print(f"seed {seed} on {device}: {seconds[device][-1]} s", flush=True)
    here, there = scores["cpu"], scores[bench.device]
    variance = (statistics.variance(here) + statistics.variance(there)) / 2
    difference = statistics.mean(there) - statistics.mean(here)
    error = (2 * variance / len(here)) ** 0.5
    layers = range(stores["cpu"].num_layers + 1)
    apart = [
        max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
        for (_, ours), (_, theirs) in zip(
            stores["cpu"].read("dev", layers), stores[bench.device].read("dev", layers), strict=True
        )
    ]
    result = {
        "dev_f1": {name: [round(100 * score, 2) for score in found] for name, found in scores.items()},
        "difference": round(100 * difference, 2),
        "standard_error": round(100 * error, 2),
        "largest_difference_of_a_feature": max(apart),
        "seconds_of_runs": seconds,
    }
    if max(apart) > LARGEST_ROUNDING:
        raise PartFailed("features differ by more than rounding", result)
    if abs(difference) > SIGNIFICANT_T * error and abs(difference) > 1e-9:
        raise PartFailed("CPU and GPU differ by more than seeds do", result)
    return result


@contextlib.contextmanager
def counted_waits(device: str) -> Iterator[Callable[[], int]]:
    """Counts what PyTorch reports as synchronizing; the function gives how often it did inside."""
    if device != "cuda":
        yield lambda: 0
        return
    quieten = tagger.quieten_libraries
    tagger.quieten_libraries = lambda: None  # or what Lightning waits for would be ignored with its other warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield lambda: sum("called a synchronizing" in str(warning.message) for warning in caught)
        finally:
            torch.cuda.set_sync_debug_mode("default")
            tagger.quieten_libraries = quieten


def waits(bench: Bench) -> dict[str, Any]:
    """Waits of a run with few updates and with many, and of extraction in few batches and in many.

    What grows with them is what each costs. The rest is waited for once per epoch or run.
    """
    base = bench.config(
        bench.size.small, "layers=last", "probe.hidden_size=8", "probe.num_layers=1", "probe.max_epochs=1"
    )
    tuning = bench.config(bench.size.small, "probe=finetune", "probe.max_epochs=1")
    planned = plan(base)
    num_sentences = len(planned.corpus.splits["train"].tags)
    ensure_features(planned.text, planned.encoder, base.features, bench.device)
    most = max(4, num_sentences // 100)  # sentences in a batch
    work: dict[str, dict[int, Callable[[], Any]]] = {"training": {}, "fine_tuning": {}, "extraction": {}}
    for name, cfg, sizes in (
        ("training", base, (most, most // 4)),
        ("fine_tuning", tuning, (-(-num_sentences // 4), -(-num_sentences // 16))),
    ):
        for size in sizes:
            out = str(bench.folder / f"waits-{name}-{size}")
            its = replace(cfg, probe=replace(cfg.probe, batch_size=size), results_dir=out)
            prepare_results(Path(out))
            shown = schedule.passes(num_sentences, size) if name == "training" else 1
            work[name][shown * schedule.updates(num_sentences, size)] = lambda its=its: run(its, log=lambda _: None)  # type: ignore[misc]
    for pieces in (1024, 128):
        features = replace(base.features, batch_pieces=pieces, cache_dir=str(bench.folder / f"pieces-{pieces}"))
        parts = [Corpus("part", {"dev": split}) for split in planned.text.splits.values()]
        num_batches = sum(len(bare_batches(part, planned.encoder, features, bench.device)) for part in parts)
        work["extraction"][num_batches] = lambda its=features: ensure_features(  # type: ignore[misc]
            planned.text, planned.encoder, its, bench.device
        )
    result: dict[str, Any] = {}
    for name, by_number in work.items():
        found = {}
        for number, call in by_number.items():
            with counted_waits(bench.device) as count:
                call()
            found[number] = count()
        few, many = sorted(found)
        each = (found[many] - found[few]) / (many - few)
        result[name] = {"waits": found, "each": round(each, 2)}
    if result["training"]["each"] > 0.05:
        raise PartFailed("an update of a training waits for the card", result)
    return result


class PartFailed(Exception):
    """A part that has measured something it should not have. found: what."""

    def __init__(self, message: str, found: dict[str, Any]) -> None:
        super().__init__(message)
        self.found = found


# By name: what measures, and the seconds that it may take. Together 470, as the products are measured twice.
PARTS: dict[str, tuple[Callable[[Bench], dict[str, Any]], int]] = {
    "tests": (run_tests, 60),
    "products": (products, 15),
    "extraction": (extract, 75),
    "epoch": (epoch, 60),
    "sweep": (sweep, 120),
    "waits": (waits, 40),
    "agreement": (agreement, 85),
}
TOTAL_S = 480
STARTING_S = 10  # a part's imports, and CUDA


def measure(name: str, bench: Bench) -> dict[str, Any]:
    """One part, in this process: what it found, or why it failed."""
    clock = time.perf_counter()
    try:
        found: dict[str, Any] = {"ok": True, **PARTS[name][0](bench)}
    except PartFailed as failed:
        found = {"ok": False, "error": str(failed), **failed.found}
    except (Exception, UserError) as error:
        found = {"ok": False, "error": f"{type(error).__name__}: {str(error)[:500]}"}
    return {**found, "seconds": round(time.perf_counter() - clock, 1)}


def in_a_process(name: str, options: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    """One part in a process of its own, which is ended with all its children when its time is over."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        given = [f"--size={options.size}", f"--device={options.device}", f"--tests={options.tests}", f"--out={out}"]
        given += [f"--encoder={options.encoder}"] if options.encoder else []
        command = [sys.executable, __file__, f"--part={name}", f"--folder={folder}", f"--limit={limit_s}", *given]
        clock = time.monotonic()
        with (Path(folder) / "log").open("w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if out.exists():
                return json.loads(out.read_text())
            log.seek(0)
            end = log.read()[-500:]
        seconds = round(time.monotonic() - clock, 1)
        how = f"not done after {limit_s:.0f} s" if seconds >= limit_s else f"ended with exit code {process.returncode}"
        return {"ok": False, "error": f"{how}: {end}", "seconds": seconds}


def workspace_of_its_own(options: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    """The products in a process without the setting that deterministic runs need."""
    kept = os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    try:
        return in_a_process("products", options, limit_s)
    finally:
        if kept is not None:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = kept


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--encoder", type=Path, metavar="DIR", help="a checkpoint; default: random weights")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--tests", default="tests/runs/test_gpu.py", help="where the tests marked gpu are looked for")
    parser.add_argument("--seconds", type=float, default=TOTAL_S, help="for all parts together")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    if options.part:
        if options.part != "products":
            resolve_device(options.device)
        until = started + options.limit - STARTING_S
        bench = Bench(SIZES[options.size], options.device, options.folder, options.encoder, options.tests, until)
        write_atomically(options.out, json.dumps(measure(options.part, bench)) + "\n")
        return 0
    if options.device == "cuda" and len(cards := gpus()) != 1:
        if not cards:
            print("gpu.py: PyTorch sees no GPU here. Its logic without one: --size tiny --device cpu", file=sys.stderr)
            return 2
        os.environ["CUDA_VISIBLE_DEVICES"] = cards[0]
    own_workspace = "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    resolve_device(options.device)  # sets cuBLAS's workspace for the parts
    parts: dict[str, Any] = {}
    for name in PARTS:
        if name not in options.only:
            continue
        limit = min(PARTS[name][1] * options.seconds / TOTAL_S, started + options.seconds - time.monotonic())
        parts[name] = in_a_process(name, options, limit) if limit > 1 else {"ok": False, "error": "no time left"}
        if name == "products" and own_workspace and options.device == "cuda":
            parts["products_own_workspace"] = workspace_of_its_own(options, limit)
        print(f"{name}: {json.dumps(parts[name])}", flush=True)
    about = hardware(options.device, 1)  # last: it starts CUDA in this process
    result = {
        "benchmark": "gpu",
        "ok": all(part["ok"] for part in parts.values()),
        "device": about.device_name,
        "cuda": about.cuda,
        "cudnn": about.cudnn,
        "driver": about.driver,
        "versions": versions(),
        "encoder": str(options.encoder.name) if options.encoder else "random weights",
        "size": options.size,
        "seconds": round(time.monotonic() - started, 1),
        "parts": parts,
    }
    line = json.dumps(result, ensure_ascii=False)
    options.out.write_text(line + "\n", encoding="utf-8")
    print(line)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
