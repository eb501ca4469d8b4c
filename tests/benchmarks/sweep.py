"""What a sweep costs: over its own trainings in a plain loop, at start-up, and as words and runs grow; in one run.

    python tests/benchmarks/sweep.py encoder=minilm_l6 data.path=DIR                              # 12 runs of 3 epochs
    python tests/benchmarks/sweep.py encoder=minilm_l6 data.path=DIR --seeds 1 --epochs 10 --no-growth   # six of ten
    python tests/benchmarks/sweep.py encoder=minilm_l6 data=demo probe.hidden_size=64 --no-growth  # for a small CPU

The first --sentences of each split are written as column files to a temporary folder, where the store and the results
go too. Then, as a user would type it, `probe extract`, and on the warm store `probe -m` with the paper's six rows and
--seeds seeds, every epoch trained. Against it stand the same trainings one after another in PyTorch's packed BiLSTM on
all cores, with the dev split scored after each epoch as here: one epoch of each row is measured, and counted as often
as the sweep trains that row. Start-up is from the imports to the first training step of a run on the warm store (median
of 3). Growth: one row, two seeds, at a quarter, half and all of the sentences; and at all with two, four and eight
seeds. The last line is one JSON object.
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
from pathlib import Path

import torch
from training import Packed, bare_epoch

from probe.data.corpus import Corpus, load_corpus
from probe.probes.batches import TaggedWords, TrainingBatches, evaluation_batches
from probe.probes.combine import read_selection
from probe.probes.schedule import passes
from probe.runs.plan import plan
from probe.settings import configs_of
from probe.system.machine import num_cores

ROWS = ("embeddings", "second_to_last", "last", "sum_last_four", "concat_last_four", "sum_all")
START_UP = """
import os, sys, time
import pytorch_lightning, torch, transformers
import probe.cli, probe.vectors.extraction, probe.runs.sweep, probe.probes.tagger
def first_step(*_):
    print("first step after", time.perf_counter() - clock, flush=True)
    os._exit(0)
probe.probes.tagger.Training.training_step = first_step
clock = time.perf_counter()
probe.cli.main()
"""


def write_cut(corpus: Corpus, sentences: int, folder: Path) -> list[str]:
    """Column files of the first sentences of each split; returns the settings that name them."""
    folder.mkdir()
    for name, split in corpus.splits.items():
        with (folder / f"{name}.conll").open("w", encoding="utf-8") as stream:
            last = None
            for number, (words, tags) in enumerate(zip(split.words[:sentences], split.tags, strict=False)):
                document = split.documents[number] if split.documents is not None else None
                if document != last:
                    stream.write("-DOCSTART-\tO\n\n")
                    last = document
                stream.writelines(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
                stream.write("\n")
    files = [f"data.{name}={name}.conll" for name in corpus.splits]
    return ["data=columns", f"data.path={folder}", f"data.name={corpus.name}", *files]


def typed(*arguments: str) -> float:
    """Seconds of one `probe` command."""
    clock = time.perf_counter()
    subprocess.run([sys.executable, "-m", "probe", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - clock


def start_up(settings: list[str]) -> float:
    done = subprocess.run([sys.executable, "-c", START_UP, *settings], check=True, capture_output=True, text=True)
    return float(done.stdout.rpartition(" ")[2])


def packed_epoch(settings: list[str]) -> float:
    """Seconds of one epoch and of scoring dev, in a loop that a PyTorch user would write, on all cores."""
    planned = plan(configs_of(settings)[0][0])
    cfg, splits = planned.cfg.probe, planned.corpus.splits
    labels = {tag: i for i, tag in enumerate(sorted({tag for tags in splits["train"].tags for tag in tags}))}
    train, dev = (
        TaggedWords(read_selection(planned.store, name, planned.selection), splits[name].tags, labels)
        for name in ("train", "dev")
    )
    torch.set_num_threads(num_cores())
    model = Packed(cfg, planned.selection.width, len(labels))
    order = torch.randperm(len(train.lengths)).split(cfg.batch_size)
    assert len(order) == len(TrainingBatches(train, cfg.batch_size, 0))
    seconds = bare_epoch(model, model.loss, (train.batch(sentences) for sentences in order), cfg)
    seconds *= passes(len(train.lengths), cfg.batch_size)  # of a small corpus an epoch is several
    model.eval()
    clock = time.perf_counter()
    with torch.inference_mode():
        for batch in evaluation_batches(dev):
            model.loss(batch)
    return seconds + time.perf_counter() - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=3000, help="of each split")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-growth", action="store_true")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    corpus = load_corpus(configs_of(options.overrides)[0][0].data)
    others = [override for override in options.overrides if not override.startswith(("data=", "data."))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LAYER_PROBE_CACHE"] = str(folder / "store")
        epochs = [f"probe.max_epochs={options.epochs}", f"probe.patience={options.epochs}"]
        cut = write_cut(corpus, options.sentences, folder / "all")
        settings = [*cut, *others, *epochs]
        extract_s = typed("extract", *settings)
        seeds = ",".join(map(str, range(1, options.seeds + 1)))
        sweep = ["-m", f"layers={','.join(ROWS)}", f"seed={seeds}", f"results_dir={folder / 'six'}", *settings]
        sweep_s = typed(*sweep)
        table_s = typed("table", str(folder / "six"))
        packed = [packed_epoch([*settings, f"layers={row}"]) for row in ROWS]
        serial_s = sum(packed) * options.epochs * options.seeds
        start_up_s = statistics.median(
            start_up([*settings, "layers=concat_last_four", f"results_dir={folder / 'first'}"]) for _ in range(3)
        )
        words = corpus_words(corpus, options.sentences)
        print(f"{options.sentences} sentences of each split, {words} words, {len(ROWS)} rows, {options.seeds} seeds")
        print(f"extraction {extract_s:.1f} s, sweep {sweep_s:.1f} s, with {options.epochs} epochs each run")
        print(f"the same in a packed loop, {num_cores()} threads: {serial_s:.1f} s ({sum(packed):.1f} s six epochs)")
        print(f"start-up {start_up_s:.2f} s after the imports; `probe table` {table_s:.2f} s in all")
        result: dict[str, float | list[float]] = {
            "parallel_over_serial": round(sweep_s / serial_s, 3),
            "start_up_seconds": round(start_up_s, 2),
            "table_seconds": round(table_s, 2),
            "sweep_seconds": round(sweep_s, 1),
            "extract_seconds": round(extract_s, 1),
        }
        if not options.no_growth:
            one_row = ["-m", "layers=second_to_last", *others, *epochs]
            by_words, by_runs = [], []
            for part in (4, 2, 1):
                smaller = write_cut(corpus, options.sentences // part, folder / f"part{part}")
                typed("extract", *smaller, *others)
                by_words.append(typed(*one_row, *smaller, "seed=1,2", f"results_dir={folder}/words{part}"))
            for runs in (2, 4, 8):
                seeds = ",".join(map(str, range(1, runs + 1)))
                by_runs.append(typed(*one_row, *cut, f"seed={seeds}", f"results_dir={folder}/runs{runs}"))
            result |= {
                "seconds_at_1_2_4_times_the_words": [round(s, 1) for s in by_words],
                "seconds_at_1_2_4_times_the_runs": [round(s, 1) for s in by_runs],
            }
        print(json.dumps(result))


def corpus_words(corpus: Corpus, sentences: int) -> int:
    return sum(len(words) for split in corpus.splits.values() for words in split.words[:sentences])


if __name__ == "__main__":
    main()
