"""Makes processes end together."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import NoReturn

LOOK_EVERY_S = (
    0.5  # between two checks. No wait is longer, as a signal that arrives just before a wait is handled after it
)


@functools.cache
def end_with(parent: int) -> None:
    """Makes this process end within a second after its parent, for whatever reason the parent ends.

    parent: its process id.

    Linux's PR_SET_PDEATHSIG does not fit: it is sent when the thread that started the process ends. A worker calls this
    first, because its parent may be killed before it has sent a job.
    """

    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
