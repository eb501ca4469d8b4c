"""One JSON record a run: what was run, on what, with what, and what came out. Present means finished.

    records/<row>-seed<seed>-<key>.json         the record
    counts/<...>.json.xz                        counts for each sentence of dev and test: the scores, without the text
    predictions/<...>.dev.conll, .test.conll    word, gold tag, predicted tag

The record names the sha256 of the other files and is written last.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import probe
from probe.config import COMMAND, Config
from probe.system.bfloat16 import Way, way

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


def provenance() -> dict[str, Any]:
    """Versions, the commit of this code where it runs from a checkout, and the command that was typed."""
    return {**_software(), "command": os.environ.get(COMMAND) or " ".join(sys.argv)}


@functools.cache
def _software() -> dict[str, Any]:
    versions: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {"versions": versions, "git": _git_state()}


def _git_state() -> dict[str, Any] | None:
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
    return {"commit": commit, "dirty": bool(changed)}


def bfloat16_way(cfg: Config, device: str) -> Way | None:
    """How this machine does the bfloat16 that a run is set to; None where all is float32.

    For probe.precision that is how the probe was trained. Features that were extracted elsewhere may be otherwise.
    """
    if "bfloat16" not in (cfg.probe.precision, cfg.features.precision):
        return None
    return way(device, lstm=cfg.probe.precision == "bfloat16" and cfg.probe.num_layers > 0)


def hardware(device: str, threads: int, bfloat16: Way | None = None) -> dict[str, Any]:
    """What the probe was trained on. bfloat16: see `bfloat16_way`; the record says nothing of it where it is None.

    Records from before it was kept were all made natively.
    """
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else _cpu_name()
    return {
        "device": device,
        "device_name": name,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": threads,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "platform": platform.platform(),
        **({"bfloat16": bfloat16} if bfloat16 else {}),
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()
