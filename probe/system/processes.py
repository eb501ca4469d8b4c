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
    """Makes this process end within a second after its parent, however that ends. parent: its process id.

    Linux's PR_SET_PDEATHSIG would not do: it is sent when the thread that started the process ends. A worker begins
    with this, because its parent may be killed before it has sent the first job.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
