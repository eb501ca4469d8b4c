"""The schedule against long trainings at a constant rate, on small and sparse samples of corpora.

    python tests/benchmarks/schedule.py --conll2003 DIR

The last fifth of train is held out: trainings are scored on it, and the test split is never read, since what is chosen
here becomes a default. Samples: the first --sizes sentences of the rest of train (all, where there are fewer) and 400
of dev; plain, and thinned: of the sentences with names every tenth (--thin) is left. A sentence's vectors depend on no
other sentence, so they are taken from the store of the whole corpus. On each sample the paper's six rows are trained
with every seed, twice: under the schedule, and at the rate it starts with, for --long epochs or, where the schedule
takes more, for as many. Of both the epoch with the best dev F1 counts, with its F1 on what is held out: on dev, the
more epochs a training has to choose from, the higher its best is by chance alone. Beside it stands what the schedule's
runs took, and what of that led to their best, in updates.

Until the schedule first intervenes the two are one training, so they are trained as one; there the process forks.

Each pair is a line of --keep; what is there is not trained again, so the command continues where it was stopped, and
may run several times side by side; with other settings, into another file. It prints, in Markdown, the means over the
seeds of all that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from unittest.mock import patch

import torch

from probe.config import Config
from probe.data.tags import Tags
from probe.features.extraction import ensure_features
from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed
from probe.probes.schedule import Schedule
from probe.probes.tagger import train_tagger
from probe.runs.plan import Plan, plan
from probe.scoring.metrics import span_f1
from probe.settings import configs_of
from probe.system.locks import FileLock, wait_for_lock

KEPT = Path(__file__).parents[2] / "results/schedule-held-out.jsonl"
SETTINGS = ["encoder=minilm_l6", "probe.hidden_size=64"]
ROWS = ("embeddings", "second_to_last", "last", "sum_last_four", "concat_last_four", "sum_all")
SIZES = "200,600,2000"
DEV_SENTENCES = 400
HELD_OUT = 0.2  # of train's sentences, the last


class Pair(NamedTuple):
    """thin: of so many sentences with names one is left; 1: a plain sample."""

    seed: int
    corpus: str
    thin: int
    size: int
    row: str

    def __str__(self) -> str:
        return f"{self.corpus}-{self.size}-thin{self.thin}-{self.row}-seed{self.seed}"


def sample(tags: Tags, size: int, thin: int) -> list[int]:
    """The places of a sample's sentences in the split."""
    with_names = [i for i, sentence in enumerate(tags) if any(tag != "O" for tag in sentence)]
    left_out = set(with_names) - set(with_names[::thin])
    return [i for i in range(len(tags)) if i not in left_out][:size]


def trained_on(tags: Tags) -> int:
    """How many of train's sentences are not held out."""
    return round(len(tags) * (1 - HELD_OUT))


def words_of(planned: Plan, split: str, places: Sequence[int], label_ids: dict[str, int]) -> TaggedWords:
    """Some sentences of a split, ready to train on. An empty label_ids is filled."""
    store = ensure_features(planned.text, planned.encoder, planned.cfg.features, "cpu")
    tags = planned.corpus.splits[split].tags
    starts = [0]
    for sentence in tags:
        starts.append(starts[-1] + len(sentence))
    rows = torch.tensor([row for i in places for row in range(starts[i], starts[i + 1])])
    chosen = [tags[i] for i in places]
    if not label_ids:
        label_ids.update({label: i for i, label in enumerate(sorted({tag for tags in chosen for tag in tags}))})
    return TaggedWords(Streamed(store, split, planned.selection)[rows], chosen, label_ids)


def spans(tags: Tags) -> int:
    return sum(tag.startswith("B-") for sentence in tags for tag in sentence)


class Fork:
    """Where the schedule first lowers the rate or ends the training the process forks: the child goes on as the
    schedule says; the parent waits for its result, then goes on at the first rate.

    ours: the child's result, once it is there. to_parent: None, except in the child.
    """

    def __init__(self, long_epochs: int) -> None:
        self.long_epochs = long_epochs
        self.ours: dict[str, Any] | None = None
        self.to_parent: TextIO | None = None
        self.epochs = 0

    def after_epoch(self, schedule: Schedule, score: float, loss: float) -> bool:
        is_best = AFTER_EPOCH(schedule, score, loss)
        self.epochs += 1
        intervenes = schedule.rate != 1 or schedule.outcome is not None
        if intervenes and self.ours is None and self.to_parent is None:
            reading, writing = os.pipe()
            if child := os.fork():
                os.close(writing)
                with os.fdopen(reading) as stream:
                    self.ours = json.load(stream)
                os.waitpid(child, 0)
                schedule.lr_decay, schedule.rate, schedule.outcome = 1.0, 1.0, None
                schedule.patience = schedule.max_epochs = max(self.long_epochs, len(self.ours["curve"]))
                if self.epochs == schedule.max_epochs:
                    schedule.outcome = "hit_epoch_limit"
            else:
                self.to_parent = os.fdopen(writing, "w")
        return is_best


AFTER_EPOCH = Schedule.after_epoch


def trained(pair: Pair, cfg: Config, long_epochs: int) -> dict[str, Any]:
    """What the long training of a pair gave, and ours. cfg: as typed, for what `auto` means depends on the sample."""
    planned = plan(cfg)
    label_ids: dict[str, int] = {}
    tags = {name: planned.corpus.splits[name].tags for name in ("train", "dev")}
    first = trained_on(tags["train"])
    train = words_of(planned, "train", sample(tags["train"][:first], pair.size, pair.thin), label_ids)
    dev = words_of(planned, "dev", sample(tags["dev"], DEV_SENTENCES, pair.thin), label_ids)
    rest = tags["train"][first:]
    held_out = words_of(planned, "train", [first + i for i in sample(rest, len(rest), pair.thin)], label_ids)
    if (most := Schedule.of(cfg.probe, len(train.tags)).max_epochs) < long_epochs:
        raise SystemExit(f"--long {long_epochs} is more than the {most} epochs that probe.max_epochs allows.")
    fork = Fork(long_epochs)
    torch.set_num_threads(1)  # an extraction took more, and a process that forks must not: the child would hang
    with patch.object(Schedule, "after_epoch", lambda *args: fork.after_epoch(*args)):
        tagger = train_tagger(
            cfg.probe, planned.selection, train, dev, list(label_ids), span_f1, pair.seed, log=lambda _: None
        )
    result = {
        "held_out": span_f1(held_out.tags, tagger.predict(held_out)),
        "outcome": tagger.schedule.outcome,
        "best_epoch": tagger.best_epoch,
        "curve": [{name: round(point[name], 5) for name in ("loss", "dev", "dev_loss")} for point in tagger.curve],
    }
    if fork.to_parent:
        with fork.to_parent as stream:
            json.dump(result, stream)
        os._exit(0)
    return {
        "sentences": len(train.tags),
        "spans": {name: spans(split.tags) for name, split in (("train", train), ("dev", dev), ("held_out", held_out))},
        "epoch_updates": tagger.schedule.epoch_updates,
        "long": result,
        "ours": fork.ours,
    }


def samples(corpora: Mapping[str, Tags], thin: int, sizes: Sequence[int]) -> list[tuple[str, int, int]]:
    """Corpus, thin and size of every sample, the small ones first; one that has all there is has none above it."""
    found: dict[tuple[str, int, int], tuple[str, int, int]] = {}
    for size, (corpus, tags), left in product(sizes, corpora.items(), (thin, 1)):
        found.setdefault((corpus, left, len(sample(tags, size, left))), (corpus, left, size))
    return list(found.values())


def kept(file: Path, settings: Sequence[str] | None = None) -> dict[Pair, dict[str, Any]]:
    """All pairs of a file, which must have been trained with these settings, if any are named."""
    text = file.read_text() if file.exists() else ""
    lines = [json.loads(line) for line in text.split("\n")[:-1]]  # another process may be at the last
    if settings and any(line["settings"] != settings for line in lines):
        raise SystemExit(f"{file} has pairs of other settings than {' '.join(settings)}. Name another with --keep.")
    return {Pair(**line["pair"]): line["result"] for line in lines}


def table(results: Mapping[Pair, dict[str, Any]]) -> Iterator[str]:
    """Two tables with a line for each sample and a column for each row: F1 on what is held out, then updates."""
    cells: dict[tuple[str, int, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for pair in sorted(results, key=lambda pair: (pair.corpus, -pair.thin, pair.size)):
        cells[pair.corpus, pair.thin, pair.size][pair.row].append(results[pair])
    rows = [row for row in ROWS if any(row in of_row for of_row in cells.values())]
    for show in (scores, updates):
        yield f"| corpus | sentences | thinned | seeds | {' | '.join(f'`{row}`' for row in rows)} |"
        yield "|---" * (4 + len(rows)) + "|"
        for (corpus, thin, _), of_row in cells.items():
            seeds = [len(of_seeds) for of_seeds in of_row.values()]
            sentences = next(iter(of_row.values()))[0]["sentences"]
            shown = [show(of_row[row]) if row in of_row else "" for row in rows]
            yield (
                f"| {corpus} | {sentences:,} | {'yes' if thin > 1 else 'no'} "
                f"| {' to '.join(map(str, sorted({min(seeds), max(seeds)})))} | {' | '.join(shown)} |"
            )
        yield ""
    apart = [scores_apart(of_seeds) for of_row in cells.values() for of_seeds in of_row.values()]
    twice = sum(len(r["ours"]["curve"]) > 2 * r["ours"]["best_epoch"] for r in results.values())
    cut = sum(r["ours"]["outcome"] == "hit_epoch_limit" for r in results.values())
    yield (
        f"{len(apart)} cells, {len(results)} pairs of trainings. Ours minus long: mean {statistics.mean(apart):+.2f}, "
        f"in {sum(d < -1 for d in apart)} cells below -1, in {sum(d > 1 for d in apart)} above +1. Of ours {twice} "
        f"took more than twice the epochs that led to their best, and {cut} were ended by probe.max_epochs."
    )


def scores_apart(of_seeds: Sequence[Mapping[str, Any]]) -> float:
    """How far our mean F1, in points, lies above that of the long trainings."""
    return 100 * statistics.mean(score(result["ours"]) - score(result["long"]) for result in of_seeds)


def score(trained: Mapping[str, Any]) -> float:
    """F1 on what is held out; lines from before anything was held out have that on test."""
    return float(trained["held_out"] if "held_out" in trained else trained["test"])


def scores(of_seeds: Sequence[Mapping[str, Any]]) -> str:
    return f"{100 * statistics.mean(score(r['ours']) for r in of_seeds):.1f} ({scores_apart(of_seeds):+.1f})"


def updates(of_seeds: Sequence[Mapping[str, Any]]) -> str:
    used = statistics.mean(len(r["ours"]["curve"]) * r["epoch_updates"] for r in of_seeds)
    best = statistics.mean(r["ours"]["best_epoch"] * r["epoch_updates"] for r in of_seeds)
    return f"{used:,.0f} / {best:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conll2003", metavar="DIR", help="with CoNLL-2003's files; without: the bundled demo alone")
    parser.add_argument("--no-demo", action="store_true", help="CoNLL-2003 alone")
    parser.add_argument("--keep", metavar="FILE", type=Path, default=KEPT, help="where results are written")
    parser.add_argument("--long", metavar="EPOCHS", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--thin", metavar="N", type=int, default=10, help="every Nth sentence with names is left")
    parser.add_argument("--sizes", default=SIZES, help="sentences of each sample")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--only-table", action="store_true", help="of what is kept")
    parser.add_argument("settings", nargs="*", default=SETTINGS, help=f"as `probe` takes them; else {SETTINGS}")
    options = parser.parse_intermixed_args()
    options.rows = options.rows.split(",")
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"--rows: {', '.join(unknown)} is none of {', '.join(ROWS)}")
    if not options.only_table:
        train_all(options)
    print("\n".join(table(kept(options.keep))))


def train_all(options: argparse.Namespace) -> None:
    """Whatever is not kept yet and no other process is at."""
    sources = {} if options.no_demo else {"demo": ["data=demo"]}
    if options.conll2003:
        sources["conll2003"] = ["data=conll2003", f"data.path={options.conll2003}"]

    @cache
    def config(corpus: str, row: str) -> Config:
        return configs_of([*sources[corpus], f"layers={row}", *options.settings])[0][0]

    train = {name: plan(config(name, ROWS[0])).corpus.splits["train"].tags for name in sources}
    corpora = {name: tags[: trained_on(tags)] for name, tags in train.items()}
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    settings = [*options.settings, f"--long={options.long}"]
    sizes = [int(size) for size in options.sizes.split(",")]
    seeds = range(1, options.seeds + 1)  # outermost: the table has all its cells from the first seed on
    for seed, row, (corpus, thin, size) in product(seeds, options.rows, samples(corpora, options.thin, sizes)):
        pair = Pair(seed, corpus, thin, size, row)
        lock = options.keep.with_name(f"{options.keep.name}-{pair}.lock")
        if pair in kept(options.keep, settings):
            continue
        with FileLock(lock, exclusive=True) as hold:
            if hold.busy:
                continue
            if pair not in kept(options.keep, settings):
                result = trained(pair, config(corpus, row), options.long)
                with wait_for_lock(options.keep) as stream:
                    stream.write(json.dumps({"pair": pair._asdict(), "settings": settings, "result": result}).encode())
                    stream.write(b"\n")
                print(f"{pair}: {100 * score(result['long']):.2f}, {100 * score(result['ours']):.2f}", flush=True)
            lock.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
