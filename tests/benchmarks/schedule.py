"""The schedule against long trainings at a constant rate, on small and sparse samples of corpora.

    python tests/benchmarks/schedule.py encoder=minilm_l6 probe.hidden_size=64 --conll2003 DIR --keep FOLDER

Samples: the first 200, 600 and 2,000 sentences of train (all, where there are fewer), 400 of dev, and all of test;
plain, and thinned: of the sentences with names every tenth (--thin) is left. A sentence's vectors depend on no other
sentence, so they are taken from the store of the whole corpus. On each sample the paper's six rows are trained with
every seed, twice: under the schedule, and at the rate it starts with for --reference epochs. Of both the epoch with
the best dev F1 counts, with its F1 on test: on dev, the more epochs a training has to choose from, the higher its best
is by chance alone. Beside it stands what the schedule's runs took, and what of that led to their best, in updates.

Each training is a JSON file in --keep; what is there is not trained again, so the command continues where it was
stopped, and may run several times side by side. What it prints is a Markdown table of all there is, mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from probe.cli.settings import configs_of
from probe.config import ProbeConfig
from probe.data.tags import Tags
from probe.features.extraction import ensure_features
from probe.probing.batches import TaggedWords
from probe.probing.combine import Streamed
from probe.probing.tagger import train_tagger
from probe.runs.plan import Plan, plan
from probe.scoring.metrics import span_f1
from probe.system.files import write_atomically
from probe.system.locks import Hold

ROWS = ("embeddings", "second_to_last", "last", "sum_last_four", "concat_last_four", "sum_all")
SIZES = (200, 600, 2000)
DEV_SENTENCES = 400
SCHEDULES = ("reference", "ours")


class Training(NamedTuple):
    """thin: of so many sentences with names one is left; 1: a plain sample."""

    seed: int
    corpus: str
    thin: int
    size: int
    row: str
    schedule: str

    @property
    def file(self) -> str:
        return f"{self.corpus}-{self.size}-thin{self.thin}-{self.row}-seed{self.seed}-{self.schedule}.json"


def sample(tags: Tags, size: int, thin: int) -> list[int]:
    """The places of a sample's sentences in the split."""
    with_names = [i for i, sentence in enumerate(tags) if any(tag != "O" for tag in sentence)]
    left_out = set(with_names) - set(with_names[::thin])
    return [i for i in range(len(tags)) if i not in left_out][:size]


def words_of(planned: Plan, split: str, size: int, thin: int, label_ids: dict[str, int]) -> TaggedWords:
    """A sample of a split, ready to train on. An empty label_ids is filled."""
    store = ensure_features(planned.text, planned.encoder, planned.cfg.features, "cpu")
    tags = planned.corpus.splits[split].tags
    places = sample(tags, size, thin)
    starts = [0]
    for sentence in tags:
        starts.append(starts[-1] + len(sentence))
    rows = torch.tensor([row for i in places for row in range(starts[i], starts[i + 1])])
    chosen = [tags[i] for i in places]
    if not label_ids:
        label_ids.update({label: i for i, label in enumerate(sorted({tag for tags in chosen for tag in tags}))})
    return TaggedWords(Streamed(store, split, planned.selection)[rows], chosen, label_ids)


def constant(cfg: ProbeConfig, epochs: int) -> ProbeConfig:
    return replace(cfg, anneal=1.0, patience=epochs, max_epochs=epochs)


def spans(tags: Tags) -> int:
    return sum(tag.startswith("B-") for sentence in tags for tag in sentence)


def trained(training: Training, planned: Plan, reference_epochs: int) -> dict[str, Any]:
    """What one training gave: its curve, and updates in an epoch of it."""
    label_ids: dict[str, int] = {}
    train = words_of(planned, "train", training.size, training.thin, label_ids)
    dev = words_of(planned, "dev", DEV_SENTENCES, training.thin, label_ids)
    test = words_of(planned, "test", len(planned.corpus.splits["test"].tags), training.thin, label_ids)
    probe = planned.cfg.probe
    cfg = constant(probe, reference_epochs) if training.schedule == "reference" else probe
    tagger = train_tagger(
        cfg, planned.selection, train, dev, list(label_ids), span_f1, training.seed, tell=lambda _: None
    )
    return {
        "train_sentences": len(train.tags),
        "dev_sentences": len(dev.tags),
        "test": span_f1(test.tags, tagger.predict(test)),
        "spans": {name: spans(split.tags) for name, split in (("train", train), ("dev", dev), ("test", test))},
        "epoch_updates": tagger.schedule.epoch_updates,
        "outcome": tagger.schedule.outcome,
        "best_epoch": tagger.best_epoch,
        "curve": tagger.curve,
    }


def samples(corpora: Mapping[str, Tags], thin: int) -> list[tuple[str, int, int]]:
    """Corpus, thin and size of every sample, the small ones first; one that has all there is has none above it."""
    found: dict[tuple[str, int, int], tuple[str, int, int]] = {}
    for size, (corpus, tags), left in product(SIZES, corpora.items(), (thin, 1)):
        found.setdefault((corpus, left, len(sample(tags, size, left))), (corpus, left, size))
    return list(found.values())


def table(folder: Path, trainings: list[Training]) -> Iterator[str]:
    """A line for each sample and row of which any seed has both trainings."""
    yield "| corpus | sentences | thinned | row | seeds | reference | ours | difference | updates | to the best |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    results = {
        training: json.loads((folder / training.file).read_text())
        for training in trainings
        if (folder / training.file).exists()
    }
    for corpus, thin, size, row in dict.fromkeys((t.corpus, t.thin, t.size, t.row) for t in trainings):
        seeds = sorted({t.seed for t in trainings})
        pairs = [[results.get(Training(seed, corpus, thin, size, row, name)) for name in SCHEDULES] for seed in seeds]
        both = [(reference, ours) for reference, ours in pairs if reference and ours]
        if not both:
            continue
        scores = [[100 * result["test"] for result in pair] for pair in both]
        reference, ours = (statistics.mean(column) for column in zip(*scores, strict=True))
        lengths = [(len(ours["curve"]), ours["best_epoch"], ours["epoch_updates"]) for _, ours in both]
        used, needed = (statistics.mean(length[k] * length[2] for length in lengths) for k in (0, 1))
        yield (
            f"| {corpus} | {both[0][0]['train_sentences']} | {'yes' if thin > 1 else 'no'} | {row} | {len(both)} "
            f"| {reference:.1f} | {ours:.1f} | {ours - reference:+.1f} | {used:.0f} | {needed:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conll2003", metavar="DIR", help="with CoNLL-2003's files; without: the bundled demo alone")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, required=True, help="for the result of each training")
    parser.add_argument("--reference", metavar="EPOCHS", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--thin", metavar="N", type=int, default=10, help="every Nth sentence with names is left")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--only-table", action="store_true", help="of what is there")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    sources = {"demo": ["data=demo"]}
    if options.conll2003:
        sources["conll2003"] = ["data=conll2003", f"data.path={options.conll2003}"]

    @cache
    def planned(corpus: str, row: str) -> Plan:
        return plan(configs_of([*sources[corpus], f"layers={row}", *options.overrides])[0][0])

    corpora = {name: planned(name, ROWS[0]).corpus.splits["train"].tags for name in sources}
    seeds = range(1, options.seeds + 1)  # outermost: the table has all its cells from the first seed on
    trainings = [
        Training(seed, corpus, thin, size, row, schedule)
        for seed, row, (corpus, thin, size), schedule in product(
            seeds, options.rows.split(","), samples(corpora, options.thin), SCHEDULES
        )
    ]
    options.keep.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for training in () if options.only_table else trainings:
        file = options.keep / training.file
        with Hold(options.keep / f"{training.file}.lock", exclusive=True) as hold:
            if not hold.held or file.exists():
                continue
            result = trained(training, planned(training.corpus, training.row), options.reference)
            write_atomically(file, json.dumps(result))
        print(f"{training.file}: {100 * result['test']:.2f}", flush=True)
    print("\n".join(table(options.keep, trainings)))


if __name__ == "__main__":
    main()
