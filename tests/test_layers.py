"""What a selection means, and that the layers come back in the order asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import features_config

from probe.config import LayersConfig, UserError
from probe.corpus import Corpus
from probe.encoder import Encoder
from probe.extraction import ensure_features
from probe.layers import mix, read_selection, select


@pytest.mark.parametrize(
    ("asked", "combine", "indices", "width", "name"),
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
def test_indices_become_absolute_in_the_order_asked_for(asked, combine, indices, width, name):
    selection = select(LayersConfig(asked, combine), 12, 768)
    assert (selection.indices, selection.width, selection.name) == (indices, width, name)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([99], "99 is out of range; layers are 0 .embeddings. to 12"),
        ([-14], "-14 is out of range"),
        ([1, 1], "layer 1 more than once"),
        ([12, -1], "layer 12 more than once"),
        ([], "names no layer"),
        ("5:5", "names no layer"),
        ("0:99", "99 is out of range"),
        ("-20:", "-20 is out of range"),
        ("all", "neither a list"),
        ([1.5], "neither a list"),
        ([True], "neither a list"),
        (None, "neither a list"),
    ],
)
def test_what_is_no_selection_is_refused_with_the_valid_range(asked, message):
    with pytest.raises(UserError, match=message):
        select(LayersConfig(asked, "concat"), 12, 768)


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


def test_mix_with_equal_weights_is_the_mean_and_is_not_the_sum():
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
    with pytest.raises(ValueError, match="3 weights for 4 layers|weights"):
        mix(torch.randn(7, 4, 3), torch.zeros(3), torch.ones(()))
