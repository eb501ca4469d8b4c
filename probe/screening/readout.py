"""A linear readout of every candidate, solved from second moments: what it predicts of a word from its window.

L + 1 layers, R directions kept of each, H hidden size, D = (L + 1) * R, K places of the window, C labels, W words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probe.screening.candidates import Candidate
from probe.screening.moments import Moments, Reduction

STRENGTHS = (1e-3, 1e-2, 1e-1)  # of the ridge, as shares of the mean variance of what is read


@dataclass(frozen=True)
class Readout:
    """weights: (L of the candidate, R, K, C), for its layers in their order. bias: (C,)."""

    indices: tuple[int, ...]
    weights: Tensor
    bias: Tensor

    def scores(self, layers: Tensor, beyond: Tensor) -> Tensor:
        """(W, C) of a text. layers: (L + 1, W, R). beyond: (K, W), whether a place is beyond the word's sentence."""
        places, labels = self.weights.shape[2:]
        read = layers.new_zeros(layers.shape[1], places * labels)
        for k, weights in zip(self.indices, self.weights, strict=True):
            read += layers[k] @ weights.flatten(1)
        scores = self.bias.repeat(len(read), 1)
        for place, part in enumerate(read.unflatten(1, (places, labels)).unbind(1)):
            moved = part.roll(places // 2 - place, 0)  # row t has word t + place - window
            scores += moved.masked_fill(beyond[place][:, None], 0)
        return scores


def solve(sums: Moments, candidate: Candidate, to: Reduction, strength: float) -> Readout:
    """The ridge readout of a candidate's layers that the moments give, least squares to one-hot labels.

    A sum, a mean and a mix are solved as the mean. What does not vary is not penalised away but left out.
    """
    combine, indices = candidate.readout
    num_layers, _, kept = to.directions.shape
    width = num_layers * kept
    places = len(sums.x) // width
    some, size = torch.tensor(indices, device=sums.x.device), places * len(indices) * kept
    by_layer = (places, num_layers, kept)
    blocks = sums.xx.view(*by_layer, *by_layer).index_select(1, some).index_select(4, some)  # whole blocks: no gather
    xx = blocks.reshape(size, size)
    xy = sums.xy.view(*by_layer, -1).index_select(1, some).reshape(size, -1)
    x = sums.x.view(by_layer).index_select(1, some).reshape(size)
    basis = None
    if combine == "mean":
        # (k * R, H): what the reduced layers side by side come to as a mean of whole layers; the same at each place
        basis = torch.cat([to.directions[k].T * to.scale[k] / len(indices) for k in indices])
        inner, whole = basis.shape
        half = (basis.T @ xx.view(places, inner, size)).reshape(places * whole, places, inner)
        xx = (half @ basis).reshape(places * whole, places * whole)
        xy = (basis.T @ xy.view(places, inner, -1)).reshape(places * whole, -1)
        x = (x.view(places, inner) @ basis).flatten()
    xx -= torch.outer(x, x) / sums.words
    xy -= torch.outer(x, sums.y) / sums.words
    diagonal = xx.diagonal()
    # Of whole layers, not of the directions kept: a strength means the same whatever was reduced.
    mean = diagonal.sum() / (places * to.directions.shape[1] * (1 if combine == "mean" else len(indices)))
    diagonal += strength * mean if mean > 0 else sums.words
    weights = _solved(xx, xy)
    bias = (sums.y - x @ weights) / sums.words
    if basis is not None:
        weights = (basis @ weights.unflatten(0, (places, -1))).flatten(0, 1)
    weights = weights.unflatten(0, (places, len(indices), kept)).permute(1, 2, 0, 3).contiguous()
    return Readout(indices, weights, bias)


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """The solution for a positive definite matrix; where float32 has too few digits for it, in float64."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not int(failed):
        return torch.cholesky_solve(right, factor)
    return torch.cholesky_solve(right.double(), torch.linalg.cholesky(matrix.double())).to(right.dtype)
