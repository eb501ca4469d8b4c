"""How runs side by side share cores, memory and GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from support.commands import python

from probe.system import machine

GB = 10**9


@pytest.mark.parametrize(
    ("jobs", "num_gpus", "expected"),
    [
        (-1, 0, 16),
        (3, 0, 3),
        (-1, 1, machine.RUNS_ON_A_GPU),
        (-1, 2, 2 * machine.RUNS_ON_A_GPU),
        (-1, 8, 16),
        (9, 1, 9),
    ],
)
def test_runs_side_by_side_follow_cores_gpus_or_jobs(
    jobs: int, num_gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machine, "num_cores", lambda: 16)
    assert machine.side_by_side(jobs, num_gpus) == expected


@pytest.mark.parametrize(
    ("own", "spins"),
    [({}, str(machine.SPINS)), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, "0")],
)
def test_waiting_threads_soon_leave_their_cores(own: dict[str, str], spins: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    code = (
        "import atexit, sys; from probe.cli import main; "
        "atexit.register(__import__, 'torch'); sys.argv = ['probe', 'help']; main()"
    )
    done = python(code, OMP_DISPLAY_ENV="VERBOSE", **own)
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr, done.stderr  # as the library prints what it has read


def test_the_gpus_are_those_that_the_process_was_given_or_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpus() == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-5a")
    assert machine.gpus() == ["2", "GPU-5a"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert machine.gpus() == []


def test_processes_take_the_gpus_in_turn_and_keep_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(machine, "num_cores", lambda: 1)
    held = []  # a lock taken twice in one process is busy, as in two
    for _ in range(5):
        monkeypatch.setattr(machine, "_TAKEN", [])
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        machine.take_gpu(["2", "GPU-5a"], tmp_path)
        held.append((os.environ.get("CUDA_VISIBLE_DEVICES"), machine._TAKEN))
    assert [name for name, _ in held] == ["2", "GPU-5a", "2", "GPU-5a", "2"]
    for _, holds in held:
        holds[0].release()


@pytest.mark.parametrize(
    ("needed", "runs", "expected"),
    [(9 * GB, 1, "memory"), (11 * GB, 1, "stream"), (9 * GB, 2, "stream"), (4 * GB, 2, "memory")],
)
def test_features_lie_in_memory_where_every_run_beside_has_room_too(
    needed: int, runs: int, expected: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machine, "free_memory", lambda: 20 * GB)
    assert machine.placement("auto", needed, "cpu", runs, 0) == expected
    assert machine.placement("stream", needed, "cpu", runs, 0) == "stream"
    assert machine.placement("memory", needed, "cpu", runs, 0) == "memory"
    assert machine.placement("device", needed, "cpu", runs, 0) == "memory"


@pytest.mark.parametrize(
    ("needed", "runs", "num_gpus", "expected"),
    [(30 * GB, 1, 1, "device"), (30 * GB, 4, 4, "device"), (30 * GB, 5, 4, "memory"), (60 * GB, 2, 1, "stream")],
)
def test_features_lie_on_the_gpu_if_all_runs_fit(
    needed: int, runs: int, num_gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80 * GB, 96 * GB))
    monkeypatch.setattr(machine, "free_memory", lambda: 300 * GB if num_gpus > 1 else 200 * GB)
    assert machine.placement("auto", needed, "cuda", runs, num_gpus) == expected
    assert machine.placement("device", 10**15, "cuda", runs, num_gpus) == "device"


def machine_with(folder: Path, group: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc with 20 GB to be had and one control group, and a /sys/fs/cgroup with these files."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {20 * GB // 1024} kB\n")
    (folder / "proc/self/cgroup").write_text(f"9:cpu,cpuacct:/x\n{group}\n")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / "proc", folder / "control"


def test_free_memory_heeds_container_and_batch_limits(tmp_path: Path):
    cache = "anon 7\ninactive_file 1000000000\nactive_file 500000000\n"
    second = {
        "control/job/memory.max": "8000000000\n",
        "control/job/memory.current": "3000000000\n",
        "control/job/memory.stat": cache,
        "control/job/step/memory.max": "max\n",
        "control/job/step/memory.current": "3000000000\n",
        "control/job/step/memory.stat": cache,
    }
    assert machine.free_memory(*machine_with(tmp_path / "2", "0::/job/step", second)) == 6_500_000_000
    first = {
        "control/memory/memory.limit_in_bytes": "4000000000\n",
        "control/memory/memory.usage_in_bytes": "3000000000\n",
        "control/memory/memory.stat": "inactive_file 0\nactive_file 0\ntotal_inactive_file 2000000000\n"
        "total_active_file 0\n",
    }
    place = "4:memory:/not/in/this/container"
    assert machine.free_memory(*machine_with(tmp_path / "1", place, first)) == 3_000_000_000
    no_limit = machine_with(tmp_path / "0", "0::/", {})
    assert machine.free_memory(*no_limit) == pytest.approx(20 * GB, abs=1024)


def test_free_memory_is_within_the_machines():
    assert 0 < machine.free_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
