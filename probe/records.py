"""One JSON record a run: what was run, on what, with what, and what came out. Present means finished."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.features import key_of, write_atomically

SCHEMA = 1
RECIPE = 1  # rises when the code that trains changes what comes out for the same settings
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


@dataclass(frozen=True)
class RunIdentity:
    """What makes a run that run: content, never names or paths. Its hash is the run's key."""

    corpus: str  # fingerprint of words, tags and documents
    features: str  # key of the feature store
    layers: dict[str, Any]  # indices and combine
    probe: dict[str, Any]
    seed: int

    def as_dict(self) -> dict[str, Any]:
        return {"recipe": RECIPE, **vars(self)}

    @property
    def key(self) -> str:
        return key_of(self.as_dict())


def record_path(results_dir: Path, row: str, identity: RunIdentity) -> Path:
    """Where a run's record is, whatever its row was called when it was made; where it will be if there is none."""
    folder = results_dir / "records"
    there = sorted(folder.glob(f"*-{identity.key[:10]}.json"))
    return there[0] if there else folder / f"{row}-seed{identity.seed}-{identity.key[:10]}.json"


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load_record(path: Path) -> dict[str, Any]:
    """A record that holds together. Raises UserError naming the file and what is wrong with it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a record: {error}. Remove it and run again.") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise UserError(f"{path}: schema {found}, this version reads {SCHEMA}. Move it away and run again.")
    if key_of(record.get("identity", {})) != record.get("key"):
        raise UserError(f"{path}: its key is not the hash of its identity; it was changed. Move it away and run again.")
    for part in ("row", "config", "data", "encoder", "layers", "scores"):
        if not isinstance(record.get(part), dict if part != "row" else str):
            raise UserError(f"{path}: it has no {part!r}. Move it away and run again.")
    return record


def load_records(results_dir: Path) -> list[dict[str, Any]]:
    """Every record once, however many files hold it."""
    records = [load_record(path) for path in sorted((results_dir / "records").glob("*.json"))]
    return list({record["key"]: record for record in records}.values())


@functools.cache
def software() -> dict[str, Any]:
    """Versions, and the commit of this code where it runs from a checkout."""
    versions: dict[str, Any] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {"versions": versions, "git": _git_state(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}


def _git_state() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parent.parent
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


def hardware(device: str, threads: int) -> dict[str, Any]:
    """What the probe was trained on."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {
        "device": device,
        "device_name": name,
        "threads": threads,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "platform": platform.platform(),
    }
