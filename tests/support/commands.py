"""The command as a user meets it: in processes of their own, none of which is waited for without end."""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from probe.cli import STOPS, main
from probe.runs.plan import forget_inputs

TINY = [
    "probe.hidden_size=4",
    "probe.num_layers=1",
    "probe.max_epochs=2",
    "probe.batch_size=8",
    "probe.learning_rate=0.01",
]
RUN_PROBE = "from probe.cli import main; main()"
DEADLINE_S = 1200  # ends what hangs, and nothing else: on a busy machine a sweep of seconds takes minutes


def _environment(cwd: Path, more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "LAYER_PROBE_CACHE": str(cwd / "cache"), **more}


def _hear_signals() -> None:
    """As in a terminal, even if the tests were started behind its back: `nohup` and a shell's & ignore signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def interpreter(*arguments: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """`probe` in an interpreter and a session of its own, as a shell starts it: seconds for what it imports."""
    return subprocess.Popen(
        [sys.executable, "-m", "probe", *arguments],
        cwd=cwd,
        env=_environment(cwd, env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_signals,
    )


def interpreted(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """What `probe` printed in an interpreter of its own, and how it ended."""
    process = interpreter(*arguments, cwd=cwd, **env)
    told = finish(process)
    return subprocess.CompletedProcess(process.args, process.returncode, *told)


def python(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """What a piece of Python prints in an interpreter of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=DEADLINE_S)


def exit_code(*arguments: str) -> int:
    """Runs `probe` in this process, which has imported what it needs."""
    before = {number: signal.getsignal(number) for number in STOPS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["probe", *arguments])
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def here(*arguments: str, cwd: Path | None = None, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What `probe` printed in this process, and how it ended: for fixtures, and where no process is asked about.

    It reads all files anew. cwd: for a command on one thread, with the store in `cache`, else in the folder's own.
    """
    forget_inputs()
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        if cwd is not None:
            patch.chdir(cwd)
            patch.setenv("LAYER_PROBE_CACHE", str(cache or cwd / "cache"))
            patch.setattr("probe.vectors.extraction.num_cores", lambda: 1)
        code = exit_code(*arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


# Forks what has its libraries imported and has computed nothing yet: no threads that a child would wait for in vain.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "pytest",
        "probe.cli",
        "probe.probes.frozen",
        "probe.probes.finetune",
        "probe.inspect.encoded_text",
        "probe.report.page",
        "seqeval.metrics",  # imports scikit-learn and pandas
        "transformers.models.bert.modeling_bert",
        "transformers.models.bert.tokenization_bert",
        "hydra",
    ]
)


class Started:
    """A process in a session of its own that runs `probe`, or a piece of Python, with the interface of Popen.

    It is forked from one that has imported what it needs, which is the same to what it does, and seconds less. What is
    read from the environment as a library is imported (HF_ENDPOINT, HF_HUB_OFFLINE) needs `interpreted`.
    """

    def __init__(self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], code: str = RUN_PROBE) -> None:
        self.args = ["probe", *arguments]
        self.told: tuple[str, str] | None = None
        self.files = [tempfile.mkstemp(prefix="told-", text=True) for _ in range(2)]
        for file, _ in self.files:
            os.close(file)
        files = [path for _, path in self.files]
        self.process = SERVER.Process(target=_run, args=(code, self.args, str(cwd), _environment(cwd, env), files))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        with contextlib.suppress(ProcessLookupError):
            while os.getsid(self.pid) != self.pid:
                time.sleep(0.002)

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = DEADLINE_S) -> tuple[str, str]:
        """What it has printed, to stdout and to stderr, when it has ended. Raises TimeoutExpired if it does not."""
        self.process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        if self.told is None:
            out, errors = (Path(path).read_text() for _, path in self.files)
            for _, path in self.files:
                Path(path).unlink()
            self.told = out, errors
        return self.told


def _run(code: str, argv: list[str], cwd: str, env: dict[str, str], files: list[str]) -> None:
    os.setsid()
    signal.alarm(3 * DEADLINE_S)  # whoever waits for it no longer: it ends by itself
    _hear_signals()
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    try:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(code, "<test>", "exec"), main.__dict__)
    finally:
        # As an interpreter ends: first what waits for threads (pools of workers end there), then the rest.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def start(*arguments: str, cwd: Path, **env: str) -> Started:
    """A command in a process of its own. Follow it with `wait_for` and `finish`, which leave nothing running."""
    return Started(arguments, cwd, env)


def probe(*arguments: str, cwd: Path, code: str = RUN_PROBE, **env: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: what it printed, and how it ended."""
    process = Started(arguments, cwd, env, code)
    told = finish(process)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, *told)


Process = Started | subprocess.Popen[str]


def wait_for(condition: Callable[[], object], seconds: float, what: str, process: Process | None = None) -> None:
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


def finish(process: Process, seconds: float = DEADLINE_S) -> tuple[str, str]:
    """What a process has printed when it has ended. Fails if it does not in time."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{process.args!r} did not end within {seconds} s\n" + "\n".join(stop(process)))


def stop(process: Process) -> tuple[str, str]:
    """Kills a process, and its session where it leads one; gives what it had printed."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    return process.communicate()


def workers_of(process: Process) -> list[int]:
    """The processes in which a sweep's runs are made side by side."""
    found = subprocess.run(["pgrep", "-s", str(process.pid), "-f", "--", "-m probe"], capture_output=True, text=True)
    return [found for found in map(int, found.stdout.split()) if found != process.pid]


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
