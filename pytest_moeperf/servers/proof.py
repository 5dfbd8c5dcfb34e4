"""What is proven of a recorded launch: whether its guardian is dead, and which processes it left."""

from __future__ import annotations

import socket
from pathlib import Path

from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.servers import cgroups, launch_folder, proctree
from pytest_moeperf.servers.proctree import Process
from pytest_moeperf.servers.wire import connect_to

_CONNECT_S = 5.0
_KILL_S = 10.0


def process_of(record: ServerRecord) -> Process:
    """The server's root process."""
    return Process(record.pid, record.pid_start_time)


def guardian_of(record: ServerRecord) -> Process:
    """The server's guardian."""
    return Process(record.guardian_pid, record.guardian_start_time)


def is_of_here(record: ServerRecord) -> bool:
    """Whether its pids mean here what they mean there: this boot, this pid namespace."""
    return record.boot_id == proctree.boot_id() and record.pid_namespace == proctree.pid_namespace()


def guardian_is_dead(record: ServerRecord) -> bool:
    """Whether there is proof. Without proof it is alive."""
    if record.boot_id != proctree.boot_id():
        # Another boot of this host, or another host that shares the folder?
        return record.hostname == socket.gethostname()
    if is_of_here(record):
        return not proctree.is_alive(guardian_of(record))
    # Another container on this kernel. Its pids mean nothing here, but a dead guardian's socket refuses.
    try:
        connect_to(Path(record.folder) / launch_folder.SOCKET_NAME, timeout_s=_CONNECT_S).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        return False
    return False


def left_by(record: ServerRecord) -> set[Process]:
    """Live processes of this user that are proven to be of this launch, whose guardian is dead: in the launch's own
    control group, or in the server's own session with the launch's variables. The variables alone prove nothing:
    whoever copies an environment has them."""
    if not is_of_here(record):
        return set()
    pids = cgroups.pids_in(record.cgroup, record.launch_id) | {
        pid
        for pid in proctree.pids()
        if proctree.session_of(pid) == record.pid and proctree.launch_of(pid) == record.launch_id
    }
    found = {Process(pid, started) for pid in pids if (started := proctree.start_time_of(pid)) is not None}
    return {
        process
        for process in found
        # A process of before the launch is another one behind a number that was used again.
        if process.start_time >= record.pid_start_time and proctree.is_own(process.pid)
    }


def end_left_by(record: ServerRecord) -> set[Process]:
    """SIGKILL for these, and no others. What even that did not end."""
    left = proctree.end_all(lambda: left_by(record), term_s=0.0, kill_s=_KILL_S)
    if not left:
        cgroups.remove(cgroups.of(record.launch_id))
    return left
