"""The feature store: every hidden layer of a text under a frozen encoder, written once, read by every run.

    <cache_dir>/<key>/manifest.json              what this is; comes last, so: present means complete
    <cache_dir>/<key>/train-00000.safetensors    a shard: about 8,192 words, one tensor (words, H) a layer, "0".."L"

A shard carries, in its header, the key it belongs to, its place, and a checksum for each layer; it is written under a
temporary name, synced and renamed, so present means whole. Readers map a shard into memory and touch only the layers
they ask for, each checked against its checksum. Safety rests on unique temporary names and atomic renames alone; locks
only keep two processes from doing the same shard twice.

W words, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.


Where a sweep stands, from what is on disk: records, failures, and a file that each running job holds locked.

Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import FileIO
from pathlib import Path


class Hold:
    """A lock on a file: shared by all who read a store, exclusive for who deletes it or makes a shard. Never waits.

    `held`: this process has it. `busy`: another has. Neither where there are no locks, or the file cannot be opened.
    The system lets it go when the process ends, however it ends.
    """

    def __init__(self, path: Path, exclusive: bool = False) -> None:
        self.held = self.busy = False
        self._descriptor: int | None = None
        try:
            try:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except PermissionError:  # somebody else's store, which may be read
                self._descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(self._descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            self.held = True
            os.utime(self._descriptor)
        except BlockingIOError:
            self.busy = True
        except OSError:
            pass

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def held_file(path: Path) -> FileIO:
    """The file, open and locked. Where there are no locks nobody waits, and the run only looks as if it had stopped."""
    while True:
        stream = FileIO(path, "a")
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
        stream.close()  # it was removed by whoever held it


def is_held(path: Path) -> bool:
    """Whether a living process holds the file's lock."""
    try:
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
