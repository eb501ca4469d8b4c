"""Measures how many words per second an encoder processes, stopped at each depth that a table's rows need.

The text is the bundled one, so that all folders are comparable; everything else is as in the folder's runs. The depths
take turns in each round, so that other load on the machine slows all of them. Results are in `bench.json`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probe.config import Config, DataConfig, UserError, preset_values
from probe.data.corpus import BUNDLED, Corpus, load_corpus
from probe.runs.records import Records, RunRecord, decoded, json_of, load_records
from probe.system.files import write_json
from probe.system.grouping import group_by

BENCH = "bench.json"
WORDS = 2_000
ROUNDS = 5


@dataclass(frozen=True)
class Bench:
    """Holds a measurement.

    features: key of the features whose encoder, context and precision were used. words_per_second: by the number of
    computed blocks; medians of the rounds.
    """

    features: str
    encoder: str
    device: str
    device_name: str
    threads: int
    versions: dict[str, str | None]
    words: int
    rounds: int
    words_per_second: dict[str, int]
    measured: str  # UTC

    @property
    def machine(self) -> str:
        """Describes the machine in words."""
        return self.device_name if self.device == "cuda" else f"{self.device_name}, {self.threads} threads"


def read_bench(results_dir: Path) -> dict[str, Bench]:
    """Reads a folder's measurements, by the key of its features; empty if there are none. Raises UserError."""
    file = results_dir / BENCH

    def damaged(problem: str) -> UserError:
        return UserError(f"{file} is damaged ({problem}). Remove it, and measure again: probe bench {results_dir}")

    content = json_of(file, damaged)
    benches = [] if content is None else decoded(content, list[Bench], damaged)
    return {bench.features: bench for bench in benches}


def measure(
    results_dir: Path,
    make_config: Callable[[RunRecord], Config],
    log: Callable[[str], None] = print,
    words: int = WORDS,
    rounds: int = ROUNDS,
) -> list[Bench]:
    """Measures every encoder of a folder's records at the depths they need, and writes the results to the folder.

    make_config: returns the config of a record's run. words: of the text, or a few more. rounds: how often each depth
    is measured. Earlier results of other encoders remain.
    """
    benches = read_bench(results_dir)
    records: Records = load_records(results_dir)
    if not records:
        raise UserError(f"{results_dir} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    main = (record for record in records.values() if not record.identity.condition)
    by_features = group_by(main, lambda record: record.identity.features)
    for key, of_features in by_features.items():
        depths = sorted({max(record.layers.indices, default=0) for record in of_features})
        benches[key] = _measure(of_features[0], make_config(of_features[0]), depths, log, words, rounds)
    write_json(results_dir / BENCH, [*benches.values()])
    return [benches[key] for key in by_features]


def _measure(
    record: RunRecord, cfg: Config, depths: list[int], log: Callable[[str], None], num_words: int, num_rounds: int
) -> Bench:
    import torch
    from tqdm import tqdm

    from probe.encoders.checkpoint import open_encoder
    from probe.encoders.encoder import hidden_states, load_model
    from probe.features.depth import stop_at
    from probe.features.store import cut_shards
    from probe.features.words import Text, batches, pieces_at_once, to_tensors
    from probe.system.machine import num_cores, resolve_device
    from probe.system.provenance import hardware, versions

    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    if encoder.fingerprint != record.encoder.fingerprint:
        raise UserError(f"{encoder.folder} is another encoder than that of {record.label}, {record.encoder.name}.")
    device = resolve_device(cfg.device)
    torch.set_num_threads(num_cores())
    corpus = bundled_text(num_words)
    text = Text(corpus, "dev", encoder, cfg.features)
    at_once = pieces_at_once(cfg.features.batch_pieces, encoder, device)
    inputs = [
        [None if part is None else part.to(device) for part in to_tensors(windows, text.pieces, encoder)]
        for shard in cut_shards("dev", corpus.splits["dev"].lengths)
        for windows in batches(text, shard, encoder, at_once, device)
    ]
    model = load_model(encoder, device, cfg.features.precision)
    words = corpus.splits["dev"].num_words
    log(f"{encoder.name} on {device}, {num_cores()} threads, {words} words, after blocks {', '.join(map(str, depths))}")

    @torch.inference_mode()
    def seconds(deepest: int) -> float:
        hooks = stop_at(deepest, model, encoder, device)
        clock = time.perf_counter()
        for ids, mask, types in inputs:
            assert ids is not None
            assert mask is not None
            hidden_states(model, ids, mask, types)
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - clock
        for hook in hooks:
            hook.remove()
        return took

    seconds(depths[-1])  # the first pass allocates memory
    times: dict[int, list[float]] = {depth: [] for depth in depths}
    rounds = [(depth, number) for number in range(num_rounds) for depth in depths]
    for depth, _ in tqdm(rounds, desc="measuring", unit=" passes", dynamic_ncols=True, leave=False):
        times[depth].append(seconds(depth))
    machine = hardware(device, torch.get_num_threads())
    return Bench(
        features=record.identity.features,
        encoder=encoder.name,
        device=device,
        device_name=machine.device_name,
        threads=machine.threads,
        versions={name: version for name, version in versions().items() if name in ("python", "torch", "transformers")},
        words=words,
        rounds=num_rounds,
        words_per_second={str(depth): round(words / statistics.median(took)) for depth, took in times.items()},
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def bundled_text(num_words: int = WORDS) -> Corpus:
    """Returns the first documents of the bundled dev split, `num_words` or a few more, as a corpus of one split."""
    files: dict[str, Any] = {"train": "train.conll", "dev": "dev.conll", "test": "test.conll", "path": BUNDLED}
    dev = load_corpus(DataConfig(**preset_values("data", "columns") | files)).splits["dev"]
    assert dev.documents is not None
    many = 0
    for end, words in enumerate(dev.words):
        if many >= num_words and dev.documents[end] != dev.documents[end - 1]:
            break
        many += len(words)
    part = {name: getattr(dev, name)[:end] for name in ("words", "tags", "documents", "lines")}
    return Corpus("bundled", {"dev": replace(dev, **part)})
