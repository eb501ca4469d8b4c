"""What a selection means, and that the layers come back in the order asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.commands import flip_a_bit, python
from support.inputs import ensure_features, features_config, random_store

from probe.config import LayersConfig, UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder
from probe.probes.combine import Streamed, bytes_needed, mix, read_selection
from probe.probes.selection import select
from probe.vectors.store import DamagedShard


@pytest.mark.parametrize(
    ("wanted", "combine", "indices", "width", "name"),
    [
        ([-1], "concat", (12,), 768, "layer_12"),
        ([0], "concat", (0,), 768, "layer_0"),
        ([-13], "sum", (0,), 768, "layer_0"),
        ([-4, -3, -2, -1], "concat", (9, 10, 11, 12), 3072, "concat_9_10_11_12"),
        ([12, 3], "concat", (12, 3), 1536, "concat_12_3"),
        ("1:", "sum", tuple(range(1, 13)), 768, "sum_1_2_3_4_5_6_7_8_9_10_11_12"),
        (":", "mix", tuple(range(13)), 768, "mix_0_1_2_3_4_5_6_7_8_9_10_11_12"),
    ],
)
def test_indices_become_absolute_in_the_order_asked_for(wanted, combine, indices, width, name):
    selection = select(LayersConfig(wanted, combine), 12, 768)
    assert (selection.indices, selection.width, selection.name) == (indices, width, name)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([99], r"\b99 .*\b0 .*\b12\b"),
        ([-14], r"-14\b"),
        ([1, 1], r"layer 1\b"),
        ([12, -1], r"layer 12\b"),
        ([], r"layers\.indices=\[\]"),
        ("5:5", r"layers\.indices=.?5:5"),
        ("0:99", r"\b99\b"),
        ("-20:", r"-20\b"),
        ("all", r"layers\.indices=.?all"),
        ([1.5], r"layers\.indices=\[1\.5\]"),
        ([True], r"layers\.indices=\[(T|t)rue\]"),
        (None, r"layers\.indices=(None|null)"),
    ],
)
def test_what_is_no_selection_is_refused_with_the_valid_range(wanted, message):
    with pytest.raises(UserError, match=message):
        select(LayersConfig(wanted, "concat"), 12, 768)


def test_four_layers_of_a_three_layer_encoder_are_refused_not_cut():
    with pytest.raises(UserError, match="-4"):
        select(LayersConfig([-5, -4, -3, -2], "sum"), 3, 8)


@pytest.mark.parametrize("combine", ["sum", "mean", "concat", "mix"])
def test_combinations_equal_those_of_all_layers_in_memory(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, combine: str
):
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, dtype="float32"), "cpu")
    everything = torch.cat([torch.stack(tensors, 1) for _, tensors in store.read("train", range(6))])  # (W, L + 1, H)
    selection = select(LayersConfig([4, 0, -1], combine), 5, 16)
    features = read_selection(store, "train", selection)
    chosen = everything[:, [4, 0, 5]]
    expected = {
        "sum": chosen.sum(1),
        "mean": chosen.mean(1),
        "concat": torch.cat([chosen[:, 0], chosen[:, 1], chosen[:, 2]], -1),
        "mix": chosen,
    }[combine]
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("combine", ["sum", "mean", "concat", "mix"])
def test_streamed_features_are_the_same_bits_as_those_in_memory(tmp_path: Path, combine: str):
    store = random_store(tmp_path / "store", {"train": 333, "dev": 20})
    selection = select(LayersConfig([4, 0, -1], combine), 5, 16)
    held, streamed = read_selection(store, "train", selection), Streamed(store, "train", selection)
    assert len(streamed) == len(held)
    everywhere = torch.randint(len(held), (40, 3), generator=torch.Generator().manual_seed(0))
    for rows in (everywhere, torch.arange(len(held)), torch.tensor([[0, 0], [len(held) - 1, 0]]), everywhere[:0]):
        read = streamed[rows]
        assert read.dtype == held.dtype
        assert torch.equal(read, held[rows])
    assert bytes_needed(store, selection) == sum(
        features.numel() * features.element_size()
        for features in (read_selection(store, split, selection) for split in store.shards)
    )


def test_streamed_features_are_checked_before_the_first_is_used(tmp_path: Path):
    store = random_store(tmp_path / "store", {"train": 90})
    flip_a_bit(store.path(store.shards["train"][0]))  # at the file's end: the last layer
    Streamed(store, "train", select(LayersConfig([4], "concat"), 5, 16))
    with pytest.raises(DamagedShard, match="layer 5"):
        Streamed(store, "train", select(LayersConfig([5], "concat"), 5, 16))


STREAM = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace
import torch
from probe.config import LayersConfig
from probe.vectors.store import FeatureStore, Shard
from probe.probes.combine import Streamed, bytes_needed, read_selection
from probe.probes.selection import select
directory, how = Path(sys.argv[1]), sys.argv[2]
shards = [Shard("train", k, 8192 * k, 8192 * (k + 1)) for k in range(12)]
store = FeatureStore(
    None, SimpleNamespace(dtype=None), None, directory, "key", {}, 4, 512, "float16", {"train": shards}, tuple(range(5))
)
selection = select(LayersConfig([1, 2, 3, 4], "concat"), 4, 512)
if how == "write":
    directory.mkdir()
    for shard in shards:
        store.write(shard, torch.randn(5, 8192, 512).half())
    sys.exit()
def taken():  # what the system cannot take back
    return sum(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))
before, peak, over = taken(), 0, threading.Event()
def watch():
    global peak
    while not over.wait(0.002):
        peak = max(peak, taken())
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
features = Streamed(store, "train", selection) if how == "stream" else read_selection(store, "train", selection)
total = 0.0
for rows in torch.randperm(12 * 8192, generator=torch.Generator().manual_seed(0)).split(500):
    total += features[rows].double().sum().item()
over.set()
watcher.join()
print(total, bytes_needed(store, selection), peak - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_streaming_takes_no_memory_for_what_it_does_not_use(tmp_path: Path):
    def child(how: str) -> list[float]:
        done = python(STREAM, str(tmp_path / "store"), how)
        assert done.returncode == 0, done.stderr
        return list(map(float, done.stdout.split()))

    child("write")
    (total, needed, held), (same, _, streamed) = child("memory"), child("stream")
    assert total == same
    assert needed == 4 * 12 * 8192 * 512 * 2
    assert held > 0.9 * needed, "the measurement sees what is held"
    assert streamed < 0.1 * needed


def test_mix_with_equal_weights_is_the_mean():
    layers = torch.randn(7, 4, 3)
    mixed = mix(layers, torch.zeros(4), torch.ones(()))
    torch.testing.assert_close(mixed, layers.mean(1))
    torch.testing.assert_close(mix(layers, torch.zeros(4), torch.tensor(4.0)), layers.sum(1))
    assert not torch.allclose(mixed, layers.sum(1))


def test_mix_takes_each_layer_by_its_own_weight():
    layers = torch.randn(7, 3, 5)
    weights = torch.tensor([0.0, 1.0, -2.0])
    share = torch.exp(weights) / torch.exp(weights).sum()
    expected = 2 * (share[0] * layers[:, 0] + share[1] * layers[:, 1] + share[2] * layers[:, 2])
    torch.testing.assert_close(mix(layers, weights, torch.tensor(2.0)), expected)


def test_mix_refuses_a_wrong_number_of_weights():
    with pytest.raises(ValueError, match=r"^\(3,\).*\b4\b"):
        mix(torch.randn(7, 4, 3), torch.zeros(3), torch.ones(()))
