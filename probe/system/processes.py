"""Processes that end together."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

LOOK_EVERY_S = 0.5


@functools.cache
def end_with(parent: int) -> None:
    """From now on this process ends within a second after its parent, of which this is the id.

    A parent that is killed closes no pipe that its other children hold open too: they would wait on it, with all their
    memory and locks, for ever. The system's own signal for this (PR_SET_PDEATHSIG) comes when the thread ends that
    started the process, and joblib starts processes from several.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


@dataclass(frozen=True)
class WithThisProcess:
    """Work to send to a child of this process, which is to end when this one has ended, however it ended."""

    work: Callable[[Any], None]
    sender: int = field(default_factory=os.getpid)

    def __call__(self, job: Any) -> None:
        end_with(self.sender)
        self.work(job)
