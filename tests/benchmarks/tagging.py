"""How fast a kept probe tags, against extraction alone of the same text, in one run.

    python tests/benchmarks/tagging.py RESULTS ROW                       the split that the probe was tested on
    python tests/benchmarks/tagging.py RESULTS ROW --times 10 data.path=DIR

RESULTS holds a run made with save_probe=true. Both begin with words and end with tags, or with a store on disk; encoder
and probe are loaded before. Times are medians of --repeat rounds, the two taking turns. The last line is one JSON
object; `ratio` is tagging's time by extraction's, where less is better (tagging computes no deeper than its layers).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split
from probe.features import extraction
from probe.features.extraction import ensure_features
from probe.runs.config_from_record import config_from_record
from probe.settings import configs_of
from probe.tag.corpus_tagger import CorpusTagger
from probe.tag.io import select_saved_probe


def repeated(split: Split, times: int) -> Split:
    """The same text so many times after itself, documents apart."""
    documents = split.documents
    if documents is not None:
        documents = [one + k * (documents[-1] + 1) for k in range(times) for one in documents]
    lines = list(range(1, len(split.words) * times + 1))
    return Split(list(split.words) * times, list(split.tags) * times, documents, lines, "test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("row")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    file, record = select_saved_probe(options.results, options.row, None)
    cfg = config_from_record(record, lambda typed: configs_of(typed)[0][0], options.overrides)
    split = repeated(load_corpus(cfg.data).splits["test"], options.times)
    corpus = Corpus("benchmark", {"test": split})
    applier = CorpusTagger(file, record, cfg)
    extraction.load_model = lambda *_: applier.model  # both have theirs loaded before
    seconds: dict[str, list[float]] = {"extraction": [], "tagging": []}
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as folder:
            clock = time.perf_counter()
            ensure_features(corpus, applier.encoder, replace(cfg.features, cache_dir=folder), applier.device)
            seconds["extraction"].append(time.perf_counter() - clock)
        clock = time.perf_counter()
        tagged = sum(len(tags) for tags in applier.tag(split))
        seconds["tagging"].append(time.perf_counter() - clock)
        assert tagged == split.num_words
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rounds = zip(seconds["tagging"], seconds["extraction"], strict=True)
    result = {
        "words": split.num_words,
        "words_per_second": {name: round(split.num_words / median) for name, median in medians.items()},
        "ratio": round(statistics.median(a / b for a, b in rounds), 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
