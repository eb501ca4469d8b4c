"""Which quick method orders choices of layers as long training does? The bake-off that chose the method of the screen.

    python tests/benchmarks/bakeoff.py measure LOG --conll2003 DIR --mpnet DIR [--only NAME]
    python tests/benchmarks/bakeoff.py table LOG
    python tests/benchmarks/bakeoff.py forecasts
    python tests/benchmarks/bakeoff.py little [--draws 100]

`measure` appends one line of JSON to LOG for each text, number of sentences, draw, choice of layers and method. It
continues where it was stopped. `table` holds the scores against the dev scores of the committed folders. Train is drawn
at random, and of dev at most as many sentences. Every row is centred and divided by one number per layer, as
layers.normalize=scale does, and a sum is a mean. Seconds are CPU seconds for one seed.

`forecasts` holds the forecasts of committed screens against the dev scores of committed folders.

`little` screens 600 texts of two classes again and again: 400 of train and 200 of dev, drawn from the bundled corpus.
The truth of a choice is its mean over all draws.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau
from seqeval.metrics import f1_score
from tabulate import tabulate
from torch import Tensor, nn

import probe
from probe.config import ProbeConfig
from probe.data.corpus import Corpus
from probe.data.tasks.tags import TAGS
from probe.probes.batches import TaggedWords
from probe.probes.selection import Selection
from probe.probes.tagger import train_tagger
from probe.runs.plan import store_of
from probe.runs.screens import load_screen
from probe.screening.report import forecast, to_train_first, worth_training
from probe.screening.screen import DrawnText, Screening, ranked
from probe.settings import config_of
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore

ROOT = Path(__file__).resolve().parents[2]
SIZES = {3000: (0, 1), 600: (0, 1), 300: (0, 1)}  # sentences of train, and the draws of them
SEEDS = (0, 1)
WIDEST = 3200  # a ridge regression on more features takes minutes
MINILM, MPNET = "sentence-transformers/all-MiniLM-L6-v2", "all-mpnet-base-v2"
# The text: its settings, its encoder, and the folders (with the epochs of their longest table) that are the truth.
TEXTS: dict[str, tuple[list[str], str, list[str]]] = {
    "demo": (["data=demo"], MINILM, ["demo-quickstart-long", "demo-minilm"]),
    "demo-mpnet": (["data=demo"], MPNET, ["demo-mpnet"]),
    "minilm": (["data=conll2003"], MINILM, ["conll2003-minilm-sentence", "conll2003-two-encoders"]),
    "minilm-document": (["data=conll2003", "features.context=document"], MINILM, ["conll2003-minilm-document"]),
    "minilm-ner": (["data=conll2003"], MINILM, ["conll2003-minilm-tasks"]),
    "minilm-chunks": (["data=conll2003_chunks"], MINILM, ["conll2003-minilm-tasks"]),
    "minilm-pos": (["data=conll2003_pos"], MINILM, ["conll2003-minilm-tasks"]),
    "mpnet": (["data=conll2003"], MPNET, ["conll2003-mpnet", "conll2003-mpnet-epochs", "conll2003-two-encoders"]),
    "mpnet-ner": (["data=conll2003"], MPNET, ["conll2003-mpnet-tasks"]),
    "mpnet-chunks": (["data=conll2003_chunks"], MPNET, ["conll2003-mpnet-tasks"]),
    "mpnet-pos": (["data=conll2003_pos"], MPNET, ["conll2003-mpnet-tasks"]),
}
Row = tuple[str, tuple[int, ...]]  # how layers are combined (concat or mean), and which


def truths(name: str) -> dict[str, dict[Row, float]]:
    """Returns the mean dev score in percent of the rows of each folder of a text, from its longest training."""
    settings, encoder, folders = TEXTS[name]
    data = settings[0].removeprefix("data=").replace("_", "-")
    found: dict[str, dict[Row, float]] = {}
    for folder in folders:
        table = probe.results(ROOT / "results" / folder).table
        table = table[table["label"].notna() & table["condition"].isna() & (table["encoder"] == encoder)]
        table = table[(table["data"] == data) & (table["layers"].map(len) > 0)]
        tables = [rows for _, rows in table.groupby("table")]
        rows = max(tables, key=len)
        found[folder] = {
            row_of(each["combine"], each["layers"]): 100 * each["dev_mean"] for each in rows.to_dict("records")
        }
    return found


def row_of(combine: str, layers: list[int]) -> Row:
    return ("concat" if combine == "concat" or len(layers) == 1 else "mean"), tuple(sorted(layers))


class Text:
    """Holds drawn sentences of a split: layers (L, W, H) in float16, tags by sentence, lengths and words' positions."""

    def __init__(self, store: FeatureStore, corpus: Corpus, split: str, number: int, seed: int) -> None:
        tags = corpus.splits[split].tags
        chosen = sorted(random.Random(seed).sample(range(len(tags)), min(number, len(tags))))
        ends = np.cumsum([len(sentence) for sentence in tags])
        words = np.concatenate([np.arange(ends[k] - len(tags[k]), ends[k]) for k in chosen])
        self.tags = [tags[k] for k in chosen]
        self.lengths = np.array([len(sentence) for sentence in self.tags])
        self.position = torch.from_numpy(np.concatenate([np.arange(n) for n in self.lengths]))
        self.length = torch.from_numpy(np.repeat(self.lengths, self.lengths))
        parts, first = [], 0
        for _, layers in store.read(split, range(store.num_layers + 1)):
            here = words[(words >= first) & (words < first + len(layers[0]))] - first
            parts.append(torch.stack([layer[torch.from_numpy(here)].half() for layer in layers]))
            first += len(layers[0])
        self.layers = torch.cat(parts, 1)

    def window(self, x: Tensor, to_each_side: int) -> Tensor:
        """Returns (W, (2 w + 1) D): each word beside its neighbours within the sentence, zeros beyond its bounds."""
        parts = []
        for offset in range(-to_each_side, to_each_side + 1):
            inside = (self.position + offset >= 0) & (self.position + offset < self.length)
            moved = torch.zeros_like(x)
            moved[inside] = x[torch.arange(len(x))[inside] + offset]
            parts.append(moved)
        return torch.cat(parts, 1)

    def sentences(self, tags: list[str]) -> list[list[str]]:
        ends = np.cumsum(self.lengths)
        return [tags[end - length : end] for end, length in zip(ends, self.lengths, strict=True)]


def features(train: Text, dev: Text, row: Row) -> tuple[Tensor, Tensor]:
    """Returns the row's features of both texts, (W, D) in float32, scaled by statistics of train."""
    combine, layers = row
    ours: tuple[list[Tensor], list[Tensor]] = [], []
    for k in layers:
        x = train.layers[k].float()
        mean = x.mean(0)
        gain = 1 / (x - mean).std()
        for parts, text in zip(ours, (train, dev), strict=True):
            parts.append((text.layers[k].float() - mean) * gain)
    joined = [torch.cat(parts, 1) if combine == "concat" else torch.stack(parts).mean(0) for parts in ours]
    scale = 1 / joined[0].std()
    return joined[0] * scale, joined[1] * scale


class Bench:
    """Holds a text's labels and measures its methods."""

    def __init__(self, train: Text, dev: Text, is_spans: bool) -> None:
        self.train, self.dev, self.is_spans = train, dev, is_spans
        self.labels = sorted({tag for sentence in train.tags for tag in sentence})
        self.ids = {label: k for k, label in enumerate(self.labels)}
        self.y = torch.tensor([self.ids[tag] for sentence in train.tags for tag in sentence])
        self.dev_y = torch.tensor([self.ids.get(tag, -1) for sentence in dev.tags for tag in sentence])

    def score(self, predicted: Tensor) -> float:
        said = self.dev.sentences([self.labels[k] for k in predicted.tolist()])
        if self.is_spans:
            return 100 * float(f1_score(self.dev.tags, said))
        return 100 * float((predicted == self.dev_y).float().mean())

    def methods(self, row: Row, size: int, draw: int) -> Iterator[tuple[str, int, float, float]]:
        """Yields the name of each method with seed, score (higher is better) and CPU seconds."""
        x, dev_x = features(self.train, self.dev, row)
        for to_each_side in (0, 1):
            a, b = (text.window(part, to_each_side) for text, part in ((self.train, x), (self.dev, dev_x)))
            for seed in SEEDS:
                clock = time.process_time()
                score = self.score(perceptron(a, self.y, b, len(self.labels), seed))
                yield f"perceptron, window {to_each_side}", seed, score, time.process_time() - clock
            if draw == 0 and a.shape[1] <= WIDEST:
                clock = time.process_time()
                error, _ = self.ridge(a, b)
                yield f"ridge, window {to_each_side}, squared error", 0, -error, time.process_time() - clock
            del a, b
        for seed in SEEDS:
            clock = time.process_time()
            score = self.small_lstm(x, dev_x, seed)
            yield "small BiLSTM", seed, score, time.process_time() - clock
        if draw == 0:
            clock = time.process_time()
            score = self.score(self.logistic(x, dev_x))
            yield "logistic readout", 0, score, time.process_time() - clock
            clock = time.process_time()
            a, b = self.with_components(row, 192)
            error, predicted = self.ridge(self.train.window(a, 1), self.dev.window(b, 1))
            seconds = time.process_time() - clock
            yield "ridge, 192 components, F1 (the former screen)", 0, self.score(predicted), seconds
            yield "ridge, 192 components, squared error", 0, -error, seconds

    def ridge(self, x: Tensor, dev_x: Tensor) -> tuple[float, Tensor]:
        """Returns the squared error per word on dev of ridge regression to one-hot labels, and the predictions.

        The penalty is the one with the least error on a fifth of train.
        """
        ones, dev_ones = nn.functional.pad(x, (0, 1), value=1.0), nn.functional.pad(dev_x, (0, 1), value=1.0)
        target = nn.functional.one_hot(self.y, len(self.labels)).float()
        cut = len(x) * 4 // 5

        def solve(words: slice, alphas: list[float]) -> Iterator[Tensor]:
            xx, xy = ones[words].T @ ones[words], ones[words].T @ target[words]
            for alpha in alphas:
                penalty = torch.full((len(xx),), alpha * float(xx.diagonal()[:-1].mean()))
                penalty[-1] = 1e-6
                yield torch.linalg.solve(xx + penalty.diag(), xy)

        alphas = [10.0**power for power in range(-4, 0)]
        errors = [float((ones[cut:] @ w - target[cut:]).square().sum(1).mean()) for w in solve(slice(cut), alphas)]
        (w,) = solve(slice(None), [alphas[int(np.argmin(errors))]])
        scores = dev_ones @ w
        known = self.dev_y >= 0
        gold = nn.functional.one_hot(self.dev_y.clamp(min=0), len(self.labels)).float() * known[:, None]
        return float((scores - gold).square().sum(1).mean()), scores.argmax(1)

    def with_components(self, row: Row, most: int) -> tuple[Tensor, Tensor]:
        """Returns the row of layers that are each reduced to their first principal components."""
        combine, layers = row
        if combine == "mean":
            x, dev_x = features(self.train, self.dev, row)
            basis = torch.linalg.eigh(x.T @ x)[1][:, -most:]
            return x @ basis, dev_x @ basis
        parts = [self.with_components(("mean", (k,)), most) for k in layers]
        return torch.cat([a for a, _ in parts], 1), torch.cat([b for _, b in parts], 1)

    def logistic(self, x: Tensor, dev_x: Tensor) -> Tensor:
        """Returns predictions of multinomial logistic regression; the penalty is chosen on a fifth of train."""

        def solve(words: slice, penalty: float) -> nn.Linear:
            layer = nn.Linear(x.shape[1], len(self.labels))
            nn.init.zeros_(layer.weight)
            optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=60, line_search_fn="strong_wolfe")

            def loss() -> Tensor:
                optimizer.zero_grad()
                value = (
                    nn.functional.cross_entropy(layer(x[words]), self.y[words]) + penalty * layer.weight.square().sum()
                )
                value.backward()
                return value

            optimizer.step(loss)
            return layer

        cut = len(x) * 4 // 5
        penalties, losses = [1e-5, 1e-4, 1e-3], []
        for layer in (solve(slice(cut), penalty) for penalty in penalties):
            with torch.no_grad():
                losses.append(float(nn.functional.cross_entropy(layer(x[cut:]), self.y[cut:])))
        layer = solve(slice(None), penalties[int(np.argmin(losses))])
        with torch.no_grad():
            return layer(dev_x).argmax(1)

    def small_lstm(self, x: Tensor, dev_x: Tensor, seed: int) -> float:
        """Returns the dev score of a BiLSTM of 64 units per direction after 300 updates of the project's own engine."""
        of_training: dict[str, Any] = {"learning_rate": 6e-3, "lr_decay": "linear", "max_epochs": 3, "batch_size": 32}
        of_network: dict[str, Any] = {"kind": "bilstm", "num_layers": 1, "hidden_size": 64, "dropout": 0.2}
        unused: dict[str, Any] = {"gradient_clip": 1.0, "patience": 1, "lr_patience": 1, "precision": "float32"}
        cfg = ProbeConfig(**of_network, **of_training, **unused)
        selection = Selection("row", (0,), "concat", x.shape[1], "scale")
        train, dev = (TaggedWords(part, text.tags, self.ids) for part, text in ((x, self.train), (dev_x, self.dev)))
        epochs = itertools.count(1)  # each has a higher score than the one before, so the last one's weights are used
        task = replace(TAGS, headline=replace(TAGS.headline, value=lambda _: next(epochs) / 100))
        trained = train_tagger(cfg, selection, train, dev, self.labels, task, seed, lambda line: None)
        tags, _ = trained.tagger.predict(dev)
        return self.score(torch.tensor([self.ids[tag] for sentence in tags for tag in sentence]))


def perceptron(x: Tensor, y: Tensor, dev_x: Tensor, num_labels: int, seed: int) -> Tensor:
    """Returns predictions of one hidden layer of 64 after 300 updates of at most 512 words or an eighth of train."""
    torch.manual_seed(seed)
    size = max(16, min(512, len(x) // 8))
    net = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, num_labels))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3, fused=True)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 300)
    order = torch.randperm(len(x))
    at = 0
    for _ in range(300):
        if at + size > len(x):
            order, at = torch.randperm(len(x)), 0
        chosen = order[at : at + size]
        at += size
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
        falling.step()
    with torch.no_grad():
        net.eval()
        return torch.cat([net(part).argmax(1) for part in dev_x.split(4096)])


def measure(log: Path, conll2003: str, mpnet: str, only: str | None) -> None:
    torch.set_num_threads(1)
    encoders = {
        MINILM: ["encoder=minilm_l6"],
        MPNET: [f"encoder.path={mpnet}", f"encoder.name={MPNET}", "encoder.num_layers=12"],
    }
    done = {(e["text"], e["size"], e["draw"], row_of(e["combine"], e["layers"])) for e in entries(log)}
    for name, (settings, encoder, _) in TEXTS.items():
        if only is not None and name not in only.split(","):
            continue
        path = [] if name == "demo" else [f"data.path={conll2003}", "features.precision=bfloat16"]
        cfg = config_of([*settings, *path, *encoders[encoder], "layers.indices=[0]"])
        store = complete_store(store_of(cfg), "cpu")
        rows = sorted({row for rows in truths(name).values() for row in rows})
        for size, draws in SIZES.items():
            for draw in draws:
                todo = [row for row in rows if (name, size, draw, row) not in done]
                if not todo or size > 2 * len(store.corpus.splits["train"].tags):
                    continue
                train, dev = (Text(store, store.corpus, split, size, draw) for split in ("train", "dev"))
                bench = Bench(train, dev, store.corpus.task.name == "spans")
                for row in todo:
                    lines = [
                        {
                            "text": name,
                            "size": size,
                            "draw": draw,
                            "combine": row[0],
                            "layers": row[1],
                            "method": method,
                        }
                        | {"seed": seed, "score": round(score, 5), "seconds": round(seconds, 2)}
                        for method, seed, score, seconds in bench.methods(row, size, draw)
                    ]
                    with log.open("a") as stream:
                        stream.write("".join(json.dumps(line) + "\n" for line in lines))
                    print(name, size, draw, row, flush=True)


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


FAR = 0.5  # points of dev score after long training; rows nearer than that need not be told apart


@dataclass
class Held:
    """Holds what a method's scores came to beside the truth, over folders and draws.

    right, pairs: of rows more than FAR apart. taus: Kendall's. width: bias per doubling of the width. depth: bias of
    the lowest third of the layers against the others. Both in points of the truth. slopes: points of the method per
    point of the truth. seconds: of all rows of a draw.
    """

    right: int = 0
    pairs: int = 0
    taus: list[float] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    depth: list[float] = field(default_factory=list)
    slopes: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, scores: Mapping[Row, float], truth: Mapping[Row, float]) -> None:
        rows = [row for row in truth if row in scores]
        for a, b in itertools.combinations(rows, 2):
            if abs(truth[a] - truth[b]) > FAR:
                self.pairs += 1
                self.right += (scores[a] - scores[b]) * (truth[a] - truth[b]) > 0
        x, y = np.array([scores[row] for row in rows]), np.array([truth[row] for row in rows])
        self.taus.append(float(kendalltau(x, y)[0]))
        slope = float(np.polyfit(y, x, 1)[0])
        self.slopes.append(slope)
        width = np.log2([len(row[1]) if row[0] == "concat" else 1 for row in rows])
        if np.ptp(width):
            _, on_truth, on_width = np.linalg.lstsq(np.c_[np.ones(len(rows)), y, width], x, rcond=None)[0]
            self.width.append(float(on_width / on_truth))
        layers = {row[1][0]: row for row in rows if len(row[1]) == 1}
        if len(layers) > 4:
            low = [row for layer, row in layers.items() if layer < max(layers) / 3]
            rest = [row for row in layers.values() if row not in low]
            gap = [
                float(np.mean([part[row] for row in low]) - np.mean([part[row] for row in rest]))
                for part in (scores, truth)
            ]
            self.depth.append(gap[0] / slope - gap[1])

    def cells(self) -> list[str]:
        """Returns what the table shows."""
        pairs = f"{self.right} of {self.pairs} ({100 * self.right / self.pairs:.0f} %)"
        bias = [f"{np.mean(values):+.2f}" if values else "" for values in (self.width, self.depth)]
        return [
            pairs,
            f"{np.nanmean(self.taus):.2f}",
            *bias,
            f"{np.median(self.slopes):.2f}",
            f"{np.mean(self.seconds):.0f}",
        ]


def table(log: Path) -> None:
    """Prints how each method orders the rows of the committed folders, and what its differences become."""
    by_run: dict[tuple[str, int, int], dict[str, dict[Row, list[float]]]] = {}
    seconds: dict[tuple[str, int, int], dict[str, float]] = {}
    for e in entries(log):
        run, row = (e["text"], e["size"], e["draw"]), row_of(e["combine"], e["layers"])
        by_run.setdefault(run, {}).setdefault(e["method"], {}).setdefault(row, []).append(e["score"])
        if e["seed"] == 0:
            of_run = seconds.setdefault(run, {})
            of_run[e["method"]] = of_run.get(e["method"], 0.0) + e["seconds"]
    known = {name: truths(name) for name in {text for text, _, _ in by_run}}
    held: dict[tuple[int, str], Held] = {}
    for (name, size, draw), methods in by_run.items():
        whole = max(map(len, methods.values()))
        for method, scores in methods.items():
            if len(scores) < whole and "ridge" not in method:
                continue
            means = {row: float(np.mean(values)) for row, values in scores.items()}
            variants = {method: means}
            if len(next(iter(scores.values()))) > 1:
                variants = {f"{method}, one seed": {row: values[0] for row, values in scores.items()}}
                variants[f"{method}, two seeds"] = means
            for variant, values in variants.items():
                one = held.setdefault((size, variant), Held())
                one.seconds.append(seconds[name, size, draw][method])
                for truth in known[name].values():
                    one.add(values, truth)
    best_first = sorted(held.items(), key=lambda each: (-each[0][0], -each[1].right / each[1].pairs))
    lines = [[size, method, *one.cells()] for (size, method), one in best_first]
    headers = ["sentences", "method", f"pairs more than {FAR} apart", "tau-b", "width", "depth", "slope", "CPU s"]
    print(tabulate(lines, headers, tablefmt="github"))


def forecasts() -> None:
    """Prints for each committed screen and folder how many rows lie within their forecast, and which are outside."""
    for folder, name in (("demo-quickstart", "demo"), ("conll2003-mpnet", "mpnet"), ("demo-mpnet", "demo-mpnet")):
        screen = load_screen(ROOT / "results" / folder)
        assert screen is not None
        first, kept, at_first = screen.ranked[0], worth_training(screen), to_train_first(screen)
        choices = {one.input: one for one in screen.ranked}
        for truth_folder, truth in truths(name).items():
            best = max(truth.values())
            inside, left_out, rows = 0, [], 0
            for row, value in truth.items():
                if (one := choices.get(row)) is None:
                    continue
                behind, expected = (best - value) / 100, forecast(one, first)
                rows += 1
                inside += expected.low <= behind <= expected.high
                left_out += [one.name] * (behind <= 0.01 and one not in kept)
            print(f"{folder} against {truth_folder}: {inside} of {rows} rows within; left out though near: {left_out}")
            measured = {row: value for row, value in truth.items() if choices.get(row) in at_first}
            if measured:
                near = [one for row, value in truth.items() if (one := choices.get(row)) and best - value <= 1]
                names = ", ".join(one.name for one in at_first)
                print(
                    f"  trained first: {names}; of these, {len(measured)} are measured, "
                    f"the best {best - max(measured.values()):.2f} behind; the cheapest row within 1 point: "
                    f"{min(near, key=lambda one: one.cost).name}"
                )


def little(draws: int) -> None:
    """Prints how often a screen of 600 texts leaves out a choice that is truly within the margin, and what it loses."""
    cfg = config_of(["data=demo_person", "encoder=minilm_l6", "screen.window=0", "screen.max_layers=1"])
    store = complete_store(store_of(cfg), "cpu")
    split = store.corpus.splits["train"]
    scores: dict[str, list[float]] = {}
    found = []
    for draw in range(draws):
        screening = Screening(store, cfg.screen, draw, "cpu", "independent")
        chosen = np.random.default_rng(draw).permutation(len(split.tags))[:600]
        parts = [np.sort(part) for part in (chosen[:400], chosen[400:])]
        texts = [DrawnText("train", [split.tags[k] for k in part], None, part) for part in parts]
        screening.train, screening.dev = texts
        screening.gold = torch.tensor([screening.labels.index(label) for (label,) in texts[0].tags])
        ranking, _ = ranked([*screening.run()])
        for one in ranking:
            scores.setdefault(one.name, []).append(one.mean)
        record: Any = SimpleNamespace(ranked=ranking, margin=1.0)
        found.append((ranking, worth_training(record)))
    truth = {name: float(np.mean(values)) for name, values in scores.items()}
    best = max(truth.values())
    lost_of_first = [best - truth[ranking[0].name] for ranking, _ in found]
    likely = [next(one for one in kept if forecast(one, ranking[0]).behind <= 0.01) for ranking, kept in found]
    near = {name for name, value in truth.items() if best - value <= 0.01}
    left_out = sum(bool(near - {one.name for one in kept}) for _, kept in found)
    lost = [best - truth[one.name] for one in likely]
    print({name: round(100 * (best - value), 2) for name, value in truth.items()})
    print(f"a choice within 1 point is left out in {left_out} of {draws} draws")
    print(f"decided (one choice is left): {sum(len(kept) == 1 for _, kept in found)} of {draws}")
    print(f"kept: {np.mean([len(kept) for _, kept in found]):.1f} of {len(truth)} choices")
    for what, losses in (("the first", lost_of_first), ("the cheapest that is expected to lie within", lost)):
        within = sum(loss <= 0.01 for loss in losses)
        print(f"{what} truly lies within 1 point in {within} of {draws}, and loses {100 * np.mean(losses):.2f} points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "table", "forecasts", "little"])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--conll2003")
    parser.add_argument("--mpnet")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", help="names of texts, with commas")
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.log, options.conll2003, options.mpnet, options.only)
    elif options.what == "table":
        table(options.log)
    elif options.what == "forecasts":
        forecasts()
    else:
        little(options.draws)


if __name__ == "__main__":
    main()
