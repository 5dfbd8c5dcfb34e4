"""Where records, logs and locks live: a private folder for each user, and one for the locks of the whole host."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import stat
from pathlib import Path

from pytest_moeperf.servers.problems import RuntimeFolderError

RUNTIME_VARIABLE = "MOEPERF_RUNTIME_DIR"
LOCKS_VARIABLE = "MOEPERF_LOCK_DIR"
DEFAULT_LOCKS = "/tmp/moeperf-locks"  # noqa: S108 - checked each time


def runtime_folder() -> Path:
    """``$MOEPERF_RUNTIME_DIR``, or ``/tmp/moeperf-<uid>``; made if missing, 0700. ``$XDG_RUNTIME_DIR`` is not asked: a
    login has it and a cron job has not, and both are one user with one set of servers.

    :raises RuntimeFolderError: it is a link, somebody else's, or open to others.
    """
    # In /tmp anybody may make it first, which is checked below: ours, no link, 0700.
    folder = Path(os.environ.get(RUNTIME_VARIABLE) or f"/tmp/moeperf-{os.geteuid()}")  # noqa: S108
    folder = folder.absolute()
    _make(folder, 0o700)
    status = folder.lstat()
    problem = ""
    if not stat.S_ISDIR(status.st_mode):
        problem = "is a symbolic link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to {user_name(status.st_uid)}, not to {user_name(os.geteuid())}"
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

    Containers with a ``/tmp`` of their own and the same GPUs need ``$MOEPERF_LOCK_DIR`` on a shared mount. Its owner
    can remove a held lock, so whoever holds one looks again.

    :raises RuntimeFolderError: it is a link or no folder, this user may not write there, or everybody may remove there.
    """
    named = os.environ.get(LOCKS_VARIABLE)
    folder = Path(named or DEFAULT_LOCKS).absolute()
    made = _make(folder, 0o1777)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise RuntimeFolderError(
            what=f"the folder for the host's locks, {folder}, is a symbolic link or not a folder",
            hint=f"name another one with {LOCKS_VARIABLE}, the same for all users of this host",
        )
    if made or (not named and status.st_uid == os.geteuid()):
        folder.chmod(0o1777)  # the umask took bits away
        status = folder.lstat()
    mode = stat.S_IMODE(status.st_mode)
    problem = ""
    if mode & 0o022 and not mode & stat.S_ISVTX:
        problem = "lets everybody who may write there remove the locks of others (no sticky bit)"
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        problem = "is closed to this user"
    if problem:
        owner = user_name(status.st_uid)
        raise RuntimeFolderError(
            what=f"the folder for the host's locks, {folder}, {problem}: it belongs to {owner}, mode {mode:04o}",
            hint=f"{owner} or root opens it to all users: chmod 1777 {folder}; or name another one with "
            f"{LOCKS_VARIABLE}, the same for all users of this host",
        )
    return folder


def user_name(uid: int) -> str:
    """As people know it, or ``user 1007``."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


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
