"""Uvicorn, with what a simulation needs on top: quiet signals, SGLang's last log line, and faults below HTTP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from pytest_moeperf.engines.simulated.faults import FaultBoard
from pytest_moeperf.engines.simulated.streams import TRANSPORT

logger = logging.getLogger("simulated")

PORT_TAKEN = 3


class HttpServer(uvicorn.Server):
    """Serves ``app`` until ``should_exit`` is set. Signals are the owner's business."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, board: FaultBoard) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=_protocol(board),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Uvicorn would end with the signal that it caught; a stopped server has to end with code 0."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port (exits with code 3 where it is taken, as SGLang does), then say so as SGLang does."""
        try:
            await super().startup(sockets=sockets)
        except SystemExit:  # whose code is 1 in older versions of uvicorn
            raise SystemExit(PORT_TAKEN) from None
        if self.started:
            logger.info("The server is fired up and ready to roll!")


def _protocol(board: FaultBoard) -> type[asyncio.Protocol]:
    """Uvicorn's protocol class, with connection faults and with the transport in each request's scope."""
    base: Any = AutoHTTPProtocol

    class FaultyProtocol(base):  # type: ignore[misc]
        app: ASGIApp
        held: list[bytes] | None = None
        """What a slow accept has not passed on yet."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            inner = self.app

            async def with_transport(scope: Scope, receive: Receive, send: Send) -> None:
                scope[TRANSPORT] = transport
                await inner(scope, receive, send)

            self.app = with_transport
            refuse, slow = board.get("refuse"), board.get("slow_accept")
            if refuse is not None and len(self.connections) > refuse.number():
                transport.abort()
            elif slow is not None:
                self.held = []
                asyncio.get_running_loop().call_later(slow.number(), self.release)

        def data_received(self, data: bytes) -> None:
            if self.held is None:
                super().data_received(data)
            else:
                self.held.append(data)

        def release(self) -> None:
            held, self.held = self.held, None
            for data in held or ():
                super().data_received(data)

    return FaultyProtocol
