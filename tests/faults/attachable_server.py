"""A small server to attach to: its endpoints say what a test wants, its answers come a token a step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

SGLANG_INFO = {
    "model_path": "/models/tiny",
    "version": "0.5.14",
    "moe_runner_backend": "triton",
    "device": "cuda",
    "disable_radix_cache": True,
    "pid": 12,
}


@dataclass
class Attachable:
    """Started by ``serving``."""

    said: Callable[[str], Any] = lambda _: None
    """JSON of a path; None: there is no such endpoint."""
    step_s: Callable[[int], float] = lambda _: 0.004
    """Of the n-th answer."""
    answered: int = 0
    url: str = ""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ", 2)[1].partition("?")[0]
                lengths = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
                if path in ("/generate", "/v1/completions") and b'"stream":true' in body.replace(b" ", b""):
                    await self._answer(writer, path, json.loads(body))
                else:
                    _send(writer, self.said(path))
                await writer.drain()
        writer.close()
        self._writers.discard(writer)

    async def _answer(self, writer: asyncio.StreamWriter, path: str, asked: dict[str, Any]) -> None:
        self.answered += 1
        step_s = self.step_s(self.answered)
        native = path == "/generate"
        tokens = asked["sampling_params"]["max_new_tokens"] if native else asked["max_tokens"]
        prompt = len(asked["input_ids"] if native else asked["prompt"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for count in range(1, tokens + 1):
            await asyncio.sleep(step_s)
            last = count == tokens
            _chunk(writer, _native(count, prompt, last=last) if native else _openai(count, prompt, last=last))
            await writer.drain()
        _chunk(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")


def _native(count: int, prompt: int, *, last: bool) -> str:
    meta = {
        "prompt_tokens": prompt,
        "completion_tokens": count,
        "cached_tokens": 0,
        "finish_reason": {"type": "length"} if last else None,
    }
    return json.dumps({"text": "x" * count, "meta_info": meta})


def _openai(count: int, prompt: int, *, last: bool) -> str:
    choice = {"index": 0, "text": " x", "finish_reason": "length" if last else None}
    usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}
    return json.dumps({"object": "text_completion", "choices": [choice], "usage": usage})


def _chunk(writer: asyncio.StreamWriter, data: str) -> None:
    text = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(text), text))


def _send(writer: asyncio.StreamWriter, said: Any) -> None:
    status = "404 Not Found" if said is None else "200 OK"
    body = json.dumps({"detail": "Not Found"} if said is None else said).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


@contextlib.contextmanager
def serving(server: Attachable) -> Iterator[Attachable]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(server.serve, "127.0.0.1", 0), loop).result()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(listening.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
