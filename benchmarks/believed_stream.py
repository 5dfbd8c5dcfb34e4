"""One streamed answer of ``believed_server.py``: what of the generated tokens reaches the client, when and how."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from believed_engine import Server

BATCHED_S = 0.040


class Stream:
    """One streamed answer."""

    def __init__(
        self, server: Server, path: str, asked: dict[str, Any], writer: asyncio.StreamWriter, *, number: int
    ) -> None:
        self._server, self._traits, self._writer = server, server.traits, writer
        self._native = path == "/generate"
        prompt = asked["input_ids"] if self._native else asked.get("prompt")
        self._prompt_len = len(prompt or ())
        wanted = asked["sampling_params"]["max_new_tokens"] if self._native else asked["max_tokens"]
        self._asked = int(wanted) + self._traits.extra
        self._continuous = bool((asked.get("stream_options") or {}).get("continuous_usage_stats"))
        self._faulty = bool(self._traits.fault) and number % 5 == 0
        self._cached = 0
        self._sent = 0
        self._pending: list[bytes] = []

    async def run(self, *, is_cached: bool) -> None:
        """
        :param is_cached: the prefix cache holds what an earlier prompt began with.
        """
        traits = self._traits
        self._cached = traits.cached if is_cached else 0
        self._writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        total = min(self._asked, traits.stop_after or self._asked) // traits.claims - traits.overcounts
        collected, last_flush = 0, time.perf_counter()
        async for step in self._server.generate(total, self._prompt_len, cached=self._cached):
            collected += step
            ready = self._sent + collected
            size = traits.first_lump if not self._sent else traits.lump
            if collected < size and ready < total:
                continue
            if self._faulty and ready > total // 2:
                self._break()
                return
            self._event(collected, last=ready == total)
            at_half = self._sent < total // 2 <= ready
            self._sent, collected = ready, 0
            if self._is_due(at_half=at_half, ended=ready == total, since_s=time.perf_counter() - last_flush):
                self._flush()
                last_flush = time.perf_counter()
                await self._writer.drain()
        if traits.delivery == "late":
            # Smoothly, one event after the other, long after they were generated.
            for event in self._pending:
                self._chunk(event)
                await self._writer.drain()
                await asyncio.sleep(0.0005)
            self._pending.clear()
        self._end(total)
        if traits.trailer_ms is not None:
            await self._writer.drain()
            await asyncio.sleep(traits.trailer_ms / 1e3)
            self._writer.write(b"0\r\nX-Trace: 1\r\n\r\n")
        else:
            self._writer.write(b"0\r\n\r\n")

    def _is_due(self, *, at_half: bool, ended: bool, since_s: float) -> bool:
        """Whether what was generated leaves the server now."""
        delivery = self._traits.delivery
        return (
            delivery == "token"
            or (ended and delivery != "late")
            or (at_half and delivery == "halves")
            or (since_s >= BATCHED_S and delivery == "batched")
        )

    def _event(self, count: int, *, last: bool) -> None:
        traits, ready = self._traits, self._sent + count
        text = '" \\ud83d"' if traits.surrogates else json.dumps(" x" * count)
        finish = "null"
        if last:
            finish = '"stop"' if traits.stop_after else '"length"'
        counted = (ready + traits.overcounts if last else ready) * traits.claims
        if self._native:
            reason = f'{{"type":{finish},"length":{self._asked}}}' if last else "null"
            meta = {"prompt_tokens": self._prompt_len, "completion_tokens": counted}
            if traits.usage == "none":
                meta = {}
            elif traits.reports_cached:
                meta["cached_tokens"] = self._cached
            inner = json.dumps(meta)[1:-1]
            self._pending.append(
                f'{{"text":{text},"meta_info":{{{inner}{"," if inner else ""}"finish_reason":{reason}}}}}'.encode()
            )
            return
        hidden = ready <= traits.hidden
        said = f'"text":"","inner_voice":{text}' if hidden else f'"text":{text}'
        choice = f'{{"index":0,{said},"finish_reason":{finish}}}'
        usage = self._usage(counted, last=last)
        self._pending.append(f'{{"id":"1","object":"text_completion","choices":[{choice}]{usage}}}'.encode())
        if traits.usage == "bare":
            self._pending.append(f'{{"id":"1","choices":[]{self._figures(counted)}}}'.encode())

    def _usage(self, counted: int, *, last: bool) -> str:
        kind = self._traits.usage
        if kind == "continuous" and self._continuous:
            return self._figures(counted)
        if kind == "last-choice" and last:
            return self._figures(counted)
        if kind == "null":
            return ',"usage":null'
        if kind == "zero":
            return self._figures(counted) if last else ',"usage":{"prompt_tokens":0,"completion_tokens":0}'
        return ""

    def _figures(self, counted: int) -> str:
        usage: dict[str, Any] = {"prompt_tokens": self._prompt_len, "completion_tokens": counted}
        if self._traits.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self._cached}
        return f',"usage":{json.dumps(usage)}'

    def _end(self, total: int) -> None:
        if not self._native and self._traits.usage in {"continuous", "final", "null", "zero"}:
            counted = (total + self._traits.overcounts) * self._traits.claims
            self._chunk(f'{{"id":"1","choices":[]{self._figures(counted)}}}'.encode())
        self._chunk(b"[DONE]")

    def _break(self) -> None:
        self._flush()
        if self._traits.fault == "in-band":
            self._chunk(b'{"error":{"message":"CUDA error: an illegal memory access","code":500}}')
            self._chunk(b"[DONE]")
        elif self._traits.fault == "abort":
            self._chunk(
                b'{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"no memory"}}}'
                if self._native
                else b'{"id":"1","choices":[{"index":0,"text":"","finish_reason":"abort"}]}'
            )
            self._chunk(b"[DONE]")
        self._writer.write(b"0\r\n\r\n")

    def _flush(self) -> None:
        for event in self._pending:
            self._chunk(event)
        self._pending.clear()

    def _chunk(self, payload: bytes) -> None:
        data = b"data: " + payload + b"\n\n"
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
