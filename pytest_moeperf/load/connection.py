"""One TCP connection with stamped reads, plain or TLS."""

from __future__ import annotations

import socket
import ssl
import time

from pytest_moeperf.load.clock import ANCILLARY_BYTES, enable_kernel_stamps, raw_stamp
from pytest_moeperf.load.request import Target

READ_BYTES = 64 * 1024


class PlainConnection:
    """A non-blocking connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.stamped = enable_kernel_stamps(sock)
        self._unsent = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    def recv(self) -> tuple[bytes, bytes]:
        """One read, empty at the end of the stream, and the kernel's raw stamp of it.

        :raises BlockingIOError: if there is nothing to read.
        """
        if not self.stamped:
            return self.sock.recv(READ_BYTES), b""
        data, ancillary, _, _ = self.sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        return data, raw_stamp(ancillary)

    def write(self, data: bytes) -> None:
        """Takes all of ``data``; while ``pending``, some of it waits for ``flush``."""
        self._unsent += data
        self.flush()

    def flush(self) -> bool:
        """Write on. True: nothing is left."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    @property
    def pending(self) -> bool:
        return bool(self._unsent)

    def close(self) -> None:
        self.sock.close()


class TlsConnection(PlainConnection):
    """TLS over memory buffers, so that the ciphertext is read, and stamped, by us."""

    def __init__(self, sock: socket.socket, *, host: str, context: ssl.SSLContext, deadline_ns: int) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._handshake(deadline_ns)

    def recv(self) -> tuple[bytes, bytes]:
        data, raw = super().recv()
        if not data:
            return b"", raw
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            if not parts:
                raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(parts), raw

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        super().write(self._outgoing.read())

    def _handshake(self, deadline_ns: int) -> None:
        while True:
            try:
                self._tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                finished = False
            self.sock.settimeout(max(1e-3, (deadline_ns - time.monotonic_ns()) / 1e9))
            self.sock.sendall(self._outgoing.read())
            if finished:
                self.sock.settimeout(0)
                return
            data = self.sock.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("closed during the TLS handshake")
            self._incoming.write(data)


def connect(target: Target, *, context: ssl.SSLContext | None, timeout_s: float) -> PlainConnection:
    """An open connection, handshake included.

    :raises OSError: if there is none within ``timeout_s`` (ssl.SSLError is one).
    """
    deadline_ns = time.monotonic_ns() + round(timeout_s * 1e9)
    sock = socket.create_connection((target.host, target.port), timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(0)
        if context is None:
            return PlainConnection(sock)
        return TlsConnection(sock, host=target.host, context=context, deadline_ns=deadline_ns)
    except BaseException:
        sock.close()
        raise
