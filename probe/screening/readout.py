"""Solves a linear readout of every candidate from second moments; it predicts a word's label from its window.

Concatenations are solved together, by a Cholesky factorisation that eliminates one layer at a time from the normal
equations. Those that begin with the same layers share these steps: most pay for their last layer alone.

L + 1 layers, R components of each, H hidden size, K places of the window, B = K * R, C labels, W words,
N readouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from probe.screening.moments import Moments, Reduction
from probe.system.grouping import group_by

RIDGE_ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)  # of the ridge, as shares of the mean variance of what is read
AT_ONCE = 16  # readouts whose scores are computed together

Key = tuple[str, tuple[int, ...]]  # "concat" or "mean", and of which layers, ascending: Candidate.readout


@dataclass(frozen=True)
class Readout:
    """Holds a readout. weights: (L of the candidate, R, K, C), for its layers in order. bias: (C,)."""

    indices: tuple[int, ...]
    weights: Tensor
    bias: Tensor


def scores(readouts: Sequence[Readout], layers: Tensor, beyond: Tensor) -> Iterator[Tensor]:
    """Returns the scores (W, C) of each readout on a text.

    layers: (W, L + 1, R). beyond: (K, W), whether a place is beyond the word's sentence.
    """
    for start in range(0, len(readouts), AT_ONCE):
        yield from _scores(readouts[start : start + AT_ONCE], layers, beyond).unbind(1)


def _scores(readouts: Sequence[Readout], layers: Tensor, beyond: Tensor) -> Tensor:
    """Returns the scores (W, N, C) of N readouts."""
    places, labels = readouts[0].weights.shape[2:]
    num_words = len(layers)
    read = readouts[0].bias.new_zeros(num_words, len(readouts), places * labels)
    for k, layer in enumerate(layers.unbind(1)):
        using = [n for n, readout in enumerate(readouts) if k in readout.indices]
        if using:
            weights = [readouts[n].weights[readouts[n].indices.index(k)].flatten(1) for n in using]
            for n, part in zip(using, (layer.float() @ torch.cat(weights, 1)).split(places * labels, 1), strict=True):
                read[:, n] += part
    total = torch.stack([readout.bias for readout in readouts]).repeat(num_words, 1, 1)
    for place, part in enumerate(read.unflatten(2, (places, labels)).unbind(2)):
        moved = part.roll(places // 2 - place, 0)  # row t has word t + place - window
        total += moved.masked_fill_(beyond[place][:, None, None], 0)
    return total


def solve(
    sums: Moments, wanted: Sequence[Key], to: Reduction, ridge_alphas: Mapping[int, float]
) -> Iterator[tuple[Key, Readout]]:
    """Solves ridge regressions on one-hot labels from the moments; yields them in another order than `wanted`.

    A sum, a mean and a mix are solved as the mean. ridge_alphas: by the number of concatenated layers; the largest key
    also serves more layers. Moments are centred, so constants get no weight and the bias no penalty.
    """
    means = [indices for combine, indices in wanted if combine == "mean"]
    for indices, readout in _averaged(sums, means, to, ridge_alphas[1]):
        yield ("mean", indices), readout
    concatenated = [indices for combine, indices in wanted if combine == "concat"]
    by_strength = group_by(concatenated, lambda indices: ridge_alphas[min(len(indices), max(ridge_alphas))])
    for strength, some in by_strength.items():
        for readout in _concatenated(sums, some, to, strength):
            yield ("concat", readout.indices), readout


def _ridge(diagonal: Tensor, size: int, strength: float, words: int) -> Tensor | int:
    """Returns the penalty added to each variance.

    size: dimensions of the layers before reduction, so that an alpha means the same for any number of components.
    """
    mean = diagonal.sum() / size
    return strength * mean if mean > 0 else words


def _averaged(
    sums: Moments, wanted: list[tuple[int, ...]], to: Reduction, strength: float
) -> Iterator[tuple[tuple[int, ...], Readout]]:
    """Solves readouts of means of layers in full hidden size, as those of their sums, whose weights are the same.

    Moments of layers 2, 3, 4 extend those of 2, 3. The moments of layer 4 with 2, 3 extend those with 3.
    """
    num_layers, whole, kept = to.pca_components.shape
    size = len(sums.x) // num_layers
    places = size // kept
    # (L + 1, R, H): from a reduced layer back to its hidden size; the same at each place
    basis = to.pca_components.transpose(1, 2) * to.scale[:, None, None]

    def expand(matrix: Tensor, k: int) -> Tensor:
        """Expands (K * R, columns) of layer k to (K * H, columns)."""
        return (basis[k].T @ matrix.view(places, kept, -1)).view(places * whole, -1)

    # By layer k: some earlier layers, and half of k's moments with itself plus its moments with each of these
    across: dict[int, tuple[set[int], Tensor]] = {}  # (K * H, K * R)
    indices: tuple[int, ...] = ()
    half = sums.xx.new_zeros(places * whole, places * whole)  # with its transpose, the moments of the sum of `indices`
    for chosen in sorted(wanted, key=lambda chosen: (-chosen[0], chosen)):
        if chosen[: len(indices)] != indices:
            indices = ()
            half.zero_()
        for k in chosen[len(indices) :]:
            if k not in across or not across[k][0] <= set(indices):
                across[k] = set(), expand(sums.of_pair(k, k), k) / 2
            earlier, with_k = across[k]
            for j in set(indices) - earlier:
                with_k += expand(sums.of_pair(j, k), j)
            earlier.update(indices)
            half += expand(with_k.T.contiguous(), k)
            indices = (*indices, k)
        some = list(chosen)
        xy = torch.einsum("lrh,lkrc->khc", basis[some], sums.xy.view(num_layers, places, kept, -1)[some]).flatten(0, 1)
        x = torch.einsum("lrh,lkr->kh", basis[some], sums.x.view(num_layers, places, kept)[some]).flatten()
        centred = (half + half.T).addr_(x, x, alpha=-1 / sums.words)
        xy -= torch.outer(x, sums.y) / sums.words
        diagonal = centred.diagonal()
        diagonal += _ridge(diagonal, len(diagonal), strength, sums.words)
        weights = _solved(centred, xy)
        bias = (sums.y - x @ weights) / sums.words
        weights = torch.einsum("lrh,khc->lrkc", basis[some], weights.unflatten(0, (places, whole)))
        yield chosen, Readout(chosen, weights.contiguous(), bias)


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solves for a positive definite matrix, in float64 if float32 has too few digits."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not int(failed):
        return torch.cholesky_solve(right, factor)
    return torch.cholesky_solve(right.double(), torch.linalg.cholesky(matrix.double())).to(right.dtype)


@dataclass(frozen=True)
class _Step:
    """Holds an eliminated layer. factor: (B, B), the Cholesky factor of the rest of its block. across: (B, B) for each
    later layer, the off-diagonal blocks solved with it. right: (B, C), the right-hand side solved with it."""

    layer: int
    factor: Tensor
    across: dict[int, Tensor]
    right: Tensor


def _concatenated(sums: Moments, wanted: list[tuple[int, ...]], to: Reduction, strength: float) -> list[Readout]:
    """Solves readouts of concatenated layers."""
    num_layers, whole, kept = to.pca_components.shape
    size = len(sums.x) // num_layers
    places = size // kept
    xy, x = sums.xy.view(num_layers, size, -1), sums.x.view(num_layers, size)
    squares = torch.cat([sums.of_pair(k, k).diagonal() for k in range(num_layers)])
    ridge = _ridge(squares - sums.x.square() / sums.words, num_layers * places * whole, strength, sums.words)

    def paths(dtype: torch.dtype) -> Iterator[list[_Step]]:
        blocks = {}
        for i, j in _pairs(wanted):
            blocks[i, j] = torch.addr(
                sums.of_pair(i, j).to(dtype), x[i].to(dtype), x[j].to(dtype), alpha=-1 / sums.words
            )
            if i == j:
                blocks[i, j].diagonal().add_(ridge)
        right = {k: (xy[k] - torch.outer(x[k], sums.y) / sums.words).to(dtype) for k in _layers(wanted)}
        return _eliminate(blocks, right, wanted, [])

    try:
        solved = [_back(path) for path in paths(x.dtype)]
    except torch.linalg.LinAlgError:  # float32 has too few digits for it
        solved = [_back(path) for path in paths(torch.float64)]
    readouts = []
    for by_layer in solved:
        weights = {k: own.to(x.dtype) for k, own in sorted(by_layer.items())}
        bias = (sums.y - sum(x[k] @ own for k, own in weights.items())) / sums.words
        apart = [own.unflatten(0, (places, kept)).transpose(0, 1) for own in weights.values()]
        readouts.append(Readout(tuple(weights), torch.stack(apart), bias))
    return readouts


def _layers(wanted: Sequence[tuple[int, ...]]) -> list[int]:
    return sorted({k for indices in wanted for k in indices})


def _pairs(wanted: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Returns the pairs of layers in these concatenations, with each layer's pair with itself."""
    return sorted({(i, j) for indices in wanted for i in indices for j in indices if i <= j})


def _eliminate(
    blocks: dict[tuple[int, int], Tensor], right: dict[int, Tensor], wanted: list[tuple[int, ...]], path: list[_Step]
) -> Iterator[list[_Step]]:
    """Yields the steps for each of `wanted`, after those of `path`. blocks, right: the rest of the normal equations.

    Raises LinAlgError if a block is not positive definite.
    """
    for k in sorted({indices[0] for indices in wanted}):
        rest = [indices[1:] for indices in wanted if indices[0] == k and len(indices) > 1]
        factor = torch.linalg.cholesky(blocks[k, k])
        own = torch.linalg.solve_triangular(factor, right[k], upper=False)
        if (k,) in wanted:
            yield [*path, _Step(k, factor, {}, own)]
        later = _layers(rest)
        if not later:
            continue
        side_by_side = torch.cat([blocks[k, j] for j in later], 1)
        eliminated = torch.linalg.solve_triangular(factor, side_by_side, upper=False).split(len(factor), 1)
        across = dict(zip(later, eliminated, strict=True))
        remaining = {(i, j): torch.addmm(blocks[i, j], across[i].T, across[j], alpha=-1) for i, j in _pairs(rest)}
        remaining_right = {j: torch.addmm(right[j], across[j].T, own, alpha=-1) for j in later}
        yield from _eliminate(remaining, remaining_right, rest, [*path, _Step(k, factor, across, own)])


def _back(path: list[_Step]) -> dict[int, Tensor]:
    """Substitutes back: each layer's weights, (B, C), from the last eliminated to the first."""
    weights: dict[int, Tensor] = {}
    for step in reversed(path):
        right = step.right
        for j, own in weights.items():
            right = torch.addmm(right, step.across[j], own, alpha=-1)
        weights[step.layer] = torch.linalg.solve_triangular(step.factor.T, right, upper=True)
    return weights
