"""Records where a result comes from: versions, commit, command, and the machine that trained it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from probe.config import conf_dir
from probe.system.bfloat16 import Kernels

PACKAGES = "layer-probe torch transformers tokenizers datasets pytorch-lightning hydra-core seqeval numpy".split()
DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Git:
    commit: str
    dirty: bool


@dataclass(frozen=True)
class Software:
    versions: dict[str, str | None]
    git: Git | None
    command: str


@dataclass(frozen=True)
class Hardware:
    """Describes the machine that the probe was trained on.

    bfloat16: which kernels computed it, if the run used it; None in older records, which all used native ones.
    cuda, cudnn, driver: their versions, of a GPU.
    """

    device: str
    device_name: str
    instructions: str
    cores: int | None
    threads: int
    deterministic: bool
    platform: str
    bfloat16: Kernels | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None


def provenance(command: str | None = None) -> Software:
    """Returns versions, the commit of this code if it runs from a checkout, and the command that was typed.

    command: for processes of a sweep, whose own command nobody typed.
    """
    return Software(versions(), _git_state(), command or " ".join(sys.argv))


@functools.cache
def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that a run uses; None for a package that is not installed."""
    return {"python": platform.python_version()} | {package: version_of(package) for package in PACKAGES}


def version_of(package: str) -> str | None:
    """Returns an installed package's version; None if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


@functools.cache
def _git_state() -> Git | None:
    root = conf_dir().parent  # of a checkout; an installed package has no .git there
    if not (root / ".git").exists():
        return None
    try:
        commit, changed = (
            subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "probe", "conf"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return Git(commit, bool(changed))


def hardware(device: str, threads: int, bfloat16: Kernels | None = None) -> Hardware:
    """Describes the machine for a record. bfloat16: see `probes.kinds.bfloat16_kernels`."""
    import torch

    is_gpu = device == "cuda"
    cudnn = torch.backends.cudnn.version() if is_gpu else None
    return Hardware(
        device,
        torch.cuda.get_device_name() if is_gpu else _cpu_name(),
        torch.backends.cpu.get_cpu_capability(),
        os.cpu_count(),
        threads,
        torch.are_deterministic_algorithms_enabled(),
        platform.platform(),
        bfloat16,
        torch.version.cuda if is_gpu else None,
        None if cudnn is None else str(cudnn),
        _driver() if is_gpu else None,
    )


def _driver() -> str | None:
    """Returns the version of NVIDIA's kernel module; None if the system does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"Module.*?\s(\d+(?:\.\d+)+)\s", DRIVER.read_text(encoding="utf-8"))
        return found[1] if found else None
    return None


def _cpu_name() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()
