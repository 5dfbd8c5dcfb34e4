"""A control group of its own for each launch, where this user may make one (cgroup v2): what is in it belongs to the
launch, whatever it calls itself and whoever its parent is. Standard library only: the guardian uses it."""

from __future__ import annotations

import os
from pathlib import Path

_PREFIX = "moeperf-"


def of(launch_id: str) -> Path | None:
    """Its path, below the group of the calling process, whose limits hold on; None where no such group can be found."""
    try:
        own = _own()
    except OSError:
        return None
    return None if own is None else own / f"{_PREFIX}{launch_id}"


def make(launch_id: str) -> Path | None:
    """None where this user may not make one, or where it would have a share of CPU or memory of its own: the server is
    to run as it would without."""
    folder = of(launch_id)
    try:
        if folder is None or _lines(str(folder.parent / "cgroup.subtree_control")) not in ([], [""]):
            return None
        folder.mkdir()
    except OSError:
        return None
    return folder


def enter(folder: Path) -> None:
    """The calling process, and with it all that it starts. Where the kernel refuses, it stays where it is."""
    try:
        (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except OSError:
        return


def pids_in(folder: str, launch_id: str) -> set[int]:
    """Of the group that a record names; none where it is not the launch's own, or is gone."""
    path = Path(folder)
    if not folder or path.name != f"{_PREFIX}{launch_id}":
        return set()
    try:
        return {int(line) for line in (path / "cgroup.procs").read_text(encoding="ascii").split()}
    except (OSError, ValueError):
        return set()


def remove(folder: Path | None) -> None:
    """Once it is empty."""
    if folder is not None:
        try:
            folder.rmdir()
        except OSError:
            return


def _own() -> Path | None:
    mount = next((_mount_point(line) for line in _lines("/proc/self/mountinfo") if " - cgroup2 " in line), None)
    path = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::/")), None)
    if mount is None or path is None:
        return None
    own = Path(mount + path)
    # In a container the path may be one of the host's, and name another group here.
    return own if str(os.getpid()) in _lines(str(own / "cgroup.procs")) else None


def _mount_point(line: str) -> str:
    return line.split(" ")[4]


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
