"""Runs work in other processes. They end with the process that started them, and it notices if one dies."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from probe.system.machine import num_cores
from probe.system.processes import LOOK_EVERY_S, end_with

SPAWN = multiprocessing.get_context("spawn")  # a worker inherits no threads, locks or open files
# Environment variables from which libraries read their number of threads when they are imported.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ProcessDied(Exception):
    """Says that a job's process ended without an answer."""

    def __init__(self, exitcode: int | None) -> None:
        number = -(exitcode or 0)
        how = f"ended with exit code {exitcode}"
        if number > 0:
            how = f"killed by signal {number} ({signal.strsignal(number) or 'unknown'})"
        super().__init__(how + ", often for lack of memory" * (number == signal.SIGKILL))


class _Worker:
    """Runs one job after another in a process that has its own pipe to this process.

    If all workers shared a pipe for answers, as in `concurrent.futures` and joblib, a worker killed in the middle of an
    answer would leave the reader waiting forever: the other workers hold the pipe open. This pipe has one writer. When
    that process ends, the reader sees the end of the stream.
    """

    def __init__(self, num_threads: int) -> None:
        self.channel, theirs = SPAWN.Pipe()
        arguments = (theirs, os.getpid(), num_threads)
        self.process = SPAWN.Process(target=_serve, args=arguments, name="probe-worker", daemon=True)
        self.process.start()
        theirs.close()

    def receive(self) -> BaseException | None:
        """Returns what the job raised, None if nothing, or ProcessDied. Must be called when the channel is ready."""
        try:
            return self.channel.recv()
        except (EOFError, OSError):
            self.process.join(LOOK_EVERY_S)
            self.end()
            return ProcessDied(self.process.exitcode)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.channel.close()


_IDLE: list[_Worker] = []  # workers that wait for the next call


def run_in_subprocesses(
    work: Callable[[Any], None], jobs: Sequence[Any], at_once: int, keep: bool = False
) -> Iterator[tuple[Any, BaseException | None]]:
    """Runs the work for each job in `at_once` processes. Yields each job when it ends, with what it raised.

    If a job's process dies, the error is ProcessDied. While other processes work, a dead one is not replaced: it was
    probably killed for lack of memory. keep: idle processes stay for the next call with keep, because their imports
    take seconds. If this function is interrupted, it kills the processes that work.
    """
    waiting, busy = deque(jobs), dict[_Worker, Any]()
    idle = [worker for worker in _IDLE if worker.process.is_alive()] if keep else []
    if keep:
        _IDLE.clear()
    size = min(at_once, len(jobs))
    try:
        while waiting or busy:
            size = max(size, 1)
            while waiting and len(busy) < size:
                worker = idle.pop() if idle else _Worker(max(1, num_cores() // at_once))
                with contextlib.suppress(
                    BrokenPipeError, ConnectionResetError
                ):  # it has just died; `receive` reports it
                    worker.channel.send((work, waiting[0]))
                busy[worker] = waiting.popleft()
            for channel in wait([worker.channel for worker in busy], LOOK_EVERY_S):
                worker = next(one for one in busy if one.channel is channel)
                error, job = worker.receive(), busy.pop(worker)
                if isinstance(error, ProcessDied):
                    size -= 1
                else:
                    idle.append(worker)
                yield job, error
    finally:
        num_kept = size if keep else 0
        _IDLE.extend(idle[:num_kept])
        for worker in (*busy, *idle[num_kept:]):
            worker.end()


def _serve(channel: Connection, parent: int, num_threads: int) -> None:
    """Runs the jobs that arrive through the channel and answers each with what it raised. Ends with the parent."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent ends this one
    for name in THREADS:
        os.environ.setdefault(name, str(num_threads))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        while True:
            work, job = channel.recv()
            channel.send(_error_of(work, job))


def _error_of(work: Callable[[Any], None], job: Any) -> Exception | None:
    """Runs a job. Returns what it raises, with the traceback as a note, in a form that can be pickled."""
    try:
        work(job)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return RuntimeError(traceback.format_exc())
        return error
    return None
