"""What this CPU can do in bfloat16 is found by trying it, and the trial leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from probe.system import bfloat16
from probe.system.bfloat16 import rounded, way

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
    assert (way("cpu", lstm=False) == "native") == (times_as_long < 10), times_as_long


@pytest.mark.usefixtures("untried")
def test_a_trial_moves_no_random_number_and_is_as_good_where_gradients_are_off():
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
    assert (way("cpu", lstm=False), way("cpu", lstm=True)) == ("native", "emulated")
    assert (way("cuda", lstm=False), way("cuda", lstm=True)) == ("native", "emulated")
    monkeypatch.setattr(bfloat16, "_product_works", lambda: False)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: True)
    assert (way("cpu", lstm=False), way("cpu", lstm=True)) == ("emulated", "emulated")


def test_a_cpu_that_is_told_to_do_less_is_believed():
    code = "from probe.system.bfloat16 import way; print(way('cpu', lstm=False), way('cpu', lstm=True))"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["emulated", "emulated"]


def test_rounding_keeps_eight_bits_and_rounds_the_gradient_too():
    x = torch.tensor([1.0, 1 + 2**-8 + 2**-20, -3.14159265, 1e-30], requires_grad=True)
    out = rounded(x)
    assert out.dtype == torch.float32
    assert out.tolist() == [1.0, 1 + 2**-7, -3.140625, x.bfloat16()[3].item()]
    (out * (1 + 2**-8 + 2**-20)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1 + 2**-7] * 4
