"""The screen and its quick probes against plain torch and seqeval; and what odd corpora and layers do to it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from support.inputs import make_split, random_store, stored
from torch import nn

from probe.config import LayersConfig, ScreenConfig, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.data.tasks import SPANS, TAGS
from probe.probes.candidates import Candidate, fixed, input_of
from probe.probes.training import tags_of
from probe.scoring.compare import Comparison, Sample
from probe.screening import quick_probe
from probe.screening.quick_probe import HIDDEN_SIZE, WindowedWords, quick_predictions
from probe.screening.report import MOST, TYPICAL, forecast, to_train_first, worth_training
from probe.screening.screen import DrawnText, Screened, Screening, ranked
from probe.vectors.store import FeatureStore


def settings(**changes: int) -> ScreenConfig:
    values: dict = {"first": False, "window": 1, "max_layers": 2, "sentences": 60, "dev_sentences": 30, "seeds": 2}
    return ScreenConfig(**values | changes)


def made(folder: Path, task=SPANS, train: Split | None = None, dev: Split | None = None) -> FeatureStore:
    """A store of six random layers of 16 for a made corpus."""
    train, dev = train or make_split(60, 1), dev or make_split(30, 2)
    corpus = Corpus("made", {"train": train, "dev": dev, "test": make_split(3, 9)}, task)
    return replace(
        random_store(folder, {name: split.num_words for name, split in corpus.splits.items()}), corpus=corpus
    )


def padded_by_one(vectors: torch.Tensor) -> torch.Tensor:
    return nn.functional.pad(vectors, (0, 0, 0, 1))


def telling(store: FeatureStore, folder: Path, layer: int, constant: int | None = None) -> FeatureStore:
    """The store with a layer that holds each word's tag, and one that is the same for all words."""
    splits = store.corpus.splits
    tags = sorted({tag for split in splits.values() for sentence in split.tags for tag in sentence})
    copy = replace(store, directory=folder)
    folder.mkdir()
    for split, shards in store.shards.items():
        states = stored(store, split)
        ids = torch.tensor([tags.index(tag) for sentence in splits[split].tags for tag in sentence])
        states[layer] = 0.1 * states[layer]
        states[layer].scatter_add_(1, ids[:, None], torch.full((len(ids), 1), 3.0))
        if constant is not None:
            states[constant] = 1.7
        for shard in shards:
            copy.write(shard, states[:, shard.first : shard.last].half().contiguous())
    return copy


def screened(store: FeatureStore, seed: int = 1, **changes: int) -> list[Candidate]:
    return ranked([*Screening(store, settings(**changes), seed, "cpu", None).run()])[0]


@pytest.mark.parametrize("window", [0, 1, 2])
def test_a_window_holds_neighbours_within_the_sentence_and_zeros_beyond(window: int):
    lengths = [1, 4, 2, 7]
    vectors = torch.randn(sum(lengths), 3)
    expected = []
    for sentence in vectors.split(lengths):
        padded = nn.functional.pad(sentence, (0, 0, window, window))
        expected += [padded[at : at + 2 * window + 1].flatten() for at in range(len(sentence))]
    words = WindowedWords.of(padded_by_one(vectors), lengths, window)
    torch.testing.assert_close(words[torch.arange(len(vectors))], torch.stack(expected))
    torch.testing.assert_close(words[torch.tensor([[3, 5]])], torch.stack([expected[3], expected[5]])[None])


def test_quick_probes_are_perceptrons_that_are_trained_apart(monkeypatch: pytest.MonkeyPatch):
    """Two seeds at once give what two networks of torch.nn give from the same weights, words and dropout."""
    monkeypatch.setattr(quick_probe, "UPDATES", 40)
    torch.set_num_threads(1)
    labels = torch.randint(0, 3, (90,), generator=torch.Generator().manual_seed(4))
    vectors = torch.randn(90, 5) + nn.functional.one_hot(labels, 5)
    words = WindowedWords.of(padded_by_one(vectors), [9] * 10, 1)
    dev = WindowedWords.of(padded_by_one(vectors[:30] + 0.1), [10] * 3, 1)
    found = quick_predictions(words, labels, 3, dev, seed=7, num_seeds=2)
    draw = torch.Generator().manual_seed(7)
    size = 90 // 8
    shapes = [(15, (15, HIDDEN_SIZE)), (15, (1, HIDDEN_SIZE)), (HIDDEN_SIZE, (HIDDEN_SIZE, 3)), (HIDDEN_SIZE, (1, 3))]
    drawn = [(2 * torch.rand(2, *shape, generator=draw) - 1) / inputs**0.5 for inputs, shape in shapes]
    steps = []
    for update in range(40):
        if update % (90 // size) == 0:
            orders = torch.stack([torch.randperm(90, generator=draw) for _ in range(2)])
        steps.append((orders, update % (90 // size) * size, torch.rand(2, size, HIDDEN_SIZE, generator=draw) >= 0.2))
    for seed in range(2):
        net = nn.Sequential(nn.Linear(15, HIDDEN_SIZE), nn.ReLU(), nn.Linear(HIDDEN_SIZE, 3))
        with torch.no_grad():
            for linear, weight, bias in ((net[0], *drawn[:2]), (net[2], *drawn[2:])):
                linear.weight.copy_(weight[seed].T)
                linear.bias.copy_(bias[seed, 0])
        optimizer = torch.optim.Adam(net.parameters(), 2e-3)
        for update, (orders, at, keep) in enumerate(steps):
            for group in optimizer.param_groups:
                group["lr"] = 2e-3 * (1 - update / 40)
            chosen = orders[seed, at : at + size]
            hidden = net[1](net[0](words[chosen])) * keep[seed] / 0.8
            optimizer.zero_grad()
            nn.functional.cross_entropy(net[2](hidden), labels[chosen]).backward()
            optimizer.step()
        expected = net(dev[torch.arange(30)]).argmax(1)
        assert int((found[seed] != expected).sum()) <= 1  # rounding may move one
    again = quick_predictions(words, labels, 3, dev, seed=7, num_seeds=2)
    assert torch.equal(found, again)


def test_sentences_are_drawn_whole_with_their_vectors_and_documents(tmp_path: Path):
    store = made(tmp_path / "store")
    split = store.corpus.splits["train"]
    text = DrawnText.of(store.corpus, "train", 20, seed=3)
    every = list(itertools.accumulate(split.lengths, initial=0))
    chosen = [k for k in range(60) if every[k] in set(text.rows.tolist())]
    assert len(chosen) == 20 == len(text.tags)
    assert text.tags == [split.tags[k] for k in chosen]
    assert split.documents
    assert text.documents == [split.documents[k] for k in chosen]
    rows = np.concatenate([np.arange(every[k], every[k + 1]) for k in chosen])
    assert text.rows.tolist() == rows.tolist()
    torch.testing.assert_close(text.read(store, 4), stored(store, "train")[4][torch.from_numpy(rows)])
    assert DrawnText.of(store.corpus, "train", 20, seed=4).tags != text.tags


def test_a_choice_is_scored_as_seqeval_scores_its_predictions(tmp_path: Path):
    store = telling(made(tmp_path / "store"), tmp_path / "made", layer=2)
    screening = Screening(store, settings(seeds=3), 1, "cpu", None)
    choice = next(one for one in fixed(5, 16) if one.input == ("mean", (1, 2, 3, 4, 5)))
    found = screening.screened(choice)
    train, dev = stored(store, "train")[1:], stored(store, "dev")[1:]
    means = train.mean(1, keepdim=True)
    deviations = (train - means).square().mean((1, 2), keepdim=True).sqrt()
    x, dev_x = (((states - means) / deviations).mean(0) for states in (train, dev))
    scale = x.square().mean().sqrt()
    splits = store.corpus.splits
    words, dev_words = (
        WindowedWords.of(padded_by_one(part / scale), splits[name].lengths, 1)
        for name, part in (("train", x), ("dev", dev_x))
    )
    predicted = quick_predictions(words, screening.gold, len(screening.labels), dev_words, 1, 3)
    tags = [tags_of(ids, screening.labels, splits["dev"].tags) for ids in predicted]
    expected = [float(f1_score(splits["dev"].tags, guess)) for guess in tags]
    assert found.candidate.scores == pytest.approx(expected, abs=0.05)  # rounding moves a word of a text this small
    assert found.influence is not None
    assert found.influence.shape == (3, 15)


def test_every_layer_and_preset_is_a_candidate_once():
    by_name = {one.layers.name: one for one in fixed(12, 768)}
    assert {"embeddings", "last", "second_to_last", "layer_7", "concat_last_four", "mean_last_four"} <= by_name.keys()
    assert by_name["mean_last_four"].alike == ["mix_last_four", "sum_last_four"]
    assert by_name["concat_last_four"].width == 4 * 768
    assert (by_name["layer_7"].num_blocks, by_name["embeddings"].num_blocks) == (7, 0)
    inputs = [one.input for one in fixed(6, 16)]
    assert len(inputs) == len(set(inputs))
    assert input_of("sum", [3, 1]) == input_of("mix", [1, 3]) != input_of("concat", [1, 3])


@pytest.mark.parametrize(("most", "sizes"), [(1, []), (2, [2]), (3, [2, 3])])
def test_the_best_single_layers_are_concatenated(tmp_path: Path, most: int, sizes: list[int]):
    found = screened(made(tmp_path / "store"), max_layers=most)
    means = {one.layers.indices[0]: one.mean for one in found if len(one.layers.indices) == 1}
    searched = [tuple(one.layers.indices) for one in found if one.searched]
    chosen = {layer for indices in searched for layer in indices}
    assert {len(indices) for indices in searched} == set(sizes)
    assert all(means[layer] >= sorted(means.values())[-4] for layer in chosen)
    every = {some for size in sizes for some in itertools.combinations(sorted(chosen), size)}
    assert every == set(searched) | {one.input[1] for one in fixed(5, 16) if one.input[1] in every}


def test_choices_are_compared_by_the_statistic_of_every_table():
    draw = np.random.default_rng(1)
    scores, moves = draw.uniform(0.5, 0.9, (4, 3)), draw.normal(0, 0.01, (4, 3, 40))
    units: Any = SimpleNamespace(effective=40.0, title="documents", are_blocks=False, items=100, condition="")
    every = [
        Screened(Candidate(LayersConfig([k], "concat", f"layer_{k}"), 8, k, scores=own.tolist()), move, units)
        for k, (own, move) in enumerate(zip(scores, moves, strict=True))
    ]
    found, cover = ranked(every)
    order = np.argsort(-scores.mean(1)).tolist()
    assert [one.layers.indices[0] for one in found] == order
    samples = [Sample(scores[k].tolist(), moves[k], effective=40.0, item=0.01) for k in order]
    assert [one.behind for one in found] == Comparison(samples).behind()
    assert cover.units is not None


def test_a_score_without_an_influence_is_compared_over_seeds(tmp_path: Path):
    store = made(tmp_path / "store")
    task = replace(SPANS, headline=replace(SPANS.headline, influence=None))
    store.corpus.task = task
    found, cover = ranked([*Screening(store, settings(max_layers=1), 1, "cpu", None).run()])
    assert cover.units is None
    assert all(low <= high <= 0 for low, high in (one.behind for one in found))


def test_a_layer_that_knows_the_tags_is_found(tmp_path: Path):
    store = telling(made(tmp_path / "random"), tmp_path / "made", layer=3)
    found = screened(store, max_layers=1)
    single = [one for one in found if len(one.layers.indices) == 1]
    assert single[0].layers.indices == [3]
    assert single[0].mean > 0.9
    assert all(one.behind[1] < 0 for one in single[1:])
    assert screened(store, max_layers=1) == found
    assert screened(store, seed=2, max_layers=1) != found


def test_a_constant_layer_is_last_and_harms_nothing(tmp_path: Path):
    store = telling(made(tmp_path / "random"), tmp_path / "made", layer=2, constant=4)
    by_input = {one.input: one for one in screened(store, max_layers=1)}
    assert by_input["concat", (4,)].mean == 0
    assert by_input["concat", (2,)].mean > 0.9
    assert all(np.isfinite(one.scores).all() for one in by_input.values())


def test_text_with_one_label_is_refused(tmp_path: Path):
    train = make_split(20, 1)
    train.tags = [["O"] * len(words) for words in train.words]
    with pytest.raises(UserError, match=r"sentences.*\bO\b"):
        screened(made(tmp_path / "store", train=train))


def test_sentences_of_one_word_and_a_tag_that_train_never_shows(tmp_path: Path):
    train, dev = make_split(30, 1, longest=1), make_split(9, 2, longest=2)
    dev.tags[0][0] = "B-NEW"
    assert screened(made(tmp_path / "store", train=train, dev=dev), window=2)


def test_parts_of_speech_are_ranked_by_accuracy(tmp_path: Path):
    store = telling(made(tmp_path / "store", TAGS), tmp_path / "made", layer=0)
    found = screened(store, max_layers=1)
    assert found[0].layers.indices == [0]
    assert found[0].mean > 0.95


def test_test_is_never_read(tmp_path: Path):
    store = made(tmp_path / "store")
    for shard in store.shards["test"]:
        store.path(shard).unlink()
    assert screened(store, max_layers=1)


def test_a_choice_is_left_out_if_it_is_shown_to_be_behind_the_margin():
    def choice(name: str, blocks: int, mean: float, behind: list[float]) -> Candidate:
        return Candidate(LayersConfig([1], "concat", name), 8, blocks, scores=[mean, mean], behind=behind)

    every = [
        choice("first", 6, 0.80, [-0.01, 0.0]),
        choice("near", 5, 0.79, [-0.03, 0.0]),
        choice("at", 4, 0.76, [-0.06, -0.01 * MOST]),
        choice("far", 2, 0.60, [-0.25, -0.011 * MOST]),
    ]
    screen: Any = SimpleNamespace(ranked=every, margin=1.0)
    assert [one.name for one in worth_training(screen)] == ["at", "near", "first"], "the cheapest first"
    assert [one.name for one in to_train_first(screen)] == ["near", "first"], "the other one is expected 2.5 behind"
    alone: Any = SimpleNamespace(ranked=[every[0], every[3]], margin=1.0)
    assert [one.name for one in to_train_first(alone)] == ["first", "far"], "one row cannot be compared"
    cheap = [choice(f"cheap {k}", k, 0.795, [-0.03, 0.0]) for k in range(1, 9)]
    screen = SimpleNamespace(ranked=[*every, *cheap], margin=1.0)
    assert [one.name for one in to_train_first(screen)] == ["cheap 1", "cheap 2", "cheap 3", "cheap 4", "near", "first"]
    expected = forecast(every[3], every[0])
    assert expected.behind == pytest.approx(0.20 / TYPICAL)
    assert 0 <= expected.low < expected.behind < expected.high
