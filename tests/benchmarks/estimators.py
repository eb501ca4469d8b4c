"""What foretells the trained rows best? Estimators that need no training, on one sample, against a results folder.

    python tests/benchmarks/estimators.py results/conll2003-minilm-sentence data=conll2003 data.path=DIR \\
        encoder=minilm_l6 screen.pca_components=256

For each choice of layers that was trained there: a ridge readout fitted without one part of the sampled sentences, its
dev F1, accuracy and squared error; with its scores put through a logistic regression fitted on the part left out
(calibrated), also of a word and two neighbours to each side (stacked): F1 and log loss; two measures of transferability
that look at training words alone, H-score (Bao et al. 2019) and LogME (You et al. 2021), of the same windows; and the
same readouts of the states of a random BiLSTM (--lstm), which sees the scale of its input. Prints a Markdown table:
tau-b over the separated pairs, Pearson and regret, over all rows and without plain sums.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from probe.config import LayersConfig
from probe.features.extraction import ensure_features
from probe.probes.batches import EvaluationBatches, TaggedWords
from probe.probes.bilstm import BiLSTM
from probe.probes.combine import Streamed
from probe.probes.selection import Selection
from probe.probes.training import labels_of
from probe.runs.plan import inputs_of
from probe.scoring.metrics import f1_of
from probe.screen.candidates import readout_of
from probe.screen.gold import Gold
from probe.screen.moments import Text, moments, reduced, reduction
from probe.screen.ranking import Scored
from probe.screen.readout import RIDGE_ALPHAS, scores, solve
from probe.screen.screen import beyond, draw, squared_error
from probe.screen.validation import compare
from probe.settings import config_of
from probe.tables.row import Row
from probe.tables.rows import build_rows

STACKED = 2  # neighbours to each side whose scores the second readout sees
UNITS = 256  # of the random BiLSTM, per direction


def logistic(scores: Tensor, labels: Tensor, num_labels: int) -> Tensor:
    """(features + 1, C) weights of a multinomial logistic regression, lightly penalised."""
    features = torch.cat([scores, torch.ones(len(scores), 1)], 1)
    weights = torch.zeros(features.shape[1], num_labels, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = cross_entropy(features @ weights, labels) + 1e-4 * weights[:-1].square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weights.detach()


def beside(scores: Tensor, text: Text) -> Tensor:
    """(W, (2 * STACKED + 1) * C): each word's scores and its neighbours', zero beyond the sentence."""
    outside = beyond(text, STACKED)
    places = range(-STACKED, STACKED + 1)
    moved = [scores.roll(-k, 0).masked_fill(outside[i][:, None], 0) for i, k in enumerate(places)]
    return torch.cat(moved, 1)


def h_score(xx: Tensor, xy: Tensor, counts: Tensor) -> float:
    """The share of the features' covariance that lies between the labels: tr(cov(x)^-1 cov(E[x|y])).

    xx: (D, D) and xy: (D, C), sums over words of the centred features and their products with one-hot labels. counts:
    (C,) of each label.
    """
    # what lies between is sum over labels of n_c * mean_c * mean_c^T, and xy holds n_c * mean_c
    solved = torch.linalg.lstsq(xx, xy, driver="gelsd").solution  # (D, C)
    return float((solved * xy / counts).sum())


def log_evidence(xx: Tensor, xy: Tensor, yy: Tensor, words: int, rounds: int = 11) -> float:
    """LogME: the log evidence a word of a Bayesian linear regression to each one-hot label, the mean over labels.

    xx: (D, D). xy: (D, C). yy: (C,), sums of the centred labels' squares.
    """
    values, vectors = torch.linalg.eigh(xx)
    values, along = values.clamp(min=0), (vectors.T @ xy).square()  # (D,), (D, C)
    evidences = []
    for own, square in zip(along.T, yy, strict=True):
        alpha, beta = torch.ones((), dtype=xx.dtype), torch.ones((), dtype=xx.dtype)
        for _ in range(rounds):
            precision = alpha + beta * values
            weights = beta**2 * (own / precision**2).sum()  # squared length of the posterior mean
            error = square - 2 * beta * (own / precision).sum() + beta**2 * (values * own / precision**2).sum()
            free = (beta * values / precision).sum()
            alpha, beta = free / weights, (words - free) / error
        precision = alpha + beta * values
        weights = beta**2 * (own / precision**2).sum()
        error = square - 2 * beta * (own / precision).sum() + beta**2 * (values * own / precision**2).sum()
        log = len(values) * alpha.log() + words * (beta / (2 * torch.pi)).log() - precision.log().sum()
        evidences.append(float(log - beta * error - alpha * weights) / 2 / words)
    return sum(evidences) / len(evidences)


class Bench:
    def __init__(self, overrides: list[str]) -> None:
        cfg = config_of(overrides)
        inputs = inputs_of(cfg)
        self.cfg, self.corpus = cfg.screen, inputs.corpus
        self.store = ensure_features(inputs.corpus, inputs.encoder, cfg.features, "cpu")
        self.known, label_ids = labels_of(self.corpus.splits["train"].tags)
        self.texts = {
            name: draw(self.corpus, name, number, cfg.screen.samples, cfg.seed, label_ids)
            for name, number in (("train", cfg.screen.sentences), ("dev", cfg.screen.dev_sentences))
        }
        train, dev = self.texts["train"], self.texts["dev"]
        self.gold = Gold(dev.tags, self.known, dev.part, cfg.screen.samples, self.corpus.task)
        self.left_out = train.of_part(0)
        directions = min(cfg.screen.pca_components, self.store.hidden_size)
        self.to = reduction(self.store, train, directions)
        self.layers = {name: reduced(self.store, text, self.to) for name, text in self.texts.items()}
        self.beyond = {name: beyond(text, cfg.screen.window) for name, text in self.texts.items()}
        labels = torch.nn.functional.one_hot(torch.from_numpy(train.labels), len(self.known)).float()
        fitted = ~self.left_out
        lengths = np.repeat(train.lengths, train.lengths)[fitted]
        self.sums = moments(
            self.layers["train"][torch.from_numpy(fitted)],
            labels[torch.from_numpy(fitted)],
            train.position[fitted],
            lengths,
            cfg.screen.window,
        )
        self.labels = labels

    def measure(self, name: str, given: dict[str, Tensor]) -> dict[str, float]:
        """Every score of a readout's scores of train and dev; the higher the better."""
        gold = torch.from_numpy(self.texts["dev"].labels)
        out = torch.from_numpy(self.left_out)
        found = {
            f"{name}, F1": self.f1(given["dev"]),
            f"{name}, accuracy": float((given["dev"].argmax(1) == gold).float().mean()),
            f"{name}, squared error": -float(squared_error(given["dev"], gold.numpy()).mean()),
        }
        stacked = {split: beside(part, self.texts[split]) for split, part in given.items()}
        for how, part in (("calibrated", given), ("stacked", stacked)):
            labels = torch.from_numpy(self.texts["train"].labels)[out]
            weights = logistic(5 * part["train"][out], labels, len(self.known))
            predicted = torch.cat([5 * part["dev"], torch.ones(len(part["dev"]), 1)], 1) @ weights
            shown = gold >= 0
            found[f"{name}, {how}, F1"] = self.f1(predicted)
            found[f"{name}, {how}, log loss"] = -float(cross_entropy(predicted[shown], gold[shown]))
        return found

    def f1(self, scores: Tensor) -> float:
        return float(f1_of(self.gold.counts(scores.argmax(1).numpy()).sum(0)))

    def ridge(self, row: Row) -> dict[str, float]:
        found: dict[str, float] = {}
        for alpha in RIDGE_ALPHAS:
            [(_, readout)] = solve(self.sums, [readout_of(row.combine, row.indices)], self.to, {1: alpha})
            given = {name: next(scores([readout], self.layers[name], self.beyond[name])) for name in self.texts}
            found |= self.measure(f"ridge {alpha:g}", given)
        return found

    def transferability(self, row: Row) -> dict[str, float]:
        """H-score and LogME of the windows of a row's layers, from second moments."""
        combine, indices = readout_of(row.combine, row.indices)
        by_layer, some = (*self.layers["train"].shape[1:],), list(indices)
        by_layer = (by_layer[0], len(self.sums.x) // (by_layer[0] * by_layer[1]), by_layer[1])
        rows = [[self.sums.of_pair(i, k) if i <= k else self.sums.of_pair(k, i).T for k in some] for i in some]
        within = by_layer[1:]
        xx = torch.stack([torch.stack(row, 1) for row in rows]).double().unflatten(3, within).unflatten(1, within)
        xy = self.sums.xy.view(*by_layer, -1)[some].double()
        x = self.sums.x.view(by_layer)[some].double()
        if combine == "mean":
            basis = self.to.pca_components[some].double() * self.to.scale[some, None, None].double() / len(some)
            xx = torch.einsum("ihr,ikrjls,jgs->khlg", basis, xx, basis)
            xy, x = torch.einsum("ihr,ikrc->khc", basis, xy), torch.einsum("ihr,ikr->kh", basis, x)
        size, words, y = x.numel(), self.sums.words, self.sums.y.double()
        xx = xx.reshape(size, size) - torch.outer(x.flatten(), x.flatten()) / words
        xy = xy.reshape(size, -1) - torch.outer(x.flatten(), y) / words
        return {"H-score": h_score(xx, xy, y), "LogME": log_evidence(xx, xy, y - y**2 / words, words)}

    @torch.inference_mode()
    def states(self, row: Row) -> dict[str, Tensor]:
        """A random BiLSTM's states over the layers as a probe would read them; mix at equal weights."""
        combine = "mean" if row.combine == "mix" else row.combine
        selection = Selection(row.name, tuple(row.indices), combine, row.width)
        states = {}
        for name, text in self.texts.items():
            vectors = Streamed(self.store, name, selection)[torch.from_numpy(text.rows)].float()
            torch.manual_seed(0)
            lstm = BiLSTM(vectors.shape[1], UNITS, 1, 0.0)
            states[name] = torch.empty(len(vectors), 2 * UNITS)
            for batch in EvaluationBatches(TaggedWords(vectors, text.tags, {})):
                states[name][batch.rows[batch.words]] = lstm(batch.features, batch.mirror)[batch.words]
        return states

    def random_lstm(self, row: Row) -> dict[str, float]:
        states = self.states(row)
        fitted = torch.from_numpy(~self.left_out)
        x, y = states["train"][fitted].double(), self.labels[fitted].double()
        mean, bias = x.mean(0), y.mean(0)
        x = x - mean
        matrix = x.T @ x
        matrix.diagonal().add_(1e-4 * matrix.diagonal().mean())
        weights = torch.linalg.solve(matrix, x.T @ (y - bias))
        given = {name: ((part.double() - mean) @ weights + bias).float() for name, part in states.items()}
        return self.measure("random BiLSTM", given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("against", type=Path, help="a results folder with trained rows of the same text and encoder")
    parser.add_argument("--lstm", action="store_true")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    bench = Bench(options.overrides)
    rows = [row for row in build_rows(options.against) if row.n and row.indices and not row.condition]
    known: dict[tuple[str, tuple[int, ...]], dict[str, float]] = {}
    found: list[dict[str, float]] = []
    for row in rows:
        readout = readout_of(row.combine, row.indices)
        if readout not in known:
            known[readout] = bench.ridge(row) | bench.transferability(row)
        found.append(known[readout] | (bench.random_lstm(row) if options.lstm else {}))
        print(f"{row.name}: {found[-1]}", flush=True)
    print("| estimator | tau of separated pairs | Pearson | regret | without sums: tau | Pearson | regret |")
    print("|---|---|---|---|---|---|---|")
    for name in found[0]:
        scored = [
            (row, Scored(LayersConfig(row.indices, row.combine, row.name), row.width, 0, [one[name]], [0.0]))
            for row, one in zip(rows, found, strict=True)
        ]
        every, without = compare(scored), compare([pair for pair in scored if pair[0].combine != "sum"])
        cells = [name]
        for one in (every, without):
            cells += [f"{one.tau_separated or 0:.2f}", f"{one.pearson or 0:.3f}", f"{one.regret['1']:.2f}"]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
