"""Emulated bfloat16 against autocast itself, against an LSTM written out under it, and against rounding by hand."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from probe.probes.arithmetic import Rounding, arithmetic
from probe.system import bfloat16

WIDTH, HIDDEN, LABELS = 32, 16, 7


class Reader(nn.Module):
    """A one-way LSTM and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.classifier = nn.LSTM(WIDTH, HIDDEN), nn.Linear(HIDDEN, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.lstm(x)[0])


class WrittenOut(Reader):
    """The same, from the equations of nn.LSTM's documentation."""

    def forward(self, x: Tensor) -> Tensor:
        into, within, into_bias, within_bias = self.lstm.parameters()
        states: list[Tensor] = []
        hidden = cell = x.new_zeros(x.shape[1], HIDDEN)
        for word in x:
            gates = linear(word, into, into_bias) + linear(hidden, within, within_bias)
            let_in, keep, new, let_out = gates.chunk(4, -1)
            cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
            hidden = let_out.sigmoid() * cell.tanh()
            states.append(hidden)
        return self.classifier(torch.stack(states))


def loss_and_gradients(model: nn.Module, context: AbstractContextManager) -> dict[str, Tensor]:
    """Loss, scores, and the gradients of the input and of every weight."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 8, WIDTH, generator=generator).requires_grad_()
    labels = torch.randint(LABELS, (12, 8), generator=generator)
    with context:
        scores = model(x)
    loss = cross_entropy(scores.float().flatten(0, 1), labels.flatten())
    loss.backward()
    named = {"loss": loss.detach(), "scores": scores.detach().float(), "x": x.grad}
    named |= {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(value is not None and value.dtype == torch.float32 for value in named.values())
    return {name: value for name, value in named.items() if value is not None}


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def test_a_linear_layer_is_autocasts_in_scores_and_gradients():
    """To a unit in bfloat16's last place here and there, as sums are taken in another order."""
    torch.manual_seed(0)
    layer = nn.Linear(WIDTH, LABELS)
    made, expected = (loss_and_gradients(copy.deepcopy(layer), context) for context in (Rounding(), autocast()))
    for name in expected:
        torch.testing.assert_close(made[name], expected[name], rtol=2**-7, atol=1e-6)
        if name != "loss":
            assert (made[name] == expected[name]).float().mean() > 0.9, name
            assert torch.equal(made[name], made[name].bfloat16().float()), name


def test_an_lstm_is_close_to_one_written_out_in_true_bfloat16():
    made, expected = loss_and_gradients(Reader(), Rounding()), loss_and_gradients(WrittenOut(), autocast())
    torch.testing.assert_close(made["loss"], expected["loss"], rtol=1e-3, atol=0)
    for name, value in expected.items():
        assert (made[name] - value).norm() < 0.02 * value.norm(), name


def test_an_lstm_computes_in_float32_what_is_rounded_before_and_after():
    made = loss_and_gradients(Reader(), Rounding())
    by_hand = Reader()
    with torch.no_grad():
        for parameter in by_hand.parameters():
            parameter.copy_(parameter.bfloat16())

    class RoundedAround(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            states, _ = by_hand.lstm(x.bfloat16().float())
            return by_hand.classifier(states.bfloat16().float()).bfloat16().float()

    expected = loss_and_gradients(RoundedAround(), nullcontext())
    for name in ("loss", "scores", "x"):
        assert torch.equal(made[name], expected[name]), name
    for name, parameter in by_hand.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(made[name], parameter.grad.bfloat16().float(), rtol=2**-7, atol=1e-7)


def test_float32_is_what_it_is_without_and_tries_nothing(monkeypatch: pytest.MonkeyPatch):
    def never() -> bool:
        raise AssertionError("tried")

    for trial in ("_product_works", "_lstm_works"):
        monkeypatch.setattr(bfloat16, trial, never)
    model = Reader()
    x = torch.randn(5, 3, WIDTH)
    with arithmetic("float32", "cpu", lstm=True):
        scores = model(x)
    assert torch.equal(scores, model(x))


@pytest.mark.parametrize("works", [True, False])
def test_where_the_cpu_has_it_autocast_does_it(monkeypatch: pytest.MonkeyPatch, works: bool):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: works)
    layer, x = nn.Linear(WIDTH, LABELS), torch.randn(5, WIDTH)
    with arithmetic("bfloat16", "cpu", lstm=False):
        scores = layer(x)
        assert torch.is_autocast_enabled("cpu") == works
    with autocast():
        expected = layer(x)
    assert scores.dtype == (torch.bfloat16 if works else torch.float32)
    if works:
        assert torch.equal(scores, expected)
