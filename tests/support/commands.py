"""The command as a user meets it: in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TINY = ["probe.hidden_size=4", "probe.max_epochs=2", "probe.batch_size=8", "probe.learning_rate=0.01"]


def probe(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "probe", *arguments],
        cwd=cwd,
        env={**os.environ, "LAYER_PROBE_CACHE": str(cwd / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def start(*arguments: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "probe", *arguments],
        cwd=cwd,
        env={**os.environ, "LAYER_PROBE_CACHE": str(cwd / "cache"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def as_nobody(function: Callable[[], str]) -> str:
    """What a function returns in a child process that may not write everywhere, as root may."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        os.write(write, function().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as stream:
        return stream.read()
