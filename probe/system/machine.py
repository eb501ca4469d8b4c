"""Finds cores, memory and GPUs of this machine, and divides them between runs side by side.

Imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import UserError
from probe.system.locks import FileLock

if TYPE_CHECKING:
    from torch import Tensor

RUNS_ON_A_GPU = 4  # each uses a small part of it, since it waits for the host; more than four were not measured
SPINS = 10_000  # tenths of a millisecond. Default: 300,000; with 50,000, extraction next to other work is half as fast
# Files of a control group, by version: their folder, the limit, and the memory in use.
CGROUPS = {2: ("", "memory.max", "memory.current"), 1: ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")}


def num_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores() -> None:
    """Shortens the time that PyTorch's idle threads occupy a core. Must be called before PyTorch is imported.

    By default, OpenMP's threads spin for milliseconds when they wait for each other. If other processes need the cores,
    a spinning thread takes a core from the threads that it waits for: next to four trainings, an extraction on four
    cores took four times as long. No bits depend on this. The user's own setting is respected.
    https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


def gpus() -> list[str]:
    """Returns the GPUs that this process may use, with the names of CUDA_VISIBLE_DEVICES."""
    import torch

    found = [str(number) for number in range(torch.cuda.device_count())]
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    if cards is None or not found:
        return found
    return [name.strip() for name in cards.split(",") if name.strip() not in ("", "-1")]


def side_by_side(jobs: int, num_gpus: int) -> int:
    """Returns how many runs `jobs` asks for; -1: one per core, but at most RUNS_ON_A_GPU per GPU if there are GPUs."""
    if jobs != -1:
        return jobs
    return min(num_cores(), num_gpus * RUNS_ON_A_GPU) if num_gpus else num_cores()


def take_gpu(names: Sequence[str], folder: Path) -> None:
    """Binds this process to the GPU that the fewest other processes of the sweep use.

    folder: of the lock files that mark GPUs of this host as used, each until its process ends. If files cannot be
    locked, all processes take the first GPU. Must be called before CUDA starts; further calls change nothing.
    """
    if not names or _TAKEN:
        return
    slots = ((number, name) for number in itertools.count() for name in names)
    for number, name in slots:
        hold = FileLock(folder / f"gpu-{socket.gethostname()}-{name}-{number}.lock", exclusive=True)
        if not hold.busy:
            _TAKEN.append(hold)
            os.environ["CUDA_VISIBLE_DEVICES"] = name
            return


_TAKEN: list[FileLock] = []  # held until the process ends


def to_device(tensor: Tensor, device: str) -> Tensor:
    """Copies the tensor to the device.

    To a GPU it goes through pinned memory. From other memory, the host would wait for the copy, and so for all work
    that the GPU was given before.
    """
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor.to(device)


def resolve_device(device: str) -> str:
    """Returns cpu or cuda; `auto` takes a GPU if there is one. Raises UserError if the device does not exist."""
    # Deterministic products on a GPU need this variable. It is read when the GPU is first used. The other setting
    # that is allowed, ":16:8", gives 128 KB instead of 32 MB. With it, products in bfloat16 ran at 562 instead of 614
    # TFLOP/s on an H200.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch finds no GPU. Use device=cpu, or auto.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def placement(setting: str, needed: int, device: str, runs: int, num_gpus: int) -> str:
    """Decides where a run's features are: on the device, in memory, or in the store, streamed from there.

    needed: their bytes. runs: side by side on this machine. Each may take its share of half the free memory; the other
    half is for everything else in a run, and for the store's page cache. On a CPU, the device's memory is main memory.
    """
    if setting != "auto":
        return "memory" if (setting, device) == ("device", "cpu") else setting
    if device == "cuda" and needed <= free_memory_per_run(device, runs, num_gpus) / 2:
        return "device"
    return "memory" if needed <= free_memory_per_run("cpu", runs, num_gpus) / 2 else "stream"


def free_memory_per_run(device: str, runs: int, num_gpus: int) -> float:
    """Returns the bytes of a device's free memory for each of this many runs side by side."""
    if device != "cuda":
        return free_memory() / runs
    import torch

    gc.collect()
    torch.cuda.empty_cache()  # memory of the previous run
    return torch.cuda.mem_get_info()[0] / math.ceil(runs / max(1, num_gpus))


def free_memory(proc: Path = Path("/proc"), control: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the bytes that may still be used: the machine's, or its container's or batch job's if that is less."""
    try:
        meminfo = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
        free = int(meminfo["MemAvailable"].split()[0]) * 1024
        groups = (proc / "self/cgroup").read_text().splitlines()
    except (OSError, KeyError, ValueError):  # another system than Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for group in groups:
        _, controllers, place = group.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        under, limit, taken = CGROUPS[1 if controllers else 2]
        root = control / under
        folder = root / place.strip("/")
        for level in (folder, *folder.parents):
            if not level.is_relative_to(root):
                break
            with contextlib.suppress(OSError, ValueError, KeyError):  # "max", or no such level in this container
                stat = dict(line.split() for line in (level / "memory.stat").read_text().splitlines())
                total = "total_" if "total_inactive_file" in stat else ""
                cache = sum(int(stat[f"{total}{kind}_file"]) for kind in ("inactive", "active"))  # freed when needed
                free = min(free, int((level / limit).read_text()) - int((level / taken).read_text()) + cache)
    return max(free, 0)
