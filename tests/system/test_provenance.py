"""What a record says of the code that made it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import probe
from probe.system.provenance import provenance

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None or Path(probe.__file__).parents[1] != ROOT,
    reason="not run from a checkout",
)
def test_in_a_checkout_a_record_names_the_commit_of_its_code():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    git = provenance().git
    assert git is not None, "the folder that holds .git was not found"
    assert git.commit == head.stdout.strip()
