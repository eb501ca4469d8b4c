"""Locks files with `flock`. Locks only save work: no written file depends on one.

The system releases a lock when its process ends, for any reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from probe.system.processes import LOOK_EVERY_S


class FileLock(contextlib.AbstractContextManager["FileLock"]):
    """Holds a lock on a file: shared for readers of a store, exclusive to delete it or to write a shard. Never waits.

    `held`: this process has it. `busy`: another process has it. Both are False if the file system has no locks or the
    file cannot be opened.
    """

    def __init__(self, path: Path, exclusive: bool = False) -> None:
        self.held = self.busy = False
        self._descriptor: int | None = None
        try:
            try:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except PermissionError:  # the store of another user, which we may read
                self._descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(self._descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            self.held = True
            os.utime(self._descriptor)
        except BlockingIOError:
            self.busy = True
        except OSError:
            pass

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def try_lock(path: Path) -> FileIO | None:
    """Returns the file, open and locked; None if another process holds it. Without locks, it is only opened."""
    try:
        stream = FileIO(path, "a")
    except PermissionError:
        if not path.exists():  # it is the folder that may not be written
            raise
        if not os.access(path, os.R_OK):
            return None
        stream = FileIO(path)  # of another user, whose process may be over
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_busy = False
    except OSError as error:
        is_busy = isinstance(error, BlockingIOError)
    with contextlib.suppress(FileNotFoundError):
        if not is_busy and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
            return stream
    stream.close()  # busy, or removed by the process that held it
    return None


def wait_for_lock(path: Path) -> FileIO:
    """Returns the file, open and locked. Does not wait if the file system has no locks."""
    while (stream := try_lock(path)) is None:
        time.sleep(LOOK_EVERY_S)
    return stream


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds a file's lock inside the block, after waiting for it, and removes the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Returns whether another process holds the file's lock exclusively."""
    try:
        with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as stream:  # a FIFO is not waited for
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
