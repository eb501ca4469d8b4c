"""What this machine gives, cores, memory and GPUs, and how runs side by side share it.

Imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import UserError
from probe.system.locks import FileLock

if TYPE_CHECKING:
    from torch import Tensor

RUNS_ON_A_GPU = 4  # each fills a small part of one; more wait for each other (an estimate, not a measurement)
SPINS = 10_000  # tenths of a millisecond; by default 300,000; with 50,000 extraction beside other work is half as fast
# Files of a control group, by version: the folder they lie under, the limit, and what is taken of it.
CGROUPS = {2: ("", "memory.max", "memory.current"), 1: ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")}


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_cores() -> None:
    """Lets PyTorch's threads sleep soon where they wait for each other. Call it before PyTorch is imported.

    A thread that waits keeps its core for milliseconds, as OpenMP has it, and beside other work it keeps it from those
    that it waits for: beside four trainings, an extraction on four cores took four times as long. No bits depend on it.
    The user's own setting stays. https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))


def gpus() -> list[str]:
    """The GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    if cards is not None:
        return [name.strip() for name in cards.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def side_by_side(jobs: int, num_gpus: int) -> int:
    """How many runs `jobs` asks for; -1 means one a core, and on GPUs no more than RUNS_ON_A_GPU for each."""
    if jobs != -1:
        return jobs
    return min(num_cores(), num_gpus * RUNS_ON_A_GPU) if num_gpus else num_cores()


def take_gpu(names: Sequence[str], folder: Path) -> None:
    """Binds this process to the GPU that the fewest other processes of the sweep have taken.

    folder: of the lock files that mark GPUs as taken, each until its process ends. Where files cannot be locked, all
    take the first. Call it before CUDA starts in the process; further calls change nothing.
    """
    if not names or _TAKEN:
        return
    slots = ((number, name) for number in itertools.count() for name in names)
    for number, name in slots:
        hold = FileLock(folder / f"gpu-{name}-{number}.lock", exclusive=True)
        if not hold.busy:
            _TAKEN.append(hold)
            os.environ["CUDA_VISIBLE_DEVICES"] = name
            return


_TAKEN: list[FileLock] = []  # kept until the process ends


def to_device(tensor: Tensor, device: str) -> Tensor:
    """The tensor on the device. To a GPU it goes from pinned memory: from any other the host would wait for the copy,
    and with it for all that the GPU was told before."""
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor.to(device)


def resolve_device(device: str) -> str:
    """cpu or cuda; `auto` takes a GPU where there is one. Raises UserError if the one asked for is not there."""
    # Deterministic products on a GPU need it, and it is read when the GPU is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch sees no GPU here. Use device=cpu, or auto.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def placement(setting: str, needed: int, device: str, runs: int, num_gpus: int) -> str:
    """Where to keep a run's features: on the device, in memory, or in the store, streamed from there.

    needed: their bytes. runs: side by side on this machine; each may take its share of half the free memory, as the
    rest is for all else that a run needs, and the store's page cache. On a CPU the device's memory is main memory.
    """
    if setting != "auto":
        return "memory" if (setting, device) == ("device", "cpu") else setting
    if device == "cuda" and needed <= free_memory_per_run(device, runs, num_gpus) / 2:
        return "device"
    return "memory" if needed <= free_memory_per_run("cpu", runs, num_gpus) / 2 else "stream"


def free_memory_per_run(device: str, runs: int, num_gpus: int) -> float:
    """Bytes of a device's memory that are free for each of so many runs side by side."""
    if device != "cuda":
        return free_memory() / runs
    import torch

    gc.collect()
    torch.cuda.empty_cache()  # what the run before left
    return torch.cuda.mem_get_info()[0] / math.ceil(runs / max(1, num_gpus))


def free_memory(proc: Path = Path("/proc"), control: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that may still be taken: of the machine, or of the container or batch job around us where that is less."""
    try:
        meminfo = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
        free = int(meminfo["MemAvailable"].split()[0]) * 1024
        groups = (proc / "self/cgroup").read_text().splitlines()
    except (OSError, KeyError, ValueError):  # not Linux
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
                cache = sum(int(stat[f"{total}{kind}_file"]) for kind in ("inactive", "active"))  # given back at need
                free = min(free, int((level / limit).read_text()) - int((level / taken).read_text()) + cache)
    return max(free, 0)
