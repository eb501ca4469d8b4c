"""Waiting for a lock; what holds of stores and runs under one is with these."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from support.commands import as_nobody

from probe.system.locks import FileLock, try_lock, wait_for_lock


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may come as the file is opened
def test_a_signal_just_before_waiting_for_a_lock_ends_it(tmp_path: Path):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    lock, stopped, waited_for = tmp_path / "lock", threading.Event(), []
    holder = FileLock(lock, exclusive=True)
    assert holder.held

    def interrupt() -> None:
        time.sleep(0.5)  # until the other waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # to this thread, so that the other sleeps on
        waited_for.append(not stopped.wait(20))
        holder.release()

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            wait_for_lock(lock).close()
        assert not waited_for
    finally:
        stopped.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_waiter_gets_the_new_file_of_a_removed_lock(tmp_path: Path):
    lock = tmp_path / "lock"
    with FileLock(lock, exclusive=True):
        got: list[bool] = []

        def wait() -> None:
            with wait_for_lock(lock) as stream:
                stream.write(b"new")
                got.append(True)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        assert not got
        lock.unlink()
    thread.join(20)
    assert got
    assert lock.read_bytes() == b"new"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_lock_that_another_user_holds_is_busy(open_to_all: Path, mode: int):
    lock = open_to_all / "lock"

    def outcome() -> str:
        stream = try_lock(lock)
        return "busy" if stream is None else "got"

    with FileLock(lock, exclusive=True):
        lock.chmod(mode)
        assert as_nobody(outcome) == "busy"
    assert as_nobody(outcome) == ("got" if mode == 0o644 else "busy"), "left by a process that was killed"
    lock.unlink()
    open_to_all.chmod(0o755)
    assert "PermissionError" in as_nobody(outcome), "of the folder"
