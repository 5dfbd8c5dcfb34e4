"""Where records, logs and locks live: a private folder for each user, and one for the locks of the whole host."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from pytest_moeperf.servers.problems import RuntimeFolderError

RUNTIME_VARIABLE = "MOEPERF_RUNTIME_DIR"
LOCKS_VARIABLE = "MOEPERF_LOCK_DIR"


def runtime_folder() -> Path:
    """``$MOEPERF_RUNTIME_DIR``, or ``$XDG_RUNTIME_DIR/moeperf``, or ``/tmp/moeperf-<uid>``; made if missing, 0700.

    :raises RuntimeFolderError: it is a link, somebody else's, or open to others.
    """
    if named := os.environ.get(RUNTIME_VARIABLE):
        folder = Path(named)
    elif xdg := os.environ.get("XDG_RUNTIME_DIR"):
        folder = Path(xdg) / "moeperf"
    else:
        folder = Path(f"/tmp/moeperf-{os.getuid()}")  # noqa: S108 - checked below: ours, no link, 0700
    folder = folder.absolute()
    _make(folder, 0o700)
    status = folder.lstat()
    problem = ""
    if not stat.S_ISDIR(status.st_mode):
        problem = "is a symbolic link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    elif status.st_mode & 0o077:
        problem = f"is open to others (mode {stat.S_IMODE(status.st_mode):04o}, not 0700)"
    if problem:
        raise RuntimeFolderError(
            what=f"the folder for server records, {folder}, {problem}",
            hint=f"name another one with {RUNTIME_VARIABLE}, or put this one right",
        )
    for name in ("launches", "locks"):
        _make(folder / name, 0o700)
    return folder


def host_locks_folder() -> Path:
    """``$MOEPERF_LOCK_DIR`` or ``/tmp/moeperf-locks``: shared by all users of the host, sticky like ``/tmp``.

    Containers with a ``/tmp`` of their own and the same GPUs need ``$MOEPERF_LOCK_DIR`` on a shared mount.

    :raises RuntimeFolderError: it is a link or no folder.
    """
    folder = Path(os.environ.get(LOCKS_VARIABLE) or "/tmp/moeperf-locks").absolute()  # noqa: S108 - checked below
    if _make(folder, 0o1777):
        folder.chmod(0o1777)  # the umask took bits away
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise RuntimeFolderError(
            what=f"the folder for the host's measuring locks, {folder}, is a symbolic link or not a folder",
            hint=f"name another one with {LOCKS_VARIABLE}, the same for all users of this host",
        )
    return folder


def file_name_of(key: str) -> str:
    """A file name for a device key or a digest: readable, and different for different keys."""
    readable = re.sub(r"[^A-Za-z0-9.-]", "_", key)[:80]
    return readable if readable == key else f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _make(folder: Path, mode: int) -> bool:
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        return False
    except OSError as error:
        raise RuntimeFolderError(
            what=f"the folder {folder} cannot be made: {error.strerror}",
            hint=f"name another one with {RUNTIME_VARIABLE} (records) or {LOCKS_VARIABLE} (locks)",
        ) from error
    return True
