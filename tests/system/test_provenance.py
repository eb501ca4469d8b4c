"""What a record says of the code that made it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import probe
from probe.system import provenance
from probe.system.files import to_jsonable

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None or Path(probe.__file__).parents[1] != ROOT,
    reason="not run from a checkout",
)
def test_in_a_checkout_a_record_names_the_commit_of_its_code():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    git = provenance.provenance().git
    assert git is not None, "the folder that holds .git was not found"
    assert git.commit == head.stdout.strip()


def test_a_record_keeps_the_versions_of_cuda_cudnn_and_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92000)
    monkeypatch.setattr(provenance, "DRIVER", tmp_path / "version")
    for text, expected in {
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC": "535.104.05",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\nGCC": "580.95.05",
        "something else": None,
    }.items():
        (tmp_path / "version").write_text(text)
        recorded = to_jsonable(provenance.hardware("cuda", 1))
        assert (recorded["cuda"], recorded["cudnn"], recorded.get("driver")) == ("13.0", "92000", expected)
    assert not to_jsonable(provenance.hardware("cpu", 1)).keys() & {"cuda", "cudnn", "driver"}
