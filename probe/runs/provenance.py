"""Where a record comes from: versions, commit and command, and the machine that trained it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

import probe
from probe.runs.records import Git, Hardware, Software

PACKAGES = (
    "layer-probe",
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "pytorch-lightning",
    "hydra-core",
    "seqeval",
    "numpy",
)


def provenance(command: str | None = None) -> Software:
    """Versions, the commit of this code where it runs from a checkout, and the command that was typed.

    command: for the processes of a sweep, which nobody typed.
    """
    return Software(versions(), _git_state(), command or " ".join(sys.argv))


@functools.cache
def versions() -> dict[str, str | None]:
    """The versions of Python and of what a run rests on; None for what is not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


@functools.cache
def _git_state() -> Git | None:
    root = Path(probe.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", "probe", "conf"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return Git(commit, bool(changed))


def hardware(device: str, threads: int) -> Hardware:
    """What the probe was trained on."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else _cpu_name()
    return Hardware(
        device,
        name,
        torch.backends.cpu.get_cpu_capability(),
        os.cpu_count(),
        threads,
        torch.are_deterministic_algorithms_enabled(),
        platform.platform(),
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()
