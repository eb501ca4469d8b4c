"""Processes that end together."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import NoReturn

LOOK_EVERY_S = 0.5  # between two looks. No wait lasts longer: a signal that comes just before one is heard at its end


@functools.cache
def end_with(parent: int) -> None:
    """Makes this process end within a second after its parent. parent: its process id.

    A killed parent's pipes stay open while its other children hold them too: children would wait on them for ever, with
    all their memory and locks. Linux's PR_SET_PDEATHSIG is sent when the thread that started the process ends, and
    joblib starts processes from several threads.

    Workers begin with this, as the initializer of their pool: a parent may be killed before it has sent the first job.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
