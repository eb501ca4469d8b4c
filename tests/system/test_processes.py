"""Jobs end with the command that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Process, interpreter, wait_for, workers_of

from probe.system.locks import FileLock

PARENT = """
import subprocess, sys
child = "import os, time; from probe.system.processes import end_with; end_with(os.getppid());"
child += "print(os.getpid(), flush=True); time.sleep(120)"
subprocess.Popen([sys.executable, "-c", child]).wait()
"""


def is_alive(process: int) -> bool:
    """Whether it runs; one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_ends_with_its_parent_that_was_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        wait_for(lambda: not is_alive(child), 60, "the child's end")


def living_workers_of(process: Process) -> list[int]:
    return [worker for worker in workers_of(process) if is_alive(worker)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "to"),
    [
        (signal.SIGKILL, os.kill),  # it alone, not its children
        (signal.SIGHUP, os.kill),
        (signal.SIGUSR1, os.kill),
        (signal.SIGUSR2, os.killpg),  # as SLURM does
    ],
)
def test_a_sweeps_workers_end_with_it_and_release_the_store_and_their_runs(
    inputs: list[str], tmp_path: Path, how: int, to: Callable[[int, int], None]
):
    sweep = ["-m", "layers=last", "seed=range(1,5)", "results_dir=out", "jobs=2", *inputs]
    sweep += ["probe.max_epochs=5000", "probe.patience=5000"]
    process = interpreter(*sweep, cwd=tmp_path)
    logs = tmp_path / "out/logs"

    def is_training() -> bool:
        try:
            return sum("epoch" in path.read_text() for path in logs.glob("*.running.txt")) == 2
        except FileNotFoundError:
            return False

    wait_for(is_training, 240, "two runs in training", process)
    (lock,) = (tmp_path / "cache").glob("*/.in-use")
    assert FileLock(lock, exclusive=True).busy
    assert len(living_workers_of(process)) == 2
    to(process.pid, how)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    assert ("probe: stopped" in errors) == (how != signal.SIGKILL)
    wait_for(lambda: not living_workers_of(process), 60, "the workers' end")
    assert len(list(logs.glob("*.attempts.txt"))) == (2 if how == signal.SIGKILL else 0), "what counts as died"
    with FileLock(lock, exclusive=True) as hold:
        assert hold.held


def test_what_nohup_started_goes_on_when_the_terminal_is_closed():
    code = """
import signal, sys
signal.signal(signal.SIGHUP, getattr(signal, sys.argv.pop(1)))
from probe.cli import main
sys.argv[1:] = ["--help"]
try:
    main()
except SystemExit:
    print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""
    for handler, stays_ignored in (("SIG_IGN", "True"), ("SIG_DFL", "False")):
        done = subprocess.run([sys.executable, "-c", code, handler], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == stays_ignored, done.stderr
