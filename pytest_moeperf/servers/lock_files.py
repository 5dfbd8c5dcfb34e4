"""One lock file in a folder that several users share. Standard library only: the guardian uses it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_NOTE_BYTES = 4096
_TRIES = 20
_TRY_S = 0.05
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LockFile:
    """The kernel's lock (flock) on a plain file, which also says who holds it. Whoever dies gives it back."""

    def __init__(self, path: Path, *, descriptor: int | None = None) -> None:
        """:param descriptor: of a lock that was handed over to this process."""
        self.path = path
        self._descriptor = descriptor

    def try_acquire(self) -> bool:
        """Never waits. False: somebody else holds it.

        :raises OSError: it is no plain file, or this user may not open it.
        """
        for _ in range(_TRIES):
            # The file may have been removed and made anew while this one waited for the old one.
            if self._descriptor is not None and not self.is_the_file():
                self.close()
            if self._descriptor is None:
                self._descriptor = _opened(self.path)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if self.is_the_file():
                return True
        raise OSError(errno.ESTALE, "somebody removes it again and again", str(self.path))

    def is_the_file(self) -> bool:
        """Whether the path still names what this has open: a lock on a removed file keeps nobody out."""
        if self._descriptor is None:
            return False
        try:
            there = self.path.lstat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))

    def fileno(self) -> int:
        """To hand the lock over to another process."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is not open")
        return self._descriptor

    def note(self, label: str) -> None:
        """Say in the file who holds it."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = json.dumps({"pid": os.getpid(), "label": label, "since": now}).encode()[:_NOTE_BYTES]
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), content, 0)

    def noted(self) -> Any:
        """What the file says; None where that makes no sense. Anybody may have written it."""
        try:
            return json.loads(os.pread(self.fileno(), _NOTE_BYTES, 0))
        except (OSError, ValueError, RecursionError):
            return None

    def release(self) -> None:
        """For every process that has it open, forked ones too."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close()

    def close(self) -> None:
        """Released only if nobody else, the process that it was handed to, has it open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _opened(path: Path) -> int:
    descriptor = _found_or_made(path)
    status = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a plain file"
    elif status.st_nlink > 1:
        # Someone else's file under the lock's name: the note would be written into it.
        problem = "is a second name (hard link) of another file"
    if problem:
        os.close(descriptor)
        raise OSError(errno.EINVAL, problem, str(path))
    return descriptor


def _found_or_made(path: Path) -> int:
    tries_left = _TRIES
    while True:
        tries_left -= 1
        try:
            # No O_CREAT for one that is there: the kernel refuses that in sticky folders (fs.protected_regular).
            return os.open(path, _FLAGS)
        except FileNotFoundError:
            try:
                descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o666)  # the umask took bits away
            return descriptor
        except PermissionError:
            # Its maker may be between the two lines above.
            if tries_left <= 0 or time.time() - path.lstat().st_mtime > 1.0:
                raise
            time.sleep(_TRY_S)
