"""Files and folders for one user's eyes, safe against symbolic links. Standard library only: the guardian uses it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def create_private(path: Path) -> int:
    """A new 0600 file, opened for appending.

    :raises FileExistsError: there is something of that name, a symbolic link included.
    """
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a 0600 file: a reader sees the old content or the new one, after a crash too."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    descriptor = create_private(temporary)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_private(path: Path) -> bytes:
    """:raises OSError: it is not there, or is a symbolic link, no plain file, somebody else's or open to others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise OSError(errno.EPERM, "is not a plain file for this user alone", str(path))
        return file.read()
