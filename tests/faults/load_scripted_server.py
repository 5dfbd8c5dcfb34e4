"""A server that does to each connection exactly what a test's script says."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(count: int, *, last: int = 4, prompt_tokens: int = 8) -> bytes:
    finish = b'{"type":"length"}' if count == last else b"null"
    meta = b'{"completion_tokens":%d,"prompt_tokens":%d,"cached_tokens":0,"finish_reason":%s}'
    return b'data: {"text":"x","meta_info":' + meta % (count, prompt_tokens, finish) + b"}\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def good_answer(tokens: int = 4) -> list[bytes]:
    """The pieces in which a well-behaved server sends its answer."""
    events = [chunk(event(count, last=tokens)) for count in range(1, tokens + 1)]
    return [SSE_HEAD, *events, chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]


@dataclass
class Connection:
    """What a script works with."""

    number: int
    sock: socket.socket
    server: ScriptedServer
    _unread: bytes = b""

    def read_request(self) -> bytes | None:
        """Head and body of the next request; None when the client has closed."""
        data = self._unread
        while b"\r\n\r\n" not in data:
            part = self.sock.recv(65536)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += self.sock.recv(65536)
        self._unread = body[length:]
        with self.server.lock:
            self.server.requests.append(head + b"\r\n\r\n" + body[:length])
        return self.server.requests[-1]

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.sock.sendall(piece)

    def serve(self, answer: Sequence[bytes] | None = None) -> None:
        """Be a good server until the client goes."""
        while self.read_request() is not None:
            self.send(*(answer or good_answer()))

    def reset(self) -> None:
        """Close with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()


Script = Callable[[Connection], None]


@dataclass
class ScriptedServer:
    script: Script
    tls: ssl.SSLContext | None = None
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._sockets: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(sock, self.connections), daemon=True).start()

    def _talk(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(sock)
            self.script(Connection(number, sock, self))
        with contextlib.suppress(OSError):
            sock.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self.stopping.set()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()


def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> contextlib.AbstractContextManager[ScriptedServer]:
    return ScriptedServer(script, tls).running()
