"""Where a configuration lies: beside the tests or above them, else in one place below."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pytest_moeperf.errors import UsageProblem

FILE_NAME = "moeperf.toml"


def find_file(start: Path, root: Path) -> tuple[Path | None, dict[str, Any]]:
    """The configuration nearest to the tests: ``moeperf.toml``, or a ``pyproject.toml`` with ``[tool.moeperf]``, in
    ``start``, in a folder above it, or in ``root`` where that is not above.

    Above ``root``, pytest's, only files of this user, of root's owner or of the system's administrator count: what
    somebody else put into a shared folder starts no server here.

    :raises UsageProblem: for a file that can't be read or is not TOML.
    """
    folders = [start, *start.parents]
    trusted: set[int] | None = None
    for folder in folders if root in folders else [*folders, root]:
        if trusted is None and folder in root.parents:
            trusted = {0, os.geteuid(), root.stat().st_uid}
        for name in (FILE_NAME, "pyproject.toml"):
            path = folder / name
            if not path.is_file():
                continue
            if trusted is not None and path.stat().st_uid not in trusted:
                return None, {}
            section = table_of(path)
            if section is not None:
                return path, section
    return None, {}


def files_below(starts: Sequence[Path], *, ignored: Sequence[str]) -> list[Path]:
    """Configurations in the folders under ``starts``; what lies under one of them again is not looked for.

    :param ignored: patterns of folder names, pytest's ``norecursedirs``.
    """
    found = (path for start in starts for path in _below(start, ignored))
    return sorted(set(found))


def _below(start: Path, ignored: Sequence[str]) -> Iterator[Path]:
    for folder, names, files in os.walk(start):
        here = Path(folder)
        candidates = [here / name for name in (FILE_NAME, "pyproject.toml") if name in files]
        own = next((path for path in candidates if table_of(path) is not None), None)
        if own is not None:
            yield own
        if own is not None or "pyvenv.cfg" in files:
            names.clear()
        names[:] = [name for name in names if not any(fnmatch(name, pattern) for pattern in ignored)]


def start_folders(arguments: Sequence[str], invocation: Path) -> list[Path]:
    """The folders of all files and folders on pytest's command line; without any, where it runs."""
    paths = [invocation / argument.partition("::")[0] for argument in arguments]
    folders = [path if path.is_dir() else path.parent for path in paths if path.exists()]
    # Not resolve(): pytest leaves links in a test's path too, and the folders above are those of the name.
    return list(dict.fromkeys(Path(os.path.abspath(folder)) for folder in folders or [invocation]))


def table_of(path: Path) -> dict[str, Any] | None:
    """Our part of a file; None for a ``pyproject.toml`` without one.

    :raises UsageProblem: it can't be read or is not TOML.
    """
    data = _load(path)
    section: dict[str, Any] | None = data.get("tool", {}).get("moeperf")
    return data if section is None and path.name == FILE_NAME else section


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        problem, step = f"is not valid TOML: {error}", "mend that line; nothing was started"
    except UnicodeDecodeError as error:
        problem, step = f"is not UTF-8 text (byte {error.start})", "save it as UTF-8; nothing was started"
    except OSError as error:
        problem, step = f"can't be read: {error.strerror}", "make it a file that this user may read"
    raise UsageProblem(where=str(path), problem=problem, next_step=step)
