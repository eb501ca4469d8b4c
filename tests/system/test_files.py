"""Files are written on any file system, and what is no file of ours is neither read nor removed."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probe.system.files import DAY_S, read_regular, write_atomically, written_whole


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_permissions_and_sync_of_folders_is_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    sync = os.fsync
    monkeypatch.setattr(Path, "chmod", refused)
    monkeypatch.setattr(os, "fsync", lambda of: refused() if os.path.isdir(f"/proc/self/fd/{of}") else sync(of))  # noqa: PTH112
    write_atomically(tmp_path / "a.json", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_disk_that_fails_is_no_such_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def failed(*_: object) -> None:
        raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(os, "fsync", failed)
    with pytest.raises(OSError, match=r"failed.*a\.json"):
        write_atomically(tmp_path / "a.json", "whole")
    assert list(tmp_path.iterdir()) == []


def test_who_writes_a_file_removes_what_killed_writers_of_it_left(tmp_path: Path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    here, living = socket.gethostname(), os.getppid()
    left = [f".table.md.{here}.{dead.stdout.strip()}.0123abcd", ".table.md.else.where.7.0123abcd"]
    kept = [
        f".table.md.{here}.{living}.0123abcd",
        ".table.md.elsewhere.8.0123abcd",
        ".table.md.swp",
        ".other.md.x.7.0123abcd",
    ]
    for name in (*left, *kept):
        (tmp_path / name).touch()
    for name in (left[1], ".table.md.swp", ".other.md.x.7.0123abcd"):
        os.utime(tmp_path / name, (time.time() - 2 * DAY_S,) * 2)
    write_atomically(tmp_path / "table.md", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"table.md", *kept}


def test_what_is_no_regular_file_is_not_read(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(tmp_path / "file") == b"x"
    for odd in (tmp_path / "link", tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="regular"):
            read_regular(odd)


def test_files_of_a_folder_get_the_permissions_that_others_get(tmp_path: Path):
    with written_whole(tmp_path / "model") as part:
        (part / "weights").mkdir(parents=True)
        for file in (part / "private", part / "weights" / "private"):
            file.touch(mode=0o600)
    write_atomically(tmp_path / "other", "x")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*") if file.is_file()}
    assert len(modes) == 1
