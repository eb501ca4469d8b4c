"""Ranks every choice of layers without training: draws sentences, gathers moments, solves and scores readouts.

Train and dev are each divided into parts of whole sentences. Each jackknife sample omits one part of both. Test is
never read.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from probe.config import ScreenConfig, UserError
from probe.data.corpus import Corpus
from probe.probes.candidates import Candidate, concatenations, fixed
from probe.probes.training import classifier_labels
from probe.screening.gold import Gold
from probe.screening.moments import Moments, Reduction, TextSample, moments, num_pca_components, reduced, reduction
from probe.screening.ranking import rank
from probe.screening.readout import RIDGE_ALPHAS, Key, scores, solve
from probe.system.machine import num_cores
from probe.system.progress import progress_bar
from probe.vectors.store import FeatureStore

SMALL = 1024  # for a matrix narrower than this, a second thread costs more than it gains
EVERY = 100  # most concatenations of one number of layers to try all; beyond, the best of one layer less are extended
BEAM_WIDTH = 8  # how many of those are extended
PARTS_BYTES = 300e6  # the moments of all parts are kept if they take no more than this; else they are gathered again


def screen(
    store: FeatureStore,
    corpus: Corpus,
    cfg: ScreenConfig,
    seed: int,
    device: str = "cpu",
    log: Callable[[str], None] = lambda _: None,
) -> Screening:
    """Ranks every single layer, preset, concatenation of up to cfg.max_layers and mean of neighbouring layers.

    The store must be complete. With one label per sentence it gives vectors of sentences, and what is said of words
    here and in `moments` is true of sentences. Raises UserError for too few sentences, DamagedShard.
    """
    is_small = (2 * cfg.window + 1) * (store.num_layers + 1) * store.hidden_size < SMALL
    torch.set_num_threads(1 if is_small else num_cores())
    train = TextSample(corpus, "train", cfg.sentences, cfg.samples, seed)
    dev = TextSample(corpus, "dev", cfg.dev_sentences, cfg.samples, seed)
    for text, setting in ((train, "sentences"), (dev, "dev_sentences")):
        if (there := len(text.tags)) < cfg.samples:
            raise UserError(
                f"screen.samples={cfg.samples}: expected at most {there}, the drawn sentences of {text.split} (of "
                f"{len(corpus.splits[text.split].words)}, by screen.{setting})."
            )
    num_components = num_pca_components(cfg.pca_components, store, cfg.window, device)
    to = reduction(store, train, num_components, device)
    log(
        f"screen: {len(train.tags)} sentences of train, {len(dev.tags)} of dev; of each layer {num_components} "
        f"of {store.hidden_size} components, {100 * min(to.kept):.1f} % of its variance or more"
    )
    found = Screening(store, corpus, cfg, train, dev, to)
    found.run()
    return found


class Screening:
    """Holds train and dev of a screen, and what it finds.

    ranked: best first. ridge_alphas: by the number of concatenated layers. beam_sizes: the numbers of layers for which
    not every concatenation was tried.
    """

    def __init__(
        self, store: FeatureStore, corpus: Corpus, cfg: ScreenConfig, train: TextSample, dev: TextSample, to: Reduction
    ) -> None:
        self.cfg, self.to, self.train, self.dev = cfg, to, train, dev
        self.depth, self.hidden_size = store.num_layers, store.hidden_size
        self.train_layers = reduced(store, train, to, torch.float16)
        self.dev_layers = reduced(store, dev, to, torch.float16)
        known, _ = classifier_labels(corpus.splits["train"].tags)
        one_hot = torch.nn.functional.one_hot(torch.from_numpy(train.labels), len(known))
        self.labels = one_hot.float().to(to.mean.device)
        self.gold, self.score = Gold(dev, known, cfg.samples, corpus.task), corpus.task.headline
        self.ridge_alphas: dict[int, float] = {}
        self.beam_sizes: list[int] = []
        self.ranked: list[Candidate] = []
        self.scores: dict[Key, list[tuple[float, float]]] = {}  # dev F1 and squared error per word, of each sample

    def run(self) -> None:
        """Scores and ranks every candidate."""
        candidates: list[Candidate] = []
        with progress_bar(None, "screening", "readouts") as bar:
            for part, others in enumerate(self._without_each_part()):
                if part == 0:
                    self._choose_ridge_alphas(others)
                    candidates = self._candidates(others, bar)
                    bar.total = len(candidates) * self.cfg.samples
                else:
                    self._score(candidates, others, part, bar)
        scored = []
        for one in candidates:
            f1, error = map(list, zip(*self.scores[one.readout], strict=True))
            scored.append(replace(one, f1=f1, error=error))
        self.ranked = rank(scored)

    def _candidates(self, others: Moments, bar: tqdm) -> list[Candidate]:
        """Returns all candidates. Each is scored on the first sample, which chooses the concatenations to extend."""
        candidates = {one.readout: one for one in fixed(self.depth, self.hidden_size)}

        def score() -> None:
            new = [one for key, one in candidates.items() if key not in self.scores]
            self._score(new, others, 0, bar)  # together: they share work

        found = concatenations(1, self.depth, self.hidden_size)
        for size in range(2, min(self.cfg.max_layers, self.depth + 1) + 1):
            extended: list[Sequence[int]] = []
            if math.comb(self.depth + 1, size) > EVERY:
                self.beam_sizes.append(size)
                score()
                found.sort(key=lambda one: self.scores[one.readout][0][0], reverse=True)
                extended = [one.layers.indices for one in found[:BEAM_WIDTH]]
            found = concatenations(size, self.depth, self.hidden_size, extended)
            candidates = {one.readout: one for one in found} | candidates
        score()
        return list(candidates.values())

    def _without_each_part(self) -> Iterator[Moments]:
        """Yields the moments of train without its first part, without its second, ..."""
        words_of = [self.train.part == part for part in range(self.cfg.samples)]
        parts = deque([self._moments(words_of[0])])
        if parts[0].xx.nbytes * self.cfg.samples <= PARTS_BYTES:  # each is gathered once
            parts += map(self._moments, words_of[1:])
            total = copy.deepcopy(parts[0])
            for part in list(parts)[1:]:
                total.add(part)
        else:
            total = self._moments(np.ones(len(self.train.rows), bool))
        for words in words_of:
            left_out = parts.popleft() if parts else self._moments(words)
            total.add(left_out, -1)
            yield total
            total.add(left_out)
            del left_out  # before the next is gathered

    def _moments(self, words: np.ndarray) -> Moments:
        """Returns the moments of these words of train (a mask), which form whole sentences."""
        there = torch.from_numpy(words)
        layers = self.train_layers if words.all() else self.train_layers[there]
        text, window = self.train, self.cfg.window
        return moments(layers, self.labels[there], text.position[words], text.length[words], window)

    def _choose_ridge_alphas(self, sums: Moments) -> None:
        """Chooses the ridge penalty of each number of layers by the least squared error on held-out parts of train.

        Single layers use the best single layer's penalty, because a useless layer prefers the largest one. More layers
        use the penalty of the concatenation of the best single layers.
        """
        words = torch.from_numpy(self.train.part == 0)
        layers, gold = self.train_layers[words], self.train.labels[words.numpy()]
        outside = self.train.beyond(self.cfg.window)[:, words].to(layers.device)

        def errors(keys: Sequence[Key]) -> dict[tuple[tuple[int, ...], float], float]:
            found: dict[tuple[tuple[int, ...], float], float] = {}
            for alpha in RIDGE_ALPHAS:
                solved = dict(solve(sums, keys, self.to, {1: alpha}))
                for (_, indices), given in zip(solved, scores([*solved.values()], layers, outside), strict=True):
                    found[indices, alpha] = float(squared_error(given, gold).mean())
            return found

        found = errors([("concat", (k,)) for k in range(self.depth + 1)])
        best_first = list(dict.fromkeys(indices[0] for indices, _ in sorted(found, key=found.__getitem__)))
        sizes = range(2, min(self.cfg.max_layers, len(best_first)) + 1)
        found |= errors([("concat", tuple(sorted(best_first[:size]))) for size in sizes])
        for indices, alpha in sorted(found, key=found.__getitem__, reverse=True):
            self.ridge_alphas[len(indices)] = alpha

    def _score(self, candidates: Sequence[Candidate], sums: Moments, part: int, bar: tqdm) -> None:
        """Scores some candidates without one part of dev."""
        kept = self.dev.part != part
        solved = dict(solve(sums, [one.readout for one in candidates], self.to, self.ridge_alphas))
        outside = self.dev.beyond(self.cfg.window).to(self.dev_layers.device)
        for key, found in zip(solved, scores([*solved.values()], self.dev_layers, outside), strict=True):
            error = float(squared_error(found, self.dev.labels)[kept].mean())
            statistics = self.score.statistics(self.gold.counts(found.argmax(1).cpu().numpy()))
            score = float(self.score.value(np.delete(statistics, part, axis=0).sum(0)))
            self.scores.setdefault(key, []).append((score, error))
            bar.update()


def squared_error(scores: Tensor, labels: np.ndarray) -> np.ndarray:
    """Returns (W,) between scores and one-hot labels; a label not in train is an extra column of zero scores."""
    gold = torch.from_numpy(labels).to(scores.device)
    own = scores.gather(1, gold.clamp(min=0)[:, None])[:, 0]
    return (scores.square().sum(1) + 1 - 2 * torch.where(gold >= 0, own, torch.zeros_like(own))).cpu().numpy()
