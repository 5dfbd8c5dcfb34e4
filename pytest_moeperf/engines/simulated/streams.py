"""How an answer reaches the socket: an outbox that the engine fills, and the responses that empty it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
TRANSPORT = "simulated.transport"
"""Key of the connection's transport in the ASGI scope, for faults below HTTP."""


class Outbox:
    """Bytes on their way to one client. The engine never waits for a slow reader."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._shortcut: asyncio.WriteTransport | None = None

    def put(self, data: bytes, *, last: bool) -> None:
        """Add bytes; ``last`` closes the box."""
        if self._shortcut is not None and not last:
            if not self._shortcut.is_closing():
                self._shortcut.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        self._parts.append(data)
        self.closed = self.closed or last
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def write_directly(self, transport: asyncio.WriteTransport) -> None:
        """From now on all but the last bytes go to the connection at once, as HTTP/1.1 chunks: waking a task for each
        event of each stream would cost more than the event itself."""
        if self._parts:
            transport.write(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in self._parts))
            self._parts.clear()
        self._shortcut = transport

    async def take(self) -> tuple[bytes, bool]:
        """All bytes there are, once there are any, and whether the box is closed."""
        if not self._parts:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return data, self.closed


class EventStream(Response):
    """A body of server-sent events, one write for each time the outbox is filled."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        on_disconnect: Callable[[], None],
        ends_with_reset: Callable[[], bool],
        seconds_a_byte: float,
    ) -> None:
        super().__init__()
        self._outbox = outbox
        self._on_disconnect = on_disconnect
        self._ends_with_reset = ends_with_reset
        self._seconds_a_byte = seconds_a_byte

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.ensure_future(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            if not self._seconds_a_byte and scope["http_version"] == "1.1" and not self._outbox.closed:
                self._outbox.write_directly(scope[TRANSPORT])
            closed = False
            while not closed:
                data, closed = await self._outbox.take()
                if closed and self._ends_with_reset():
                    scope[TRANSPORT].abort()
                    return
                if self._seconds_a_byte:
                    data = await self._drip(data, send)
                await send({"type": "http.response.body", "body": data, "more_body": not closed})
        finally:
            watch.cancel()

    async def _drip(self, data: bytes, send: Send) -> bytes:
        for at in range(len(data) - 1):
            await send({"type": "http.response.body", "body": data[at : at + 1], "more_body": True})
            await asyncio.sleep(self._seconds_a_byte)
        return data[-1:]

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Silence(Response):
    """No answer: not even headers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await _until_disconnected(receive)


class ShortBody(Response):
    """Promises more bytes than it sends, then closes. Written past the HTTP library, which would not allow it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = b'{"text": "cut'
        transport = scope[TRANSPORT]
        transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body) + 1000, body)
        )
        transport.close()
        await _until_disconnected(receive)


class Reset(Response):
    """The connection dies without an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        scope[TRANSPORT].abort()
        await _until_disconnected(receive)
