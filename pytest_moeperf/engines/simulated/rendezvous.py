"""Several nodes as one server: all meet at ``--dist-init-addr``, and each dies when another does.

Node 0 listens there and serves HTTP once all have come; the others serve nothing and wait for its end, as SGLang's do.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from dataclasses import dataclass

from pytest_moeperf.engines.simulated.arguments import ServerArgs

logger = logging.getLogger("simulated")

_BYE = b"bye\n"
_HELLO_BYTES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Node 0's connections to the others; empty for a single node."""

    members: tuple[socket.socket, ...] = ()

    def dismiss(self) -> None:
        """Tell the others that the end is intended."""
        for member in self.members:
            # A node that is gone needs no farewell.
            with contextlib.suppress(OSError):
                member.sendall(_BYE)
            member.close()


def gather(args: ServerArgs) -> Group:
    """Node 0: wait until every other node has come.

    :raises SystemExit: with code 1 if the address can't be used or a node disagrees.
    """
    if args.nnodes == 1:
        return Group()
    address = _address(args)
    logger.info("Init torch distributed begin. (simulated: %d nodes meet at %s)", args.nnodes, args.dist_init_addr)
    try:
        listener = socket.create_server(address)
    except OSError as error:
        logger.critical("The address %s of --dist-init-addr can't be opened: %s", args.dist_init_addr, error.strerror)
        raise SystemExit(1) from error
    members: dict[int, socket.socket] = {}
    with listener:
        while len(members) < args.nnodes - 1:
            connection, _ = listener.accept()
            hello = connection.recv(_HELLO_BYTES).decode(errors="replace").split()
            if len(hello) != 2 or hello[1] != str(args.nnodes) or not hello[0].isdigit() or int(hello[0]) in members:
                logger.error(
                    "A node that does not belong here came: it said %r, this group has %d nodes", hello, args.nnodes
                )
                raise SystemExit(1)
            members[int(hello[0])] = connection
            logger.info("simulated: node %s of %d has come", hello[0], args.nnodes)
    return Group(members=tuple(members.values()))


def follow(args: ServerArgs) -> None:
    """Any other node: join, then wait for node 0's end. Never returns.

    :raises SystemExit: code 0 if node 0 ended as intended, 1 if it vanished.
    """
    connection = _connect(args)
    connection.sendall(f"{args.node_rank} {args.nnodes}\n".encode())
    logger.info("simulated: node %d of %d has joined at %s", args.node_rank, args.nnodes, args.dist_init_addr)
    try:
        farewell = connection.recv(len(_BYE))
    except OSError:
        farewell = b""
    if farewell == _BYE:
        raise SystemExit(0)
    logger.error("Scheduler hit an exception: node 0 has vanished (simulated)")
    raise SystemExit(1)


def _connect(args: ServerArgs) -> socket.socket:
    while True:
        try:
            return socket.create_connection(_address(args))
        except OSError:
            time.sleep(0.1)  # node 0 may start later; whoever launched the nodes decides how long to wait


def _address(args: ServerArgs) -> tuple[str, int]:
    host, _, port = (args.dist_init_addr or "").rpartition(":")
    return host.strip("[]"), int(port)
