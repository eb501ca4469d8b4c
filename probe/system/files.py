"""Writes files completely or not at all, and gives each value one JSON form for keys, records and stores."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probe.config import closest

SHORT_KEY = 10  # characters of a key in file names and tables
MOST_OF_A_NOTE = 2**16
DAY_S = 86_400  # the writer of a half-written file that was not modified for so long no longer runs
REFUSED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # by file systems that cannot do it


def now() -> str:
    """Returns the time in UTC as files hold it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def canonical(value: Any) -> str:
    """Returns a value's JSON; equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_of(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def sha256_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(identity: dict[str, Any]) -> str:
    """Returns the sha256 of an identity's canonical JSON."""
    return sha256_of(canonical(identity))


def short(key: str) -> str:
    """Shortens a key for file names and messages."""
    return key[:SHORT_KEY]


def to_jsonable(value: Any) -> Any:
    """Converts dataclasses to JSON values; omits optional fields (None by default) that are None."""
    if is_dataclass(value):
        pairs = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: to_jsonable(part) for field, part in pairs if part is not None or field.default is not None}
    if isinstance(value, Mapping):
        return {name: to_jsonable(part) for name, part in value.items()}
    return [to_jsonable(part) for part in value] if isinstance(value, list | tuple) else value


def read_regular(file: Path, most: int = -1) -> bytes:
    """Reads a file of a folder that others may have written. Raises OSError for a link, and for what has no end.

    most: bytes; by default all.
    """
    if not stat.S_ISREG(file.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(file))
    with file.open("rb") as stream:
        return stream.read(most)


def read_note(file: Path) -> str:
    """Reads a short text from such a file; empty if it is missing. Where it cannot be read, the text says why."""
    try:
        return read_regular(file, MOST_OF_A_NOTE).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror}"


@contextlib.contextmanager
def written_whole(path: Path, replace: bool = True) -> Iterator[Path]:
    """Yields a temporary name next to `path`; the file or folder is synced and renamed when the block succeeds.

    replace: if False, a file that another process wrote meanwhile stays. The file, or each of the folder, gets the
    umask's permissions, for any writing library. If the block fails, the temporary file is removed, and so are those of
    killed processes.
    """
    for left in half_written(path):
        if named := re.fullmatch(r"\.(.+)\.(\d+)\.[0-9a-f]{8}", left.name.removeprefix(f".{path.name}")):
            remove_left(left, *named.groups())
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        for file in filter(Path.is_file, (temporary, *temporary.rglob("*"))):
            with _where_possible():
                file.chmod(0o666 & ~_umask())
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        if replace or not path.exists():
            temporary.replace(path)
            _sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk names none
        raise
    finally:
        _remove(temporary)


def half_written(path: Path) -> list[Path]:
    """Returns the temporary files of `path`, of processes that write it or were killed."""
    return [path.with_name(name) for name in names_in(path.parent) if name.startswith(f".{path.name}.")]


def names_in(folder: Path) -> list[str]:
    """Returns the names of a folder's files; none where there is no folder. Many times as fast as a glob."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return [entry.name for entry in entries]
    return []


def keys_in(folder: Path, ending: str = "") -> dict[str, str]:
    """Returns names of a folder's files by the short key at their end, before the first dot."""
    return {name.partition(".")[0][-SHORT_KEY:]: name for name in sorted(names_in(folder)) if name.endswith(ending)}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes the whole content, or does not change the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON, or does not change the file. Raises ValueError for a number that is not finite.

    Dataclasses are converted, see `to_jsonable`.
    """
    text = json.dumps(to_jsonable(value), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text + "\n")


def did_you_mean(setting: str, folder: Path) -> str:
    """Returns a hint for a folder that does not exist: the setting with the most similar path; empty without one."""
    return f" Did you mean {setting}={close}?" if (close := closest_path(folder)) else ""


def closest_path(folder: Path) -> Path | None:
    """Returns a folder that does not exist with its first missing part corrected; None if nothing is close."""
    missing = next(part for part in (*reversed(folder.parents), folder) if not part.is_dir())
    there = [child.name for child in missing.parent.iterdir() if child.is_dir()] if missing.parent.is_dir() else []
    close = closest(missing.name, there)
    return missing.parent / close / folder.relative_to(missing) if close else None


def why_not_writable(folder: Path, needed: int = 0) -> str | None:
    """Returns why that many bytes cannot be written into a folder (or its parent if it is missing), or None."""
    place = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=place):  # permissions are no answer for root or read-only file systems
            pass
    except OSError as error:
        return f"{place} cannot be written ({error.strerror})"
    free = shutil.disk_usage(place).free
    return f"{needed / 1e9:.2f} GB are needed and {place} has {free / 1e9:.2f} GB free" if needed > free else None


@functools.cache
def _umask() -> int:
    mask = os.umask(0)  # it can only be read by setting it
    os.umask(mask)
    return mask


def remove_left(file: Path, host: str, process: str) -> None:
    """Removes what a process that is over left: one of this host, by its number; of others, if it is a day old."""
    with contextlib.suppress(OSError, OverflowError):  # another process removes it too, this one may not, no process
        is_over = file.stat().st_mtime < time.time() - DAY_S
        try:
            if not is_over and host == socket.gethostname():
                os.kill(int(process), 0)
        except ProcessLookupError:
            is_over = True
        if is_over:
            _remove(file)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextlib.contextmanager
def _where_possible() -> Iterator[None]:
    """Lets pass that a file system has no such thing as the permissions of a file, or the sync of a folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSED:
            raise


def _sync_folder(folder: Path) -> None:
    with _where_possible():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
