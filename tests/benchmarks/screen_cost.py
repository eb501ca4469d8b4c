"""The screen: seconds and memory, beside other tools.

    python tests/benchmarks/screen_cost.py data=conll2003 data.path=DIR encoder=minilm_l6

The store is filled first; then `probe screen` runs in a process of its own, into a folder of its own, so that its
seconds (with Python's start) and its peak of memory are a user's. --transformer-ranker does the same sentences and the
same encoder with TransformerRanker (pip install transformer-ranker), one number a model. --loes lets LOES (pip install
git+https://github.com/arnesh2212/loes) choose as many layers as the widest concatenation of the screen has, from the
stored vectors of words of train. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import probe
from probe.runs.plan import plan, store_of
from probe.runs.screens import load_screen
from probe.settings import config_of
from probe.vectors.sources import complete_store, text_encoder


def screened(overrides: list[str]) -> dict[str, Any]:
    """Seconds and memory of the command."""
    complete_store(plan(config_of(overrides)).store, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "probe", "screen", *overrides, f"results_dir={folder}"]
        clock = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - clock
        if done.returncode:
            sys.exit(done.stderr)
        print(done.stdout)
        record = load_screen(Path(folder))
        assert record is not None
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(os.times().children_user + os.times().children_system, 1),
        "peak_rss_mb": record.peak_rss_mb,
        "candidates": len(record.ranked),
    }


def transformer_ranker(overrides: list[str]) -> dict[str, Any]:
    """The nearest other tool on as many sentences of train; nothing where it is not installed."""
    if importlib.util.find_spec("transformer_ranker") is None:
        print("TransformerRanker is not installed: pip install transformer-ranker", file=sys.stderr)
        return {}
    from datasets import Dataset, DatasetDict
    from transformer_ranker import TransformerRanker

    cfg = config_of(overrides)
    store = store_of(cfg)
    split = store.corpus.splits["train"]
    names = sorted({tag for tags in split.tags for tag in tags})
    rows = {
        "tokens": split.words[: cfg.screen.sentences],
        "tags": [[names.index(tag) for tag in tags] for tags in split.tags[: cfg.screen.sentences]],
    }
    clock = time.perf_counter()
    ranker = TransformerRanker(DatasetDict(train=Dataset.from_dict(rows)), dataset_downsample=1.0)
    result = ranker.run([str(text_encoder(store.source).folder)], batch_size=32)
    print(result)
    return {"transformer_ranker_seconds": round(time.perf_counter() - clock, 1)}


def loes(overrides: list[str], num_words: int) -> dict[str, Any]:
    """The layers that LOES chooses from this many words of train; nothing where it is not installed."""
    if importlib.util.find_spec("loes") is None:
        print("LOES is not installed: pip install git+https://github.com/arnesh2212/loes", file=sys.stderr)
        return {}
    from loes import select_layers_from_custom_embeddings

    cfg = config_of(overrides)
    train = probe.features(*overrides, "layers=single", "layers.indices='0:'", each=True).train
    names = sorted(set(train.tags))
    torch.manual_seed(cfg.seed)
    some = torch.randperm(len(train.tags))[:num_words].sort().values
    labels = torch.tensor([names.index(train.tags[word]) for word in some.tolist()])
    clock = time.perf_counter()
    chosen = select_layers_from_custom_embeddings(
        embeddings=train.vectors[some].float(),
        targets=labels,
        k=cfg.screen.max_layers,
        task="classification",
        show_progress=False,
    ).selected_layers
    seconds = time.perf_counter() - clock
    return {"loes": sorted(chosen), "loes_words": num_words, "loes_seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--transformer-ranker", action="store_true")
    parser.add_argument("--loes", type=int, metavar="WORDS", help="let LOES choose from so many words of train")
    options = parser.parse_intermixed_args()
    measured = screened(options.overrides)
    if options.transformer_ranker:
        measured |= transformer_ranker(options.overrides)
    if options.loes:
        measured |= loes(options.overrides, options.loes)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
