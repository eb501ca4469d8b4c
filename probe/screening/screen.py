"""Screens choices of layers: trains a quick probe on each, and compares them by the statistic of every table.

Quick probes are trained on some sentences of train and scored on some of dev. Test is never read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from probe.config import LayersConfig, ScreenConfig, UserError
from probe.data.corpus import Corpus
from probe.data.order import order_of
from probe.probes.candidates import Candidate, candidate, fixed
from probe.probes.selection import select
from probe.probes.training import classifier_labels, tags_of
from probe.runs.samples import OVER_SEEDS, Cover, SplitStatistics, samples_over
from probe.scoring.compare import Comparison, Sample
from probe.scoring.significance import Units
from probe.screening.quick_probe import WindowedWords, quick_predictions
from probe.system.machine import num_cores
from probe.vectors.store import FeatureStore, bounds

CONCATENATED = 4  # the best single layers, of which concatenations are tried


@dataclass(frozen=True)
class DrawnText:
    """Holds some sentences of a split, in their order, with the document of each; None: unknown.

    rows: (W,), the positions of their words in the split.
    """

    split: str
    tags: list[list[str]]
    documents: list[int] | None
    rows: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, split: str, most: int, seed: int) -> DrawnText:
        tags, documents = corpus.splits[split].tags, corpus.splits[split].documents
        drawn = np.sort(np.random.default_rng([seed, len(split)]).permutation(len(tags))[:most])
        ends = bounds([len(sentence) for sentence in tags])
        rows = np.concatenate([np.arange(ends[k], ends[k + 1]) for k in drawn])
        return cls(split, [tags[k] for k in drawn], documents and [documents[k] for k in drawn], rows)

    def read(self, store: FeatureStore, layer: int) -> Tensor:
        """Returns the vectors of a layer, (W, H) in float32. Raises DamagedShard."""
        parts = []
        for shard, (vectors,) in store.read(self.split, [layer]):
            first, last = np.searchsorted(self.rows, [shard.first, shard.last])
            parts.append(vectors[torch.from_numpy(self.rows[first:last] - shard.first)].float())
        return torch.cat(parts)


@dataclass(frozen=True)
class Screened:
    """Holds a choice of layers of one encoder with what its quick probes came to.

    influence: (S, U), how much each unit of dev moves each score; None if the score has none. units: of dev's text.
    """

    candidate: Candidate
    influence: np.ndarray | None
    units: Units


class Screening:
    """Screens one encoder. The store must be complete. words: how many of train and dev were drawn.

    order: of dev's sentences, as data.order states it. Raises UserError for a text that is too small, DamagedShard.
    """

    def __init__(self, store: FeatureStore, cfg: ScreenConfig, seed: int, device: str, order: str | None) -> None:
        self.store, self.cfg, self.seed, self.device = store, cfg, seed, device
        self.order = order_of(order, store.corpus.about.get("neighbours"), "dev")
        corpus = store.corpus
        self.train = DrawnText.of(corpus, "train", cfg.sentences, seed)
        self.dev = DrawnText.of(corpus, "dev", cfg.dev_sentences, seed)
        self.labels, ids = classifier_labels(self.train.tags)
        if len(self.labels) < 2:
            raise UserError(
                f"screen.sentences={cfg.sentences}: the sentences drawn from train have no label but "
                f"{self.labels[0]}, so there is nothing to learn. Draw more sentences, or check the labels."
            )
        self.gold = torch.tensor([ids[tag] for sentence in self.train.tags for tag in sentence]).to(device)
        self.words = {text.split: len(text.rows) for text in (self.train, self.dev)}

    def run(self) -> Iterator[Screened]:
        """Yields every single layer and preset, then concatenations of the best single layers.

        Each core trains one choice at a time, on one thread: for many small steps, a second thread gains nothing.
        """
        depth, size = self.store.num_layers, self.store.hidden_size
        torch.set_num_threads(1)
        presets, singles = fixed(depth, size), []
        with ThreadPoolExecutor(num_cores() if self.device == "cpu" else 1) as pool:
            for screened in pool.map(self.screened, presets):
                if len(screened.candidate.layers.indices) == 1:
                    singles.append(screened.candidate)
                yield screened
            singles.sort(key=lambda one: -one.mean)
            best = sorted(one.layers.indices[0] for one in singles[:CONCATENATED])
            numbers = range(2, self.cfg.max_layers + 1)
            chosen = [LayersConfig([*some], "concat") for n in numbers for some in itertools.combinations(best, n)]
            found = [candidate(select(layers, depth, size)) for layers in chosen]
            tried = {one.input for one in presets}
            yield from pool.map(self.screened, [replace(one, searched=True) for one in found if one.input not in tried])

    def screened(self, choice: Candidate) -> Screened:
        """Trains the quick probes of a choice of layers and scores them on dev."""
        train, dev = self._features(choice)
        task, statistics = self.store.corpus.task, []
        for ids in quick_predictions(
            train, self.gold, len(self.labels), dev, self.seed, self.cfg.seeds, task.is_ranked
        ).cpu():
            counts = task.counts(self.dev.tags, tags_of(ids, self.labels, self.dev.tags))
            if self.dev.documents is not None:
                counts["documents"] = self.dev.documents
            statistics.append(SplitStatistics.of(counts, task.headline, self.order))
        units = statistics[0].units
        scores = [task.headline.value(one.statistics) for one in statistics]
        moves = [one.influence(units) for one in statistics] if task.headline.influence else None
        return Screened(replace(choice, scores=scores), None if moves is None else np.stack(moves), units)

    def _features(self, choice: Candidate) -> tuple[WindowedWords, WindowedWords]:
        """Returns the vectors of train and dev, scaled by train's as layers.normalize=scale does.

        Each layer is read by itself and kept in float16, so that wide choices take little memory.
        """
        layers, size, texts = choice.layers.indices, self.store.hidden_size, (self.train, self.dev)
        is_concat = choice.input[0] == "concat"
        dtype = torch.float16 if is_concat else torch.float32
        joined = [torch.zeros(len(text.rows) + 1, choice.width, dtype=dtype) for text in texts]  # the last one: zeros
        for number, layer in enumerate(layers):
            columns = slice(number * size, (number + 1) * size) if is_concat else slice(None)
            train = self.train.read(self.store, layer)
            mean = train.mean(0)
            deviation = (train - mean).square_().mean().sqrt() or 1.0
            for whole, text in zip(joined, texts, strict=True):
                vectors = train if text is self.train else text.read(self.store, layer)
                whole[:-1, columns] += vectors.sub_(mean).div_(deviation)
        if not is_concat:
            deviation = joined[0].square().mean().sqrt() or 1.0
            joined = [whole.div_(deviation).half() for whole in joined]
        train_words, dev_words = (
            WindowedWords.of(whole.to(self.device), [*map(len, text.tags)], self.cfg.window)
            for whole, text in zip(joined, texts, strict=True)
        )
        return train_words, dev_words


def ranked(screened: Sequence[Screened]) -> tuple[list[Candidate], Cover]:
    """Returns choices of one or several encoders best first, with how far each lies behind the truly best one.

    All must be scored on the same text. Also returns what other text this holds for.
    """
    order = sorted(screened, key=lambda one: (-one.candidate.mean, one.candidate.cost, one.candidate.name))
    moves = [one.influence for one in order if one.influence is not None]
    scores = [one.candidate.scores for one in order]
    samples, cover = [*map(Sample, scores)], OVER_SEEDS
    if len(moves) == len(order):
        samples, cover = samples_over(scores, moves, [one.units for one in order])
    behind = Comparison(samples).behind()
    return [replace(one.candidate, behind=within) for one, within in zip(order, behind, strict=True)], cover
