"""A free port, and who is behind one."""

from __future__ import annotations

import random
import socket

from pytest_moeperf.errors import ServerError
from pytest_moeperf.model.server import ServerRecord
from pytest_moeperf.servers import proctree

PORTS = range(20_000, 30_000)
"""Below the ephemeral range of Linux, and low enough for SGLang, which listens on ``port + 10000`` too (0.5.14 dies at
start where that is above 65535)."""
_TRIES = 200


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago. Somebody may take it before the server does: then the server says so and is
    launched again on another one.

    :raises ServerError: if none of many tries found one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_TRIES):
        port = random.choice(PORTS)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port
    raise ServerError(
        what=f"no free port found on {host} in {PORTS.start} to {PORTS.stop - 1}, {_TRIES} tries",
        hint="something on this machine holds thousands of ports: ss -ltn shows what",
    )


def stranger_on(record: ServerRecord) -> int | None:
    """The pid that listens on the server's port and is proven not to be the server's: a good health answer from it
    would start the measuring of another server.

    A listener that can't be placed (a container's port proxy, say) is believed.
    """
    import psutil

    ours = proctree.descendants(record.guardian_pid)
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status != psutil.CONN_LISTEN or connection.pid is None:
            continue
        if not connection.laddr or connection.laddr.port != record.port:
            continue
        started = proctree.start_time_of(connection.pid)
        if started is None or proctree.Process(connection.pid, started) in ours:
            continue
        launch = proctree.launch_of(connection.pid)
        if started < record.pid_start_time or (launch is not None and launch != record.launch_id):
            return int(connection.pid)
    return None
