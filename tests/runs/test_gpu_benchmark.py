"""The logic of tests/benchmarks/gpu.py, at a tiny size: its parts on the stand-in for a GPU and on the CPU."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.cuda import gpu

from probe.probes import schedule
from probe.probes.tagger import Training

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


@pytest.fixture
def on_stand_in(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Measures a part on the stand-in, whose waits are counted in place of those that PyTorch reports."""
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 12)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5_000_000)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    with gpu(monkeypatch) as stand_in:

        @contextmanager
        def counted(device: str) -> Iterator[Callable[[], int]]:
            before = len(stand_in.waits)
            yield lambda: sum(what != "synchronize" for what, _ in stand_in.waits[before:])

        monkeypatch.setattr(benchmark, "counted_waits", counted)
        bench = benchmark.Bench(benchmark.SIZES["tiny"], "cuda", tmp_path, None, "tests", time.monotonic() + 600)
        yield lambda part: benchmark.measure(part, bench)


@pytest.mark.slow
def test_extraction_is_measured_in_both_precisions(on_stand_in: Callable):
    found = on_stand_in("extraction")
    assert found["ok"], found
    for precision in ("float32", "bfloat16"):
        its = found[precision]
        assert its["over_bare"] == pytest.approx(its["bare_words_per_second"] / its["words_per_second"], rel=0.01)
        assert its["bare_peak_fraction"] > 0
        assert (its["peak_mb"], its["bare_peak_mb"]) == (5, 5)


@pytest.mark.slow
def test_an_epoch_of_the_probe_is_measured_against_both_loops(
    on_stand_in: Callable, benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """The stand-in cannot pack; that loop is tested on the CPU."""

    def padded(self: Any, batch: Any) -> torch.Tensor:
        return benchmark._loss(self.classifier(batch.features.float()[..., : self.classifier.in_features]), batch)

    monkeypatch.setattr(benchmark.PackedOnAnyDevice, "loss", padded)
    found = on_stand_in("epoch")
    assert found["ok"], found
    ours, bare, packed = (found["seconds_per_epoch"][name] for name in ("ours", "bare", "packed"))
    assert min(ours, bare, packed) > 0
    assert found["over_packed"] == pytest.approx(ours / packed, rel=0.05)


@pytest.mark.slow
def test_cpu_and_gpu_agree_on_the_stand_in_and_other_features_are_found(
    on_stand_in: Callable, benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    found = on_stand_in("agreement")
    assert found["ok"], found
    assert found["dev_f1"]["cpu"] == found["dev_f1"]["cuda"]
    assert found["largest_difference_of_a_feature"] < 1e-4
    monkeypatch.setattr(benchmark, "LARGEST_ROUNDING", -1.0)
    found = on_stand_in("agreement")
    assert not found["ok"]
    assert set(found["dev_f1"]) == {"cpu", "cuda"}, "what was measured is shown all the same"


@pytest.mark.slow
def test_waits_are_counted_and_an_update_that_waits_is_found(on_stand_in: Callable, monkeypatch: pytest.MonkeyPatch):
    found = on_stand_in("waits")
    assert found["ok"], found
    assert found["training"]["each"] == 0
    assert found["extraction"]["each"] == pytest.approx(1, abs=0.1), "transformers' look at the mask"
    assert found["fine_tuning"]["each"] == pytest.approx(1, abs=0.1), "the same"


@pytest.mark.slow
def test_an_update_that_waits_is_a_part_that_failed(on_stand_in: Callable, monkeypatch: pytest.MonkeyPatch):
    honest = Training.training_step

    def waiting(self: Training, batch: Any) -> torch.Tensor:
        loss = honest(self, batch)
        loss.item()
        return loss

    monkeypatch.setattr(Training, "training_step", waiting)
    found = on_stand_in("waits")
    assert not found["ok"]
    assert found["training"]["each"] == pytest.approx(1, abs=0.1)


def options(**changes: Any) -> argparse.Namespace:
    values = {"size": "tiny", "device": "cpu", "tests": "tests", "encoder": None}
    return argparse.Namespace(**{**values, **changes})


def test_a_part_that_is_not_done_in_time_is_ended(benchmark: ModuleType):
    clock = time.monotonic()
    found = benchmark.in_a_process("sweep", options(), 1)
    assert not found["ok"]
    assert "1 s" in found["error"]
    assert time.monotonic() - clock < 30


def test_one_failed_part_does_not_stop_the_others_and_is_in_the_last_line(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    limits = {}

    def made_up(name: str, _: argparse.Namespace, limit_s: float) -> dict[str, Any]:
        limits[name] = limit_s
        return {"ok": name != "epoch", "error": "diverged", "seconds": 1.0}

    monkeypatch.setattr(benchmark, "in_a_process", made_up)
    out = tmp_path / "gpu.json"
    assert benchmark.main(["--size", "tiny", "--device", "cpu", "--out", str(out)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    result = json.loads(last)
    assert json.loads(out.read_text()) == result
    assert not result["ok"]
    assert [name for name, part in result["parts"].items() if not part["ok"]] == ["epoch"]
    assert set(result["parts"]) == set(benchmark.PARTS)
    assert sum(limits.values()) + limits["products"] <= 480, "on a GPU products are measured twice"


def test_a_failure_inside_a_part_is_its_error(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bench = benchmark.Bench(
        benchmark.SIZES["tiny"], "cpu", tmp_path, tmp_path / "nowhere", "tests", time.monotonic() + 60
    )
    found = benchmark.measure("extraction", bench)
    assert not found["ok"]
    assert "nowhere" in found["error"]


def test_tests_that_fail_are_named(benchmark: ModuleType, tmp_path: Path):
    made_up = tmp_path / "test_made_up.py"
    made_up.write_text(
        "import pytest\npytestmark = pytest.mark.gpu\n"
        "def test_good(): pass\ndef test_bad(): assert False\ndef test_left_out(): pytest.skip()\n"
    )
    bench = benchmark.Bench(benchmark.SIZES["tiny"], "cpu", tmp_path, None, str(made_up), time.monotonic() + 60)
    found = benchmark.measure("tests", bench)
    assert not found["ok"]
    assert (found["passed"], found["skipped"], found["failed"]) == (1, 1, ["test_made_up.test_bad"])


@pytest.mark.slow
def test_the_packed_loop_is_measured_on_a_cpu(benchmark: ModuleType, tmp_path: Path):
    bench = benchmark.Bench(benchmark.SIZES["tiny"], "cpu", tmp_path, None, "tests", time.monotonic() + 600)
    found = benchmark.measure("epoch", bench)
    assert found["ok"], found
    assert found["seconds_per_epoch"]["packed"] > 0


@pytest.mark.slow
def test_the_parts_that_need_processes_run_on_a_cpu_at_a_tiny_size(tmp_path: Path):
    parts = ["products", "sweep"]
    out = tmp_path / "gpu.json"
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--size", "tiny", "--device", "cpu", "--seconds", "4800"]
    done = subprocess.run([*command, "--out", str(out), "--only", *parts], capture_output=True, text=True, cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert json.loads(out.read_text()) == result
    assert list(result["parts"]) == parts
    sweep = result["parts"]["sweep"]
    assert sweep["same_predictions"] == {"2": 2}
    assert set(sweep["seconds_at_once"]) == {"1", "2"}
