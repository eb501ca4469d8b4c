"""What this CPU can do in bfloat16 is found by trying it, and the trial leaves nothing behind."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from probe.system import bfloat16
from probe.system.bfloat16 import kernels, kernels_for

TRIALS = (bfloat16._product_works, bfloat16._lstm_works)


@pytest.fixture
def untried():
    for trial in TRIALS:
        trial.cache_clear()


def test_what_is_said_of_products_is_what_the_clock_shows():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(7):
        for dtype, measured in seconds.items():
            a = torch.ones(256, 256, dtype=dtype)
            clock = time.perf_counter()
            a @ a
            measured.append(time.perf_counter() - clock)
    torch.set_num_threads(threads)
    times_as_long = min(seconds[torch.bfloat16]) / min(seconds[torch.float32])  # 50 and more, or 2 and less
    assert (kernels_for("cpu", lstm=False) == "native") == (times_as_long < 10), times_as_long


@pytest.mark.usefixtures("untried")
def test_a_trial_restores_the_random_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    answers = [trial() for trial in TRIALS]
    assert torch.equal(torch.get_rng_state(), before)
    for trial in TRIALS:
        trial.cache_clear()
    with torch.inference_mode():
        assert [trial() for trial in TRIALS] == answers


def test_each_part_is_asked_for_what_is_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: True)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: False)
    assert (kernels_for("cpu", lstm=False), kernels_for("cpu", lstm=True)) == ("native", "pytorch")
    assert (kernels_for("cuda", lstm=False), kernels_for("cuda", lstm=True)) == ("native", "pytorch")
    monkeypatch.setattr(bfloat16, "_product_works", lambda: False)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: True)
    assert (kernels_for("cpu", lstm=False), kernels_for("cpu", lstm=True)) == ("pytorch", "pytorch")


def test_a_cpu_that_is_told_to_do_less_is_believed():
    code = "from probe.system.bfloat16 import kernels_for as f; print(f('cpu', lstm=False), f('cpu', lstm=True))"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pytorch", "pytorch"]


class WrittenOut(nn.Module):
    """A one-way LSTM from the equations of nn.LSTM's documentation, as products and sums."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.lstm = lstm

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        into, within, into_bias, within_bias = self.lstm.parameters()
        states: list[Tensor] = []
        hidden = cell = x.new_zeros(x.shape[1], within.shape[1])
        for word in x:
            gates = linear(word, into, into_bias) + linear(hidden, within, within_bias)
            let_in, keep, new, let_out = gates.chunk(4, -1)
            cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
            hidden = let_out.sigmoid() * cell.tanh()
            states.append(hidden)
        return torch.stack(states), None


def states_and_gradients(lstm: nn.Module, precision: str) -> dict[str, Tensor]:
    """The states, and the gradients of the input and of every weight."""
    x = torch.randn(12, 8, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with kernels(precision, "cpu", lstm=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            states, _ = lstm(x)
        states.float().square().mean().backward()
    named = {"states": states.detach().float(), "x": x.grad}
    named |= {name.rpartition(".")[2]: parameter.grad for name, parameter in lstm.named_parameters()}
    return {name: value for name, value in named.items() if value is not None}


@pytest.mark.parametrize("native", [True, False])
def test_an_lstm_in_bfloat16_is_that_of_the_equations(native: bool, monkeypatch: pytest.MonkeyPatch):
    if native and not bfloat16._lstm_works():
        pytest.skip("oneDNN has no LSTM in bfloat16 on this CPU")
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: native)
    torch.manual_seed(0)
    lstm = nn.LSTM(32, 16)
    made = states_and_gradients(copy.deepcopy(lstm), "bfloat16")
    expected = states_and_gradients(WrittenOut(copy.deepcopy(lstm)), "bfloat16")
    exact = states_and_gradients(copy.deepcopy(lstm), "float32")
    assert made.keys() == expected.keys() == exact.keys()
    for name, value in expected.items():
        assert (made[name] - value).norm() < 0.02 * value.norm(), name
        assert 1e-4 * value.norm() < (made[name] - exact[name]).norm() < 0.05 * value.norm(), name


def test_a_library_is_off_only_where_it_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: True)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: False)
    onednn, cudnn = torch.backends.mkldnn, torch.backends.cudnn
    for device, library in (("cpu", onednn), ("cuda", cudnn)):
        with kernels("bfloat16", device, lstm=True):
            assert (onednn.enabled, cudnn.enabled) == (library is not onednn, library is not cudnn)
            with kernels("float32", device, lstm=True):
                assert not library.enabled
        with kernels("bfloat16", device, lstm=False):
            assert library.enabled
        with pytest.raises(ZeroDivisionError), kernels("bfloat16", device, lstm=True):
            _ = 1 / 0
        assert library.enabled


def test_float32_tries_nothing(monkeypatch: pytest.MonkeyPatch):
    def never() -> bool:
        raise AssertionError("tried")

    for trial in ("_product_works", "_lstm_works"):
        monkeypatch.setattr(bfloat16, trial, never)
    with kernels("float32", "cpu", lstm=True):
        assert torch.backends.mkldnn.enabled
