"""Locks of the whole host: one holder at a time for each device and purpose, across all processes and users."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_moeperf.outgoing import printable_line
from pytest_moeperf.servers.lock_files import LockFile
from pytest_moeperf.servers.problems import RuntimeFolderError
from pytest_moeperf.servers.runtime import LOCKS_VARIABLE, file_name_of, host_locks_folder, user_name

NOTICE_S = 1.0
"""Whoever waits is told that often."""
WITHOUT_BUDGET_S = 4 * 3600.0
"""Longest wait for others where no budget says how long. Another invocation's whole campaign fits into it."""
_POLL_S = 0.05
_LABEL_CHARS = 80


def acquire(device: str, purpose: str, *, while_waiting: Callable[[str], None]) -> LockFile:
    """The lock of a device for one purpose (``measuring``, ``server``).

    :param while_waiting: called once a second with what is known of the holder; gives up by raising.
    :raises RuntimeFolderError: folder or file can't be used.
    """
    lock = LockFile(host_locks_folder() / f"{file_name_of(device)}.{purpose}.lock")
    told_at = time.monotonic()
    try:
        while not _try(lock, device):
            if time.monotonic() - told_at >= NOTICE_S:
                while_waiting(holder_text(lock))
                told_at = time.monotonic()
            time.sleep(_POLL_S)
    except BaseException:
        lock.close()
        raise
    return lock


def note(lock: LockFile, label: str) -> None:
    """Say who holds it. A full disk does not keep anybody from measuring: the lock is the kernel's."""
    with contextlib.suppress(OSError):
        lock.note(label)


def check_still_held(lock: LockFile, device: str) -> None:
    """:raises RuntimeFolderError: somebody removed the file, so that another one could get a lock of that name."""
    if not lock.is_the_file():
        raise RuntimeFolderError(
            what=f"the lock of {device} was removed while it was held ({lock.path}): somebody else may have measured "
            "there at the same time, so what was measured is not believed",
            hint=f"measure again; who may remove locks: ls -ld {lock.path.parent} (root should own it, mode 1777)",
        )


@contextlib.contextmanager
def held(device: str, purpose: str, *, label: str, while_waiting: Callable[[str], None]) -> Iterator[None]:
    """Acquired for the ``with`` block, and checked at its end.

    :raises RuntimeFolderError: it can't be used, or was removed while it was held.
    """
    lock = acquire(device, purpose, while_waiting=while_waiting)
    try:
        note(lock, label)
        yield
        check_still_held(lock, device)
    finally:
        lock.release()


def holder_text(lock: LockFile) -> str:
    """``pid 12 of alice (pytest pid 12), since ...``: what the file says, which anybody may have written."""
    said = lock.noted()
    try:
        pid, label, since = int(said["pid"]), str(said["label"]), str(said["since"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return "somebody"
    return f"pid {pid}{_owner_of(pid)} ({printable_line(label)[:_LABEL_CHARS]}, since {printable_line(since)[:40]})"


def _owner_of(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    return "" if uid == os.geteuid() else f" of {user_name(uid)}"


def _try(lock: LockFile, device: str) -> bool:
    try:
        return lock.try_acquire()
    except OSError as error:
        raise RuntimeFolderError(
            what=f"the lock of {device} cannot be used: {lock.path} {_reason(lock.path, error)}",
            hint=f"once nobody measures, its owner or root removes it: rm {lock.path}; or name another folder with "
            f"{LOCKS_VARIABLE}, the same for all users of this host",
        ) from error


def _reason(path: Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "is a symbolic link"
    if error.errno == errno.EISDIR:
        return "is not a plain file"
    if isinstance(error, PermissionError):
        with contextlib.suppress(OSError):
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            return f"belongs to {user_name(status.st_uid)} and is closed to others (mode {mode:04o}, not 0666)"
    return error.strerror or str(error)
