"""The screen against plain numpy: dense windows, least squares, seqeval; and what odd corpora and layers do to it."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from seqeval.metrics import f1_score
from support.inputs import make_split, random_spans, random_store, stored, written

from probe.config import LayersConfig, ScreenConfig, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.data.tasks import SPANS, TAGS
from probe.probes.candidates import Candidate, concatenations, fixed, readout_of
from probe.scoring.score import ACCURACY, F1
from probe.screening.gold import Gold
from probe.screening.moments import TextSample, moments, reduced, reduction
from probe.screening.ranking import _behind, critical, jackknife, rank, selection_bias
from probe.screening.readout import RIDGE_ALPHAS, scores, solve
from probe.screening.screen import EVERY, screen, squared_error
from probe.vectors.store import FeatureStore


def settings(**changes: int) -> ScreenConfig:
    values: dict = {
        "first": False,
        "window": 1,
        "max_layers": 2,
        "sentences": 40,
        "samples": 3,
        "dev_sentences": 20,
        "pca_components": 16,
    }
    return ScreenConfig(**{**values, **changes})


def corpus_of(train: Split, dev: Split, task=SPANS) -> Corpus:
    return Corpus("made", {"train": train, "dev": dev, "test": make_split(3, 9)}, task)


def store_of(corpus: Corpus, folder: Path) -> FeatureStore:
    return random_store(folder, {name: split.num_words for name, split in corpus.splits.items()})


@pytest.fixture
def corpus() -> Corpus:
    return corpus_of(make_split(40, 1), make_split(20, 2))


@pytest.fixture
def store(corpus: Corpus, tmp_path: Path) -> FeatureStore:
    return store_of(corpus, tmp_path / "store")


def text_of(corpus: Corpus) -> TextSample:
    """Its whole train split, in three parts."""
    return TextSample(corpus, "train", 10**6, 3, seed=1)


def windows(vectors: np.ndarray, lengths: np.ndarray, window: int) -> np.ndarray:
    """(W, D) to (W, K * D), sentence by sentence, word by word; the mean vector stands beyond the bounds."""
    mean = vectors.mean(0)
    rows = []
    start = 0
    for length in lengths:
        sentence = vectors[start : start + length]
        for position in range(length):
            places = range(position - window, position + window + 1)
            rows.append(np.concatenate([sentence[k] - mean if 0 <= k < length else 0 * mean for k in places]))
        start += length
    return np.array(rows)


CHOICES = [
    *(("concat", indices) for n in (1, 2, 3) for indices in itertools.combinations(range(6), n)),
    *(("mean", indices) for indices in [(0, 1), (0, 1, 2), (0, 3, 5), (2, 3, 4, 5), (2, 3)]),
]


@pytest.mark.parametrize(("window", "strength"), [(0, 1e-7), (1, 1e-7), (2, 1e-7), (1, 0.1)])
def test_readouts_are_least_squares_on_windows_within_sentences(
    corpus: Corpus, store: FeatureStore, window: int, strength: float
):
    """Solved together, as they share work, and each by itself in plain numpy."""
    split = corpus.splits["train"]
    known = sorted({tag for tags in split.tags for tag in tags})
    text = text_of(corpus)
    to = reduction(store, text, store.hidden_size)
    layers = reduced(store, text, to)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(text.labels), len(known)).float()
    lengths = [len(words) for words in split.words]
    sums = moments(layers, one_hot, text.position, text.length, window)
    solved = dict(solve(sums, CHOICES, to, {1: strength}))
    assert solved.keys() == set(CHOICES)
    gold = one_hot.double().numpy()
    states = stored(store, "train").double().numpy()
    states = (states - states.mean(1, keepdims=True)) / states.std(1).mean(1)[:, None, None]
    states /= np.sqrt((states**2).mean((1, 2), keepdims=True))  # as the reduced layers are: together of variance one
    for (combine, indices), found in zip(solved, scores([*solved.values()], layers, text.beyond(window)), strict=True):
        chosen = states[list(indices)]
        if combine == "mean":  # of the layers as they are stored
            chosen = [(chosen * to.scale[list(indices), None, None].double().numpy()).mean(0)]
        dense = windows(np.concatenate([*chosen], 1), np.array(lengths), window)
        centred = dense - dense.mean(0)
        variances = (centred**2).sum(0)
        if combine == "concat":  # the mean over all layers, which nearly are of one size
            every = windows(np.concatenate([*states], 1), np.array(lengths), window)
            variances = ((every - every.mean(0)) ** 2).sum(0)
        normal = centred.T @ centred + strength * variances.mean() * np.eye(centred.shape[1])
        weights = np.linalg.solve(normal, centred.T @ (gold - gold.mean(0)))
        expected = centred @ weights + gold.mean(0)
        np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
        own = ((expected - gold) ** 2).sum(1)
        np.testing.assert_allclose(squared_error(found, text.labels), own, atol=5e-3)


def test_moments_without_a_part_are_those_of_the_other_sentences(corpus: Corpus, store: FeatureStore):
    text = text_of(corpus)
    layers = reduced(store, text, reduction(store, text, 5))
    labels = torch.ones(len(text.rows), 1)

    def of(words: np.ndarray):
        return moments(layers[torch.from_numpy(words)], labels[words], text.position[words], text.length[words], 1)

    everything, left_out, others = of(text.part >= 0), of(text.part == 1), of(text.part != 1)
    everything.add(left_out, -1)
    for name in ("xx", "xy", "x", "y"):
        torch.testing.assert_close(getattr(everything, name), getattr(others, name), atol=1e-2, rtol=1e-4)
    assert everything.words == others.words


def test_components_are_the_leading_ones(corpus: Corpus, store: FeatureStore):
    text = text_of(corpus)
    states = stored(store, "train").double().numpy()
    to = reduction(store, text, 4)
    for k, layer in enumerate(states):
        values, vectors = np.linalg.eigh(np.cov(layer.T, bias=True))
        overlap = np.abs(np.linalg.svd(vectors[:, -4:].T @ to.pca_components[k].double().numpy())[1])
        np.testing.assert_allclose(overlap, 1, atol=1e-4)
        assert to.kept[k] == pytest.approx(values[-4:].sum() / values.sum(), abs=1e-5)
    whole = reduced(store, text, reduction(store, text, store.hidden_size))
    assert float(whole.square().mean((0, 2)).sub(1).abs().max()) < 1e-3, "each layer has the variance one"


def test_spans_are_counted_as_seqeval_counts_them_ill_formed_or_not():
    choose = random.Random(3)
    for _ in range(50):
        lengths = [choose.randint(1, 9) for _ in range(8)]
        gold = [written(n, random_spans(choose, n), "IOB2") for n in lengths]
        known = sorted({tag for tags in gold for tag in tags} | {"O", "I-PER"})[: choose.randint(2, 9)]
        guess = [[choose.choice(known) for _ in range(n)] for n in lengths]
        part = np.array([choose.randrange(3) for _ in lengths])
        given: Any = SimpleNamespace(
            tags=gold, part=np.repeat(part, lengths), position=np.concatenate([np.arange(n) for n in lengths])
        )
        counted = Gold(given, known, 3, SPANS).counts(np.array([known.index(t) for tags in guess for t in tags]))
        assert F1.of(counted) == pytest.approx(float(f1_score(gold, guess, zero_division=0)))
        for k in set(part.tolist()):
            ours, theirs = (
                [g for g, p in zip(gold, part, strict=True) if p == k],
                [g for g, p in zip(guess, part, strict=True) if p == k],
            )
            assert F1.of({name: [column[k]] for name, column in counted.items()}) == pytest.approx(
                float(f1_score(ours, theirs, zero_division=0))
            )


def test_of_tags_that_are_no_spans_accuracy_is_counted():
    given: Any = SimpleNamespace(tags=[["N", "V"], ["N"]], part=np.array([0, 0, 1]), position=np.array([0, 1, 0]))
    counted = Gold(given, ["N", "V"], 2, TAGS).counts(np.array([0, 0, 0]))
    assert ACCURACY.value(ACCURACY.statistics(counted)).tolist() == [0.5, 1.0]


def test_every_layer_preset_and_concatenation_is_a_candidate_once():
    single_and_presets = fixed(12, 768)
    by_name = {one.layers.name: one for one in single_and_presets}
    assert {"embeddings", "last", "second_to_last", "layer_7", "concat_last_four", "mean_last_four"} <= by_name.keys()
    assert by_name["mean_last_four"].alike == ["mix_last_four", "sum_last_four"]
    assert by_name["concat_last_four"].width == 4 * 768
    assert (by_name["layer_7"].num_blocks, by_name["embeddings"].num_blocks) == (7, 0)
    for size in (1, 2, 3, 4):
        found = [one.readout for one in concatenations(size, 6, 16)]
        assert found == [("concat", indices) for indices in itertools.combinations(range(7), size)]
    readouts = [one.readout for one in fixed(6, 16)]
    assert len(readouts) == len(set(readouts))
    assert readout_of("sum", [3, 1]) == readout_of("mix", [1, 3]) != readout_of("concat", [1, 3])


def test_a_deep_encoder_extends_its_best_choices(corpus: Corpus, store: FeatureStore, monkeypatch: pytest.MonkeyPatch):
    assert EVERY >= 78, "all pairs of a BERT-base"
    monkeypatch.setattr(sys.modules["probe.screening.screen"], "EVERY", 1)
    monkeypatch.setattr(sys.modules["probe.screening.screen"], "BEAM_WIDTH", 2)
    found = screen(store, corpus, settings(max_layers=3), seed=1)
    assert found.beam_sizes == [2, 3]
    scores = {one.readout[1]: one.f1[0] for one in found.ranked if one.readout[0] == "concat"}
    best = sorted(range(6), key=lambda k: scores[k,], reverse=True)[:2]
    assert {pair for pair in scores if len(pair) == 2} == {
        tuple(sorted({k, other})) for k in best for other in range(6) if other != k
    }


def make(name: str, width: int, *f1s: float, blocks: int = 1, error: float = 0.1) -> Candidate:
    return Candidate(LayersConfig([1], "concat", name), width, blocks, list(f1s), [error] * len(f1s))


def test_of_equal_scores_the_cheapest_is_first():
    every = [
        make("wide", 9, 0.5, 0.7, error=0.01),
        make("deep", 9, 0.5, 0.7, blocks=4, error=0.001),
        make("small", 3, 0.6, 0.6, error=0.3),
        make("better", 9, 0.7, 0.7, blocks=4),
    ]
    assert [one.name for one in rank(every)] == ["better", "small", "wide", "deep"]


def test_the_spread_is_the_jackknifes():
    values = np.random.default_rng(0).normal(size=40)
    means = [float(np.delete(values, i).mean()) for i in range(40)]
    assert jackknife(means) == pytest.approx(values.std(ddof=1) / 40**0.5)


def of_layers(draw: np.random.Generator, screens: int, own: float) -> np.ndarray:
    """Equal candidates, whose errors are the mean of those of their layers, and of their own: (D, 119, 4)."""
    layers = [some for size in (1, 2, 3, 4) for some in itertools.combinations(range(7), size)]
    layers += [tuple(range(first, last)) for first in range(7) for last in range(first + 2, 8)]
    shares = np.array([[(k in some) / len(some) for k in range(7)] for some in layers])
    common = shares @ draw.standard_normal((screens, 7, 4))
    return common + own * draw.standard_normal(common.shape)


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_119_equal_candidates_are_all_tied_in_95_percent(own: float):
    parts = of_layers(np.random.default_rng(7), 1000, own)
    scores = 0.7 + 0.01 * (parts.sum(2, keepdims=True) - parts) / 3  # each without one part
    wrong = (_behind(scores).max(1) > critical(119, 4)).mean()
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / 1000) ** 0.5
    assert wrong > 0.005, "nor is nothing ever called so"
    uncorrected = (_behind(scores).max(1) > scipy.stats.t.ppf(0.975, 3)).mean()
    assert uncorrected > 0.15, "or the correction shows nothing"


def test_candidates_tie_with_the_first_by_a_moderated_t():
    draw = np.random.default_rng(3)
    scores = np.linspace(0.8, 0.6, 12)[:, None] + 0.01 * draw.standard_normal((12, 4))
    ranked = rank([make(f"row_{i}", 1, *own) for i, own in enumerate(scores)])
    first = max(scores, key=np.mean)
    squares = [jackknife((first - own).tolist()) ** 2 for own in scores]
    for one in ranked:
        own = scores[int(one.name.removeprefix("row_"))]
        error = ((jackknife((first - own).tolist()) ** 2 + sum(squares) / 11) / 2) ** 0.5
        assert one.tied == (first.mean() - own.mean() <= critical(12, 4) * error)
    assert 1 < sum(one.tied for one in ranked) < 12


def test_the_first_candidate_is_too_high_by_a_known_bound():
    draw = np.random.default_rng(5)
    bounds, truths = [], []
    for _ in range(20):
        parts = 0.01 * draw.standard_normal((60, 10))
        scores = 0.7 + (parts.sum(1, keepdims=True) - parts) / 9
        ranked = rank([make(f"row_{i}", 1, *own) for i, own in enumerate(scores)])
        bounds.append(selection_bias(ranked))
        truths.append(ranked[0].dev_f1 - 0.7)
    assert np.mean(bounds) == pytest.approx(np.mean(truths), rel=0.2)


def test_a_layer_that_knows_the_tags_is_found(tmp_path: Path):
    corpus = corpus_of(make_split(60, 1), make_split(30, 2))
    random = store_of(corpus, tmp_path / "random")
    for dtype in ("float16", "float32"):
        store = telling(random, corpus, tmp_path / dtype, layer=3, dtype=dtype)
        found = screen(store, corpus, settings(samples=6), seed=1)
        assert 3 in found.ranked[0].layers.indices
        assert found.ranked[0].dev_f1 > 0.9
        single = [one for one in found.ranked if len(one.layers.indices) == 1]
        assert single[0].layers.indices == [3]
        assert [one.tied for one in single] == [True] + [False] * 5
    assert screen(store, corpus, settings(samples=6), seed=1).ranked == found.ranked
    assert screen(store, corpus, settings(sentences=30), seed=2).ranked != found.ranked


def telling(
    store: FeatureStore, corpus: Corpus, folder: Path, layer: int, dtype: str = "float16", constant: int | None = None
) -> FeatureStore:
    """The store with a layer that holds each word's tag, and one that is the same for all words."""
    tags = sorted({tag for split in corpus.splits.values() for sentence in split.tags for tag in sentence})
    made = replace(store, directory=folder, dtype=dtype)
    folder.mkdir()
    for split, shards in store.shards.items():
        states = stored(store, split)
        ids = torch.tensor([tags.index(tag) for sentence in corpus.splits[split].tags for tag in sentence])
        states[layer] = 0.1 * states[layer]
        states[layer].scatter_add_(1, ids[:, None], torch.full((len(ids), 1), 3.0))
        if constant is not None:
            states[constant] = 1.7
        for shard in shards:
            made.write(shard, states[:, shard.first : shard.last].to(getattr(torch, dtype)).contiguous())
    return made


def test_a_constant_layer_is_last_and_harms_nothing(corpus: Corpus, store: FeatureStore, tmp_path: Path):
    made = telling(store, corpus, tmp_path / "made", layer=2, constant=4)
    found = screen(made, corpus, settings(), seed=1)
    by_layers = {tuple(one.layers.indices): one for one in found.ranked if one.layers.combine == "concat"}
    assert by_layers[4,].dev_f1 == 0
    assert by_layers[2, 4].dev_f1 == pytest.approx(by_layers[2,].dev_f1, abs=0.05)
    assert all(np.isfinite(one.error).all() for one in found.ranked)


def test_a_corpus_with_one_label_ranks_all_alike(tmp_path: Path):
    splits = [make_split(20, 1), make_split(10, 2)]
    for split in splits:
        split.tags = [["O"] * len(words) for words in split.words]
    corpus = corpus_of(*splits)
    found = screen(store_of(corpus, tmp_path / "store"), corpus, settings(), seed=1)
    assert {one.dev_f1 for one in found.ranked} == {0.0}
    assert all(one.tied for one in found.ranked)


def test_sentences_of_one_word_and_a_tag_that_train_never_shows(tmp_path: Path):
    train, dev = make_split(30, 1, longest=1), make_split(9, 2, longest=2)
    dev.tags[0][0] = "B-NEW"
    corpus = corpus_of(train, dev)
    found = screen(store_of(corpus, tmp_path / "store"), corpus, settings(window=2), seed=1)
    assert all(np.isfinite(one.error).all() for one in found.ranked)


def test_fewer_sentences_than_samples_are_refused(tmp_path: Path):
    corpus = corpus_of(make_split(2, 1), make_split(3, 2))
    with pytest.raises(UserError, match=r"samples=3.*\b2\b.*screen\."):
        screen(store_of(corpus, tmp_path / "store"), corpus, settings(), seed=1)
    corpus = corpus_of(make_split(3, 1), make_split(4, 2))
    with pytest.raises(UserError, match=r"samples=3.*\b2\b.*screen\.dev_sentences"):
        screen(store_of(corpus, tmp_path / "other"), corpus, settings(dev_sentences=2), seed=1)


def test_the_ridge_is_chosen_inside_its_grid_by_the_best_layers(tmp_path: Path):
    corpus = corpus_of(make_split(60, 1), make_split(30, 2))
    store = telling(store_of(corpus, tmp_path / "random"), corpus, tmp_path / "made", layer=3)
    found = screen(store, corpus, settings(max_layers=3), seed=1)
    assert found.ridge_alphas.keys() == {1, 2, 3}
    assert found.ridge_alphas[1] < max(RIDGE_ALPHAS), "layers of noise want all the ridge there is"


def test_parts_of_speech_are_ranked_by_accuracy_on_the_same_store(tmp_path: Path):
    corpus = corpus_of(make_split(40, 1), make_split(20, 2), TAGS)
    store = telling(store_of(corpus, tmp_path / "store"), corpus, tmp_path / "made", layer=0)
    found = screen(store, corpus, settings(max_layers=1), seed=1)
    assert found.ranked[0].layers.indices == [0]
    assert found.ranked[0].dev_f1 > 0.95


def test_held_out_sentences_and_test_are_never_read(tmp_path: Path):
    """A store without its test shards, of which one sample's dev words are scored without being fitted on."""
    corpus = corpus_of(make_split(40, 1), make_split(20, 2))
    store = store_of(corpus, tmp_path / "store")
    for shard in store.shards["test"]:
        store.path(shard).unlink()
    assert screen(store, corpus, settings(), seed=1).ranked
