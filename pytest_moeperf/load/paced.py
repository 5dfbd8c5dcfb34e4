"""A server that only keeps time, for testing clients: ``python -m pytest_moeperf.load.paced --interval-ms 20``.

It speaks SGLang's ``/generate`` stream. All requests tick together, as in a real decode step: at each tick every open
request gets one event of about 300 bytes with one token; the moment before each write is kept (CLOCK_MONOTONIC, ns).
``GET /report`` gives those moments by request, and how late the ticks themselves were. Prints its port on stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import socket
import sys
import time
from array import array
from collections.abc import Callable

import msgspec

from pytest_moeperf.load.poller import Poller, allow_open_files

KEY_IDS = 3
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n\r\n"
)
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_SPIN_NS = 1_500_000


def request_key(prompt: list[int]) -> str:
    """What names a request in the report: its first token ids."""
    return ",".join(map(str, prompt[:KEY_IDS]))


class Report(msgspec.Struct, kw_only=True):
    """What the server did."""

    sent_ns: dict[str, list[int]]
    """By ``request_key``: the moment before the write of each event."""
    late_ns: list[int]
    """By tick: how long after its time it began."""
    tick_ns: list[int]
    """By tick: how long its writes took."""
    interval_ns: int


class _Sampling(msgspec.Struct):
    max_new_tokens: int


class _Generate(msgspec.Struct):
    input_ids: list[int]
    sampling_params: _Sampling


class _Stream:
    """One connection, and its request if it has one."""

    __slots__ = ("prompt_len", "received", "send", "sent_ns", "sock", "total", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.send: Callable[[bytes], int] = sock.send
        self.received = b""
        self.unsent = b""
        self.sent_ns = array("q")
        self.total = self.prompt_len = 0


class PacedServer:
    """One thread, one epoll."""

    def __init__(self, *, interval_ns: int, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)  # noqa: FBT003
        self.port: int = self._listener.getsockname()[1]
        self._interval_ns = interval_ns
        self._owner_fd = -1
        self._owner_gone = False
        self._poller = Poller(4096)
        self._poller.register(self._listener.fileno())
        self._streams: dict[int, _Stream] = {}
        self._active: dict[int, _Stream] = {}
        self._by_key: dict[str, array[int]] = {}
        self._late_ns = array("q")
        self._tick_ns = array("q")
        self._events: dict[tuple[int, int], list[bytes]] = {}

    def end_with(self, fd: int) -> None:
        """End when ``fd`` becomes readable: when the owner that holds its other side is gone."""
        self._owner_fd = fd
        self._poller.register(fd)

    def run(self) -> None:
        """Until the owner is gone, or the process is killed."""
        due_ns = time.monotonic_ns() + self._interval_ns
        while not self._owner_gone:
            left_ns = due_ns - time.monotonic_ns()
            if left_ns > 0:
                # poll rounds up to ms: sleep short of the tick, then spin.
                for fd, _ in self._poller.poll(max(0, left_ns - _SPIN_NS) / 1e9 if self._active else 0.05):
                    self._readable(fd)
                if self._active or time.monotonic_ns() < due_ns:
                    continue
            if self._active:
                began_ns = time.monotonic_ns()
                self._late_ns.append(began_ns - due_ns)
                self._tick()
                self._tick_ns.append(time.monotonic_ns() - began_ns)
                due_ns += self._interval_ns
            if time.monotonic_ns() > due_ns:
                due_ns = time.monotonic_ns() + self._interval_ns

    def _tick(self) -> None:
        monotonic_ns = time.monotonic_ns
        for fd, stream in list(self._active.items()):
            done = len(stream.sent_ns)
            events = self._events[stream.prompt_len, stream.total]
            data = events[done] if not stream.unsent else stream.unsent + events[done]
            stream.sent_ns.append(monotonic_ns())
            try:
                taken = stream.send(data)
            except BlockingIOError:
                taken = 0
            except OSError:
                self._drop(fd)
                continue
            stream.unsent = data[taken:]
            if done + 1 == stream.total:
                self._finish(fd, stream)

    def _finish(self, fd: int, stream: _Stream) -> None:
        del self._active[fd]
        if stream.unsent:
            stream.sock.settimeout(5)
            with contextlib.suppress(OSError):
                stream.sock.sendall(stream.unsent)
            stream.sock.settimeout(0)
            stream.unsent = b""

    def _readable(self, fd: int) -> None:
        if fd == self._listener.fileno():
            self._accept()
            return
        if fd == self._owner_fd:
            self._owner_gone = True
            return
        stream = self._streams[fd]
        try:
            data = stream.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(fd)
            return
        stream.received += data
        head, separator, body = stream.received.partition(b"\r\n\r\n")
        if not separator:
            return
        if head.startswith(b"GET"):
            stream.received = body
            self._answer(stream)
        elif len(body) >= (length := _content_length(head)):
            stream.received = body[length:]
            self._begin(fd, stream, body[:length])

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.settimeout(0)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._streams[sock.fileno()] = _Stream(sock)
                self._poller.register(sock.fileno())

    def _begin(self, fd: int, stream: _Stream, body: bytes) -> None:
        request = msgspec.json.decode(body, type=_Generate)
        stream.total, stream.prompt_len = request.sampling_params.max_new_tokens, len(request.input_ids)
        shape = stream.prompt_len, stream.total
        if shape not in self._events:
            self._events[shape] = [_event(count, *shape) for count in range(1, stream.total + 1)]
        stream.sent_ns = self._by_key[request_key(request.input_ids)] = array("q")
        stream.unsent = b""
        stream.sock.send(_HEAD)
        self._active[fd] = stream

    def _answer(self, stream: _Stream) -> None:
        report = Report(
            sent_ns={key: times.tolist() for key, times in self._by_key.items()},
            late_ns=self._late_ns.tolist(),
            tick_ns=self._tick_ns.tolist(),
            interval_ns=self._interval_ns,
        )
        body = msgspec.json.encode(report)
        stream.sock.settimeout(30)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        stream.sock.sendall(head.encode() + body)
        stream.sock.settimeout(0)

    def _drop(self, fd: int) -> None:
        stream = self._streams.pop(fd)
        self._active.pop(fd, None)
        self._poller.unregister(fd)
        stream.sock.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _event(count: int, prompt_len: int, total: int) -> bytes:
    finish = f'{{"type":"length","length":{total}}}' if count == total else "null"
    payload = (
        f'data: {{"text":" token","output_ids":[{count}],"meta_info":{{"id":"0123456789abcdef0123456789abcdef",'
        f'"finish_reason":{finish},"prompt_tokens":{prompt_len},"weight_version":"default","num_retractions":0,'
        f'"completion_tokens":{count},"cached_tokens":0,"cached_tokens_details":null,"dp_rank":null}}}}\n\n'
    ).encode()
    chunk = b"%x\r\n%s\r\n" % (len(payload), payload)
    return chunk + _END if count == total else chunk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pytest_moeperf.load.paced")
    parser.add_argument("--interval-ms", type=float, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cpu", type=int, help="core to stay on")
    parser.add_argument("--with-owner", action="store_true", help="end when stdin does")
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    allow_open_files(4200)
    server = PacedServer(interval_ns=round(arguments.interval_ms * 1e6), port=arguments.port)
    if arguments.with_owner:
        server.end_with(sys.stdin.fileno())
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    gc.disable()
    server.run()


if __name__ == "__main__":
    main()
