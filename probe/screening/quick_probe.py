"""Trains quick probes: perceptrons with one hidden layer that read a word and its neighbours, several seeds at once.

W words, D features of a word, K places of the window, S seeds, B words in a batch, C labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from probe.probes.training import decisions

HIDDEN_SIZE = 64
UPDATES = 300
BATCH_WORDS = 512  # per update, but at most BATCH_SHARE of the words, so that few words are seen in random order too
BATCH_SHARE = 1 / 8
LEARNING_RATE = 2e-3  # of Adam; it falls linearly to 0
DROPOUT = 0.2  # behind the hidden layer
WORDS_AT_ONCE = 4096  # when predicting; bounds the memory


@dataclass(frozen=True)
class WindowedWords:
    """Holds the words of a text. vectors: (W + 1, D), the last one zeros. places: (W, K), of a word and its neighbours.

    Beyond a sentence's bounds stand zeros.
    """

    vectors: Tensor
    places: Tensor

    @classmethod
    def of(cls, vectors: Tensor, lengths: Sequence[int], window: int) -> WindowedWords:
        """Places a window over the words of sentences. vectors: (W + 1, D), see above. window: words to each side."""
        num_words = len(vectors) - 1
        starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)[:, None]
        places = np.arange(num_words)[:, None] + np.arange(-window, window + 1)
        inside = (places >= starts) & (places < starts + np.repeat(lengths, lengths)[:, None])
        places = np.where(inside, places, num_words)
        return cls(vectors, torch.from_numpy(places).to(vectors.device))

    def __getitem__(self, words: Tensor) -> Tensor:
        """Returns the windows of some words: (..., K D) in float32."""
        return self.vectors[self.places[words]].flatten(-2).float()


def quick_predictions(
    train: WindowedWords,
    labels: Tensor,
    num_labels: int,
    dev: WindowedWords,
    seed: int,
    num_seeds: int,
    is_ranked: bool = False,
) -> Tensor:
    """Trains a quick probe with each seed on train, and returns its `decisions` on dev: (S, W).

    labels: (W,), numbers from 0 to C - 1. The same seed gives the same bits, on one thread.
    """
    draw, device = torch.Generator().manual_seed(seed), train.vectors.device
    width, num_words = train.vectors.shape[1] * train.places.shape[1], len(train.places)

    def weights(inputs: int, *shape: int) -> Tensor:  # as nn.Linear draws them
        values = torch.rand(num_seeds, *shape, generator=draw).mul_(2).sub_(1).div_(math.sqrt(inputs))
        return values.to(device).requires_grad_()

    hidden, hidden_bias = weights(width, width, HIDDEN_SIZE), weights(width, 1, HIDDEN_SIZE)
    output, output_bias = weights(HIDDEN_SIZE, HIDDEN_SIZE, num_labels), weights(HIDDEN_SIZE, 1, num_labels)

    def scores(x: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        """Returns (S, B, C). x: (S, B, K D). keep: factors on the hidden layer."""
        return torch.baddbmm(output_bias, torch.baddbmm(hidden_bias, x, hidden).relu() * keep, output)

    optimizer = torch.optim.Adam([hidden, hidden_bias, output, output_bias], LEARNING_RATE, fused=True)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, UPDATES)
    size = max(1, min(BATCH_WORDS, int(num_words * BATCH_SHARE)))
    in_order = num_words // size  # updates until the words are put into a new order
    for update in range(UPDATES):
        if update % in_order == 0:
            orders = torch.stack([torch.randperm(num_words, generator=draw) for _ in range(num_seeds)])
        at = update % in_order * size
        chosen = orders[:, at : at + size].to(device)
        keep = torch.rand(num_seeds, size, HIDDEN_SIZE, generator=draw).ge_(DROPOUT).div_(1 - DROPOUT).to(device)
        loss = nn.functional.cross_entropy(scores(train[chosen], keep).flatten(0, 1), labels[chosen].flatten())
        optimizer.zero_grad()
        # The loss is a mean over all seeds. The factor gives each seed the gradient of the mean over its own words.
        (loss * num_seeds).backward()
        optimizer.step()
        falling.step()
    with torch.inference_mode():
        parts = torch.arange(len(dev.places), device=device).split(WORDS_AT_ONCE)
        return torch.cat([decisions(scores(dev[part].expand(num_seeds, -1, -1)), is_ranked) for part in parts], 1)
