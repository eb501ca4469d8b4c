"""The probe against PyTorch's own packed BiLSTM, and its promises about seeds, batches and the best epoch."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from support.inputs import make_split, random_store
from torch import nn

from probe.config import LayersConfig, ProbeConfig, UserError
from probe.data.corpus import Corpus
from probe.data.tasks.spans import SPANS, span_f1
from probe.probes import batches, schedule
from probe.probes.batches import TaggedWords, TrainingBatches, evaluation_batches
from probe.probes.combine import Streamed, read_selection
from probe.probes.networks import BiLSTM, Dropout, mirrored
from probe.probes.selection import Selection, select
from probe.probes.tagger import Tagger, Training, train_tagger
from probe.system import bfloat16

WIDTH, LABELS = 16, ["B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O"]
ONE_LAYER = select(LayersConfig([0], "concat"), 5, WIDTH)
EPOCH = 50  # in updates: five passes over 80 sentences, 8 at a time


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def short_epochs(monkeypatch: pytest.MonkeyPatch):
    """Half of what a release has, in half of the time; in what measure a release counts is in test_schedule."""
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", EPOCH)
    monkeypatch.setattr(schedule, "FULL_UPDATES", 2 * EPOCH)
    monkeypatch.setattr(schedule, "WARM_UP_UPDATES", 10 * EPOCH)


def probe_config(**changes) -> ProbeConfig:
    values: dict = {
        "num_layers": 2,
        "hidden_size": 8,
        "dropout": 0.2,
        "learning_rate": 0.01,
        "lr_decay": 1.0,
        "batch_size": 8,
        "max_epochs": 3,
        "patience": 5,
        "gradient_clip": 1.0,
        "precision": "float32",
    }
    return ProbeConfig(**{**values, **changes})


def made(num_sentences: int, seed: int) -> TaggedWords:
    split = make_split(num_sentences, seed)
    vectors = {
        word: torch.randn(WIDTH, generator=torch.Generator().manual_seed(sum(map(ord, word))))
        for words in split.words
        for word in words
    }
    features = torch.stack([vectors[word] for words in split.words for word in words])
    return TaggedWords(features, split.tags, {label: i for i, label in enumerate(LABELS)})


def packed_reference(ours: BiLSTM, width: int, hidden: int, layers: int) -> nn.LSTM:
    """PyTorch's bidirectional LSTM with the same weights."""
    theirs = nn.LSTM(width, hidden, layers, bidirectional=True)
    for k in range(layers):
        for suffix, one_way in (("", ours.forwards[k]), ("_reverse", ours.backwards[k])):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l{k}{suffix}").data.copy_(getattr(one_way, f"{name}_l0"))
    return theirs


def test_bilstm_equals_a_packed_one_in_outputs_and_gradients():
    torch.manual_seed(0)
    ours = BiLSTM(WIDTH, 8, 2, dropout=0.0)
    theirs = packed_reference(ours, WIDTH, 8, 2)
    data = made(30, 1)
    batch = data.batch(torch.randperm(30))
    lengths = batch.words.sum(0)

    x = data.features[batch.rows]
    x = torch.where(batch.words[:, :, None], x, 1e3)  # whatever stands at padding must not matter
    mine = ours(x, batch.mirror)[batch.words]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    padded, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0])
    torch.testing.assert_close(mine, padded[batch.words], atol=1e-5, rtol=0)

    weights = torch.randn_like(mine)
    (mine * weights).sum().backward()
    (padded[batch.words] * weights).sum().backward()
    for k in range(2):
        for suffix, one_way in (("", ours.forwards[k]), ("_reverse", ours.backwards[k])):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                torch.testing.assert_close(
                    getattr(one_way, f"{name}_l0").grad,
                    getattr(theirs, f"{name}_l{k}{suffix}").grad,
                    atol=1e-4,
                    rtol=1e-4,
                )


def test_mirroring_is_a_gather_in_values_and_gradients_and_sums_nothing():
    torch.manual_seed(0)
    batch = made(30, 1).batch(torch.arange(7))
    x = torch.randn(*batch.mirror.shape, 5, dtype=torch.float64, requires_grad=True)
    index = batch.mirror[:, :, None].expand_as(x)
    assert torch.equal(mirrored(x, batch.mirror), x.gather(0, index))
    assert torch.equal(mirrored(mirrored(x, batch.mirror), batch.mirror), x)
    upstream = torch.randn_like(x)
    (mine,) = torch.autograd.grad(mirrored(x, batch.mirror), x, upstream)
    (gathered,) = torch.autograd.grad(x.gather(0, index), x, upstream)
    assert torch.equal(mine, gathered)
    torch.autograd.gradcheck(lambda x: mirrored(x, batch.mirror), x)
    torch.autograd.gradgradcheck(lambda x: mirrored(x, batch.mirror), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_dropout_keeps_the_mean_and_masks_the_gradient(p: float, dtype: torch.dtype):
    torch.manual_seed(0)
    ours, theirs = Dropout(p), nn.Dropout(p)
    x = torch.rand(200, 500, dtype=dtype).add_(1).requires_grad_()
    out = ours(x)
    assert out.dtype == dtype
    dropped = out == 0
    assert abs(float(dropped.float().mean()) - p) < 0.005
    torch.testing.assert_close(out[~dropped], theirs.eval()(x)[~dropped] / (1 - p))
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, dropped)
    assert not torch.equal(ours(x) == 0, dropped) or p == 0, "each time others"
    assert ours.eval()(x) is x


def test_a_sentence_is_scored_alike_whatever_its_neighbours():
    torch.manual_seed(0)
    data = made(40, 2)
    tagger = Tagger(probe_config(), ONE_LAYER, LABELS).eval()
    alone = data.batch(torch.tensor([5]))
    among = data.batch(torch.tensor([3, 5, 30, 31]))
    with torch.no_grad():
        here = tagger(alone)[:, 0]
        there = tagger(among)[: len(here), 1]
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def test_every_epoch_shows_every_sentence_once_in_another_order():
    data = made(101, 3)
    batches = TrainingBatches(data, 8, seed=1)
    epochs = []
    for _ in range(2):
        shown = [tuple(sorted(b.rows[0].tolist())) for b in batches]
        assert sorted(start for batch in shown for start in batch) == sorted(data.starts.tolist())
        assert len(shown) == len(batches)
        epochs.append(shown)
    assert epochs[0] != epochs[1]
    again = [tuple(sorted(b.rows[0].tolist())) for b in TrainingBatches(data, 8, seed=1)]
    other = [tuple(sorted(b.rows[0].tolist())) for b in TrainingBatches(data, 8, seed=2)]
    assert again == epochs[0] != other


def test_each_pass_of_an_epoch_shows_every_sentence_in_new_batches():
    data = made(21, 3)
    shown = [tuple(sorted(batch.rows[0].tolist())) for batch in TrainingBatches(data, 8, seed=1, passes=3)]
    assert len(shown) == len(TrainingBatches(data, 8, seed=1, passes=3)) == 9
    passes = [shown[0:3], shown[3:6], shown[6:9]]
    for one in passes:
        assert sorted(start for batch in one for start in batch) == sorted(data.starts.tolist())
    assert passes[0] != passes[1] != passes[2]


def test_batch_points_each_word_at_its_own_vector_and_label():
    data = made(25, 4)
    for batch in evaluation_batches(data):
        for column in range(batch.rows.shape[1]):
            length = int(batch.words[:, column].sum())
            start = int(batch.rows[0, column])
            assert batch.rows[:length, column].tolist() == list(range(start, start + length))
            assert batch.labels[:length, column].tolist() == data.labels[start : start + length].tolist()
            assert batch.mirror[:length, column].tolist() == list(reversed(range(length)))


def test_a_long_sentence_does_not_inflate_its_batch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "EVALUATION_WORDS", 100)
    tags = [["O"] * length for length in (3, 240, 3, 60, 50, 3, 49)]
    words = sum(map(len, tags))
    shapes, rows = [], []
    for batch in evaluation_batches(TaggedWords(torch.zeros(words, 2), tags, {"O": 0})):
        shapes.append(tuple(batch.words.shape))
        rows += batch.rows[batch.words].tolist()
    assert shapes == [(3, 3), (50, 2), (60, 1), (240, 1)]
    assert sorted(rows) == list(range(words)), "every word once"


def trained(seed: int, selection: Selection = ONE_LAYER, **changes) -> Training:
    train, dev = made(80, 5), made(30, 6)
    if selection.combine == "mix":
        for data in (train, dev):
            assert isinstance(data.features, torch.Tensor)
            noise = torch.randn(data.features.shape, generator=torch.Generator().manual_seed(0))
            data.features = torch.stack([noise, data.features], 1)
    return train_tagger(probe_config(**changes), selection, train, dev, LABELS, SPANS, seed, print)


def test_one_seed_gives_the_same_bits_and_another_does_not():
    first, again, other = (trained(seed, max_epochs=2) for seed in (1, 1, 2))
    assert first.progress.curve[-1]["loss"] == again.progress.curve[-1]["loss"] != other.progress.curve[-1]["loss"]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("combine", ["mean", "concat", "mix"])
def test_training_on_streamed_features_gives_the_same_bits(tiny_corpus: Corpus, tmp_path: Path, combine: str):
    store = random_store(tmp_path / "store", {name: split.num_words for name, split in tiny_corpus.splits.items()})
    selection = select(LayersConfig([1, 3, 5], combine), 5, WIDTH)
    label_ids = {label: i for i, label in enumerate(LABELS)}
    taggers, predictions = [], []
    for read in (read_selection, Streamed):
        train, dev, test = (
            TaggedWords(read(store, split, selection), tiny_corpus.splits[split].tags, label_ids)
            for split in ("train", "dev", "test")
        )
        taggers.append(train_tagger(probe_config(max_epochs=1), selection, train, dev, LABELS, SPANS, 1, print))
        predictions.append(taggers[-1].tagger.predict(test)[0])
    held, streamed = taggers
    assert [point["loss"] for point in held.progress.curve] == [point["loss"] for point in streamed.progress.curve]
    assert all(torch.equal(a, b) for a, b in zip(held.parameters(), streamed.parameters(), strict=True))
    assert predictions[0] == predictions[1]


def test_batches_are_on_the_device_wherever_the_features_lie():
    data = made(20, 8)
    elsewhere = TaggedWords(data.features, data.tags, {label: i for i, label in enumerate(LABELS)}, device="meta")
    for batch in (next(evaluation_batches(elsewhere)), next(iter(TrainingBatches(elsewhere, 8, 1)))):
        assert {tensor.device.type for tensor in batch} == {"meta"}


def test_float32_is_plain_arithmetic():
    torch.manual_seed(0)
    data = made(30, 9)
    tagger = Tagger(probe_config(), ONE_LAYER, LABELS).eval()
    batch = data.batch(torch.arange(30))
    with torch.no_grad():
        scores = tagger(batch)
        assert tagger.lstm is not None
        assert torch.equal(scores, tagger.classifier(tagger.lstm(batch.features, batch.mirror)))


def test_bfloat16_learns_and_one_seed_gives_the_same_bits():
    first, again = (trained(1, precision="bfloat16", max_epochs=3) for _ in range(2))
    exact = trained(1, max_epochs=1)
    assert [point["loss"] for point in first.progress.curve] == [point["loss"] for point in again.progress.curve]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert all(parameter.dtype == torch.float32 for parameter in first.parameters()), "weights are kept exact"
    loss = first.progress.curve[0]["loss"]
    assert exact.progress.curve[0]["loss"] != loss == pytest.approx(exact.progress.curve[0]["loss"], rel=0.02)
    test = made(50, 7)
    predicted = first.tagger.predict(test)[0]
    assert span_f1(test.tags, predicted) > 0.8
    assert first.tagger.predict(test)[0] == predicted
    with torch.no_grad():
        alone = first.tagger(test.batch(torch.tensor([5])))[:, 0]
        among = first.tagger(test.batch(torch.tensor([3, 5, 30, 31])))[: len(alone), 1]
    assert alone.dtype == torch.float32
    torch.testing.assert_close(alone, among, atol=0.05, rtol=0.02)


def test_training_and_prediction_in_bfloat16_use_the_kernels_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: False)
    seen: list[bool] = []
    forward = BiLSTM.forward

    def watched(self: BiLSTM, *inputs: torch.Tensor) -> torch.Tensor:
        seen.append(bool(torch.backends.mkldnn.enabled))
        out = forward(self, *inputs)
        if out.requires_grad:
            out.register_hook(lambda _: seen.append(bool(torch.backends.mkldnn.enabled)))
        return out

    monkeypatch.setattr(BiLSTM, "forward", watched)
    for precision in ("bfloat16", "float32"):
        seen.clear()
        trained(1, precision=precision, max_epochs=1).tagger.predict(made(5, 1))
        assert set(seen) == {precision == "float32"}
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("num_layers", [2, 0])
def test_probe_learns_what_can_be_learnt(num_layers: int):
    training = trained(1, num_layers=num_layers, hidden_size=8 * num_layers, max_epochs=3)
    test = made(50, 7)
    assert span_f1(test.tags, training.tagger.predict(test)[0]) > 0.8


def test_mix_learns_which_layer_tells_something():
    selection = select(LayersConfig([1, 2], "mix"), 5, WIDTH)
    learned = trained(1, selection, max_epochs=3).tagger.learned_mix()
    assert learned is not None
    assert sum(learned.weights) == pytest.approx(1)
    assert learned.weights[1] > 0.55


@functools.cache
def beyond_its_best() -> Training:
    """A training at so high a rate that its last epoch is not its best."""
    return trained(3, learning_rate=0.5, max_epochs=8, patience=8)


def test_weights_that_come_back_are_those_of_the_best_epoch():
    training = beyond_its_best()
    dev = made(30, 6)
    best = max(point["dev"] for point in training.progress.curve)
    assert training.progress.curve[training.progress.best_epoch - 1]["dev"] == best
    assert training.tagger.predict(dev)[0] == training.progress.best_dev_tags
    assert span_f1(dev.tags, training.progress.best_dev_tags) == best
    assert training.progress.curve[-1]["dev"] < best, "this seed should end below its best, or the test shows nothing"


def test_the_dev_loss_is_the_mean_cross_entropy_of_dev():
    training = beyond_its_best()
    batch = made(30, 6).batch(torch.arange(30))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(training.tagger.eval()(batch)[batch.words], batch.labels[batch.words])
    assert float(loss) == pytest.approx(training.progress.curve[training.progress.best_epoch - 1]["dev_loss"], rel=1e-5)


def test_training_stops_when_dev_f1_stops_rising():
    training = trained(1, max_epochs=60, patience=1, learning_rate=0.02, lr_decay=0.5, batch_size=1)
    assert len(training.progress.curve) == max(training.progress.best_epoch, 10 * EPOCH // 80) + 2 < 60
    assert training.schedule.outcome == "converged"
    (group,) = training.trainer.optimizers[0].param_groups
    assert group["lr"] == 0.02 * training.schedule.rate < 0.02


def test_a_linear_rate_trains_all_epochs_down_to_zero():
    training = trained(1, max_epochs=4, patience=1, learning_rate=0.02, lr_decay="linear")
    assert len(training.progress.curve) == 4
    assert training.schedule.outcome == "converged"
    (group,) = training.trainer.optimizers[0].param_groups
    assert group["lr"] == 0
    updates = training.trainer.global_step
    assert updates == 4 * training.schedule.epoch_updates
    (rates,) = training.trainer.lr_scheduler_configs
    assert isinstance(rates.scheduler, torch.optim.lr_scheduler.LambdaLR)
    rise, fall = round(0.1 * updates), rates.scheduler.lr_lambdas[0]
    assert [fall(0), fall(rise), fall(updates)] == [0, 1, 0]
    assert fall((rise + updates) // 2) == pytest.approx(0.5, abs=1 / updates)


def test_a_run_long_at_zero_may_still_learn():
    training = trained(1, learning_rate=5e-4, patience=1, max_epochs=16)
    scores = [point["dev"] for point in training.progress.curve]
    zeros, chance = scores.count(0), scores[0]
    assert zeros + 1 >= 10, "or the test shows nothing"
    assert chance > scores[zeros + 1] > 0, "nor does it then"
    assert scores[-1] > 0.5
    assert training.schedule.outcome == "hit_epoch_limit"


def test_a_tag_unknown_to_train_is_an_error_not_a_crash():
    train, dev = made(40, 5), made(10, 6)
    dev = TaggedWords(
        dev.features, [["B-MISC"] * len(t) for t in dev.tags], {label: i for i, label in enumerate(LABELS)}
    )
    training = train_tagger(probe_config(max_epochs=1), ONE_LAYER, train, dev, LABELS, SPANS, 1, print)
    assert training.progress.curve[0]["dev"] == 0.0


def test_features_and_labels_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\b3\b.*\b2\b"):
        TaggedWords(torch.zeros(3, 4), [["O", "O"]], {"O": 0})


def test_a_diverged_training_is_said_so():
    with pytest.raises(UserError, match=r"\b(nan|inf)\b.*probe\.learning_rate"):
        trained(1, learning_rate=1e38, gradient_clip=1e38)
