"""Starts processes that run the same command and share its work, and makes them end together."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from probe.config import UserError

# Seconds between two checks. No wait is longer, as a signal that arrives just before a wait is handled after it.
LOOK_EVERY_S = 0.5
END_WITHIN_S = 60  # a child that has nothing left to do, or was told to stop, is killed after so long
# Set for a child: its number, the number of workers, the launch, the GPUs, the process id of its parent.
WORKER = "LAYER_PROBE_WORKER"
# Environment variables from which libraries read their number of threads when they are imported.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def is_child() -> bool:
    return WORKER in os.environ


def become_child() -> None:
    """Makes a child end within a second after its parent. Ctrl-C is for the parent, which then ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(int(_place_of_worker()[4]))


def _place_of_worker() -> Sequence[str]:
    """Returns the parts of WORKER. Raises UserError if another program has set it."""
    value = os.environ[WORKER]
    if found := re.fullmatch(r"(\d{1,9})\|([1-9]\d{0,8})\|([^|]*)\|([^|]*)\|(\d{1,9})", value):
        return found.groups()
    raise UserError(f"{WORKER}={value}: this program sets it, for processes that it starts. Unset it.")


def _of_array(name: str, default: str) -> int:
    """Returns one of the numbers that SLURM sets for a process of an array. Raises UserError if it is none."""
    value = os.environ.get(f"SLURM_ARRAY_TASK_{name}", default)
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < int(default):
        raise UserError(
            f"SLURM_ARRAY_TASK_{name}={value}: expected a number, {default} or more. Outside an array: unset it."
        )
    return int(value)


def end_with(parent: int) -> None:
    """Makes this process end within a second after its parent, for whatever reason. parent: its process id.

    Linux's PR_SET_PDEATHSIG does not fit: it is sent when the thread that started the process ends.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


class Crew(contextlib.AbstractContextManager["Crew"]):
    """Knows this process's place among those that share the work of a command, and starts more of them.

    launch: equal in all processes that were started together, also by a scheduler as an array. number, of: this
    process does the `number`-th part of `of` first. gpus: of this host, also if this process has taken one of them.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.gpus: list[str] = []
        self.jobs = 1
        self.environment: Mapping[str, str] = {}
        if is_child():
            number, of, self.launch, gpus, _ = _place_of_worker()
            self.number, self.of, self.gpus = int(number), int(of), gpus.split(",") if gpus else []
        else:
            first, step = _of_array("MIN", "0"), _of_array("STEP", "1")
            self.number, self.of = (_of_array("ID", "0") - first) // step, _of_array("COUNT", "1")
            self.launch = os.environ.get("SLURM_ARRAY_JOB_ID") or uuid.uuid4().hex[:12]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the children, which end when nothing is left to do; after an error, stops them first."""
        if kind is not None:
            for child in self.children.values():
                child.terminate()
        for child in self.children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_WITHIN_S)
            child.kill()
            child.wait()

    def start(self, jobs: int, environment: Mapping[str, str]) -> None:
        """Starts `jobs` children. environment: in addition to this process's own."""
        self.jobs, self.environment = jobs, environment
        for number in range(jobs):
            self._start(number)

    def work(self, is_over: Callable[[], bool], most: int, replace: bool) -> None:
        """Returns when all is over, or when no child can go on.

        A killed child was probably killed for lack of memory. So a new one is started only when no other is at work,
        unless `replace` is set. most: new ones in all.
        """
        while not is_over():
            time.sleep(LOOK_EVERY_S)
            ended = [number for number, child in self.children.items() if child.poll() is not None]
            killed = [number for number in ended if self.children[number].returncode < 0]
            is_alone = len(ended) == len(self.children)
            if is_alone and not (killed and most):
                return
            if killed and most and (replace or is_alone):
                self._start(killed[0])
                most -= 1

    def _start(self, number: int) -> None:
        place = [self.number * self.jobs + number, self.of * self.jobs, self.launch, ",".join(self.gpus), os.getpid()]
        environment = {**os.environ, **self.environment, WORKER: "|".join(map(str, place))}
        arguments = [sys.executable, "-m", "probe", *shlex.split(self.command)[1:]]
        self.children[number] = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL)
