"""The command as a user meets it: in processes of their own, none of which is waited for without end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from probe.cli.main import main

TINY = ["probe.hidden_size=4", "probe.max_epochs=2", "probe.batch_size=8", "probe.learning_rate=0.01"]
DEADLINE_S = 300  # ends what hangs, and nothing else: on a busy machine a sweep of seconds takes minutes


def probe(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "probe", *arguments],
        cwd=cwd,
        env={**os.environ, "LAYER_PROBE_CACHE": str(cwd / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def forked(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`probe` in a child of this process, which has its libraries imported already: seconds less a command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not in the child, nor needed there
            child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(DEADLINE_S)
                sys.stdout, sys.stderr = (os.fdopen(os.dup(stream.fileno()), "w") for stream in (out, errors))
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os.chdir(cwd)
                os.environ.update(env)
                cores = sorted(os.sched_getaffinity(0))
                os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # threads do not outlive a fork
                warnings.resetwarnings()
                sys.argv = ["probe", *arguments]
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        errors.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return subprocess.CompletedProcess(["probe", *arguments], code, out.read(), errors.read())


def python(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What a piece of Python prints in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=DEADLINE_S)


def start(*arguments: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """A command in a session of its own. Follow it with `wait_for` and `finish`, which leave nothing running."""
    return subprocess.Popen(
        [sys.executable, "-m", "probe", *arguments],
        cwd=cwd,
        env={**os.environ, "LAYER_PROBE_CACHE": str(cwd / "cache"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(
    condition: Callable[[], object], seconds: float, what: str, process: subprocess.Popen[str] | None = None
) -> None:
    """Returns once the condition holds. Fails if it does not in time, or if the process that should see to it ends."""
    end = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            out, errors = process.communicate()
            pytest.fail(f"ended with {process.returncode} before {what}\n{out}\n{errors}")
        if time.monotonic() > end:
            told = stop(process) if process is not None else ("", "")
            pytest.fail(f"waited {seconds} s in vain for {what}\n" + "\n".join(told))
        time.sleep(0.01)


def finish(process: subprocess.Popen[str], seconds: float = DEADLINE_S) -> tuple[str, str]:
    """What a process has printed when it has ended. Fails if it does not in time."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{process.args!r} did not end within {seconds} s\n" + "\n".join(stop(process)))


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kills a process, and its session where it leads one; gives what it had printed."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    return process.communicate()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes in which a sweep's runs are made side by side."""
    found = subprocess.run(["pgrep", "-s", str(process.pid), "-f", "LokyProcess"], capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


def num_calls(function: Callable[[], object]) -> int:
    """How many functions are called, Python's own and C's: what work is, on any machine and beside any other work.

    What C does within one call is not seen.
    """
    count = 0

    def see(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)


def as_nobody(function: Callable[[], str]) -> str:
    """What a function returns in a child process that may not write everywhere, as root may; or its traceback."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not in the child, nor needed there
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(DEADLINE_S)
            if os.geteuid() == 0:
                os.setuid(65534)
            told = function()
        except BaseException:
            told = traceback.format_exc()
        finally:
            with os.fdopen(write, "w") as stream:
                stream.write(told)
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        told = stream.read()
    os.waitpid(child, 0)
    return told
