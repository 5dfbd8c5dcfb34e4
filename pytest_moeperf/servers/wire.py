"""The line between a guardian and those who hold its server: one JSON object a line, a request and its reply.
Standard library only."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

Message = dict[str, Any]

_CHUNK_BYTES = 65536


class LineClosedError(Exception):
    """The other end is gone."""


class Line:
    """One connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""

    def send(self, message: Message) -> None:
        """:raises LineClosedError: the other end is gone, or does not read."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LineClosedError(str(error)) from error

    def read(self) -> list[Message]:
        """What has arrived, complete messages only; waits as long as the socket's time-out for something to arrive.

        :raises LineClosedError: the other end is gone.
        :raises TimeoutError: nothing came.
        """
        try:
            chunk = self.connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise LineClosedError(str(error)) from error
        if not chunk:
            raise LineClosedError("closed by the other end")
        *complete, self._received = (self._received + chunk).split(b"\n")
        return [json.loads(line) for line in complete]

    def ask(self, message: Message, *, timeout_s: float) -> Message:
        """Send a request, wait for its reply.

        :raises LineClosedError: the other end is gone.
        :raises TimeoutError: no reply within ``timeout_s``.
        """
        self.connection.settimeout(timeout_s)
        self.send(message)
        while True:
            if replies := self.read():
                return replies[0]

    def close(self) -> None:
        """Idempotent."""
        self.connection.close()


def listen_at(path: Path) -> socket.socket:
    """A listening Unix socket for this user only."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _ShortAddress(path) as address:
        server.bind(address)
    path.chmod(0o600)
    server.listen()
    return server


def connect_to(path: Path, *, timeout_s: float) -> socket.socket:
    """:raises OSError: nobody listens there (``ConnectionRefusedError``, ``FileNotFoundError``)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with _ShortAddress(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


class _ShortAddress:
    """A socket's path may have 107 bytes only. Through its open folder every path is short."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *_exception: object) -> None:
        os.close(self._folder)
