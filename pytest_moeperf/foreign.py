"""Files that anybody may have written: those of a checkout, of a report that was handed over.

A link could lead a read or a write to any file of this user, a FIFO blocks whoever opens it, and a text may be of any
size and nested to any depth.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

DEEPEST_JSON = 64
LARGEST_BYTES = 64 << 20


def refuse_links(path: Path, *, below: Path) -> None:
    """From ``below`` (which may be a link itself) down to ``path`` there are folders and plain files alone.

    :raises OSError: names the link and where it leads to, or what is there instead.
    """
    for part in (path, *path.parents):
        if part == below:
            return
        try:
            mode = part.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, f"is a symbolic link (to {part.readlink()}), which is not followed", str(part))
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "is not a plain file", str(part))


def read_text(path: Path, *, most_bytes: int = LARGEST_BYTES) -> str:
    """UTF-8 text of a plain file. A link at ``path`` is followed: where none may be, ``refuse_links`` comes first.

    :raises OSError: it can't be opened, is not a plain file, or is larger than ``most_bytes``.
    :raises UnicodeDecodeError: it is not UTF-8.
    """
    # A FIFO without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", str(path))
        if status.st_size > most_bytes:
            size, most = (f"{number / (1 << 20):.0f} MiB" for number in (status.st_size, most_bytes))
            raise OSError(errno.EFBIG, f"has {size}; at most {most} are read", str(path))
        return file.read(most_bytes + 1).decode("utf-8")


def parse_json(text: str, **hooks: Any) -> Any:
    """``json.loads`` for texts of others.

    :raises json.JSONDecodeError: it is no JSON, or nested too deeply.
    """
    try:
        data = json.loads(text, **hooks)
        deep = deeper_than(data, DEEPEST_JSON)
    except RecursionError:
        deep = True
    if deep:
        raise json.JSONDecodeError(f"nested more than {DEEPEST_JSON} levels deep", text, 0)
    return data


def deeper_than(data: Any, levels: int) -> bool:
    """Without recursion: what is deep is what this is for."""
    level = [data]
    for _ in range(levels):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def keep_out_of_git(folder: Path, *, below: Path) -> None:
    """Make ``folder``, with a ``.gitignore`` of its own.

    :raises OSError: as ``refuse_links``, or it can't be written.
    """
    ignore = folder / ".gitignore"
    refuse_links(ignore, below=below)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(ignore, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("*\n")
