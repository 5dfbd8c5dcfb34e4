"""Processes, told apart without doubt and ended whole. Standard library only: the guardian runs this. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

LAUNCH_VARIABLE = "MOEPERF_LAUNCH_ID"
"""In the environment of every process of a launch."""
GUARDIAN_VARIABLE = "MOEPERF_GUARDIAN"
"""``<pid>.<start time>`` of the guardian, in the same places, for people who look."""

_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """One process. The pair names it for ever: a pid that is used again comes with another start time."""

    pid: int
    start_time: int
    """Clock ticks after boot. Unlike a wall-clock time it does not move when somebody sets the clock."""


class _Stat(NamedTuple):
    parent: int
    session: int
    state: str
    start_time: int


def start_time_of(pid: int) -> int | None:
    """Start time of a live process; None where there is none. A zombie is dead: it holds nothing and does nothing."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else stat.start_time


def is_alive(process: Process) -> bool:
    """Whether this very process still lives."""
    return start_time_of(process.pid) == process.start_time


def wait_gone(process: Process, *, timeout_s: float) -> bool:
    """Wait for the end of any process, not only of a child. Whether it came in time."""
    deadline = time.monotonic() + timeout_s
    while is_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends. None where it has ended, or the kernel (or a sandbox
    around it) knows no such thing."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def myself() -> Process:
    """The calling process."""
    return child(os.getpid())


def child(pid: int) -> Process:
    """A process that is there for sure: this one, or a child that has not been reaped, dead or alive."""
    stat = _stat(pid)
    if stat is None:
        raise RuntimeError(f"/proc/{pid}/stat cannot be read: is /proc mounted?")
    return Process(pid, stat.start_time)


def boot_id() -> str:
    """Changes with every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace(pid: int | str = "self") -> str:
    """Names the pid namespace: pids of two namespaces can't be compared. Empty where it can't be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def become_subreaper() -> None:
    """Descendants whose parent ends become children of this process, and not of init."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent(parent_pid: int) -> None:
    """For the child, between fork and exec: SIGKILL for it when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before the line above
        os._exit(127)


def descendants(root: int) -> set[Process]:
    """All live processes below ``root``, which is a subreaper, so that none of them can have left."""
    children: dict[int, list[int]] = {}
    stats: dict[int, _Stat] = {}
    for pid in pids():
        stat = _stat(pid)
        if stat is not None:
            stats[pid] = stat
            children.setdefault(stat.parent, []).append(pid)
    found: set[Process] = set()
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        todo.extend(children.get(pid, ()))
        if stats[pid].state not in "ZX":
            found.add(Process(pid, stats[pid].start_time))
    return found


def send_signal(process: Process, number: int) -> None:
    """Signal this process and no other that got its pid meanwhile."""
    descriptor = open_pidfd(process.pid)
    try:
        if not is_alive(process):
            return
        if descriptor is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        if descriptor is not None:
            os.close(descriptor)


def end_all(
    find: Callable[[], set[Process]],
    *,
    term_s: float,
    kill_s: float,
    reap: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _text: None,
) -> set[Process]:
    """SIGTERM to all that ``find`` returns, at most ``term_s`` to go in peace, SIGKILL, at most ``kill_s`` to be gone.

    ``find`` is asked again and again, so that processes which appear meanwhile are ended too.

    :returns: those that even SIGKILL did not end (stuck in a driver call).
    """
    told: set[Process] = set()
    deadline = time.monotonic() + term_s
    left = find()
    while left and time.monotonic() < deadline:
        for process in left - told:
            send_signal(process, signal.SIGTERM)
            send_signal(process, signal.SIGCONT)  # a stopped process gets SIGTERM only when it goes on
        told |= left
        time.sleep(_POLL_S)
        reap()
        left = find()
    if left:
        tell(f"SIGKILL for what SIGTERM did not end: {_pids_text(left)}")
    deadline = time.monotonic() + kill_s
    while left and time.monotonic() < deadline:
        for process in left:
            send_signal(process, signal.SIGKILL)
        time.sleep(_POLL_S)
        reap()
        left = find()
    if left:
        tell(f"still there after SIGKILL: {_pids_text(left)}")
    return left


def session_of(pid: int) -> int | None:
    """The pid of the leader of its session, which may have ended; None where there is no such process."""
    stat = _stat(pid)
    return None if stat is None else stat.session


def is_own(pid: int) -> bool:
    """Whether it runs as this user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def launch_of(pid: int) -> str | None:
    """The launch whose variables it has in its environment; None where it has none, or can't be looked at. Whoever
    copies an environment has them too."""
    try:
        if not is_own(pid):
            return None
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None
    mark = LAUNCH_VARIABLE.encode() + b"="
    found = (line[len(mark) :] for line in environment.split(b"\0") if line.startswith(mark))
    return next(found, b"").decode("ascii", "replace") or None


def pids() -> Iterator[int]:
    """Of all processes that this one can see."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            yield int(name)


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may itself hold spaces and parentheses.
    after_name = content[content.rindex(b")") + 2 :].split()
    return _Stat(
        parent=int(after_name[1]),
        session=int(after_name[3]),
        state=after_name[0].decode("ascii"),
        start_time=int(after_name[19]),
    )


def _pids_text(processes: set[Process]) -> str:
    return ", ".join(str(process.pid) for process in sorted(processes))
