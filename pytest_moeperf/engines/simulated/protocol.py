"""The bodies of SGLang's ``/generate`` and of OpenAI's completion routes, field for field as SGLang 0.5.14 sends them.

One `Reply` belongs to one request: it knows how much it has said and turns the request's progress into server-sent
events, or its end into one JSON body. Nothing here knows sockets or time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pytest_moeperf.engines.simulated.engine import Finish, Request
from pytest_moeperf.engines.simulated.tokens import token_ring

DONE = b"data: [DONE]\n\n"


def text_json(request: Request, start: int) -> bytes:
    """The answer's text from token ``start`` to where it has got, escaped for the inside of a JSON string."""
    return b"".join(token_ring().text_json(*arc) for arc in _arcs(request, start))


def ids_json(request: Request, start: int) -> bytes:
    """The answer's ids, for the inside of a JSON list."""
    return b",".join(token_ring().ids_json(*arc) for arc in _arcs(request, start))


def _arcs(request: Request, start: int) -> list[tuple[int, int]]:
    """Pieces of the ring: one, and each token of garbage."""
    at, end, sound = request.ring_start, request.completion_tokens, request.garbage_after
    if sound is None or end <= sound:
        return [(at + start, at + end)]
    whole = [(at + start, at + sound)] if start < sound else []
    return whole + [(place, place + 1) for place in token_ring().garbage(at, end - sound)[max(0, start - sound) :]]


def dumps(value: Any) -> bytes:
    """JSON as orjson writes it: no spaces, raw UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def sse(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dumps(value) + b"\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A whole HTTP answer."""

    status: int
    content: dict[str, Any]


@dataclass(kw_only=True, slots=True)
class Reply:
    """What all three routes share."""

    model: str
    miscount: int = 0
    """Added to every count of completion tokens (a fault)."""
    padding: int = 0
    """Bytes of padding in the first event (a fault)."""
    created: int = field(default_factory=lambda: int(time.time()))
    _said: int = 0
    _started: bool = False

    def due(self, request: Request) -> bool:
        """Is there something to say after this step? SGLang's rule for ``stream_interval``."""
        if request.finish is not None:
            return True
        every, tokens = request.stream_interval, request.completion_tokens
        return every == 1 or tokens % every == 1

    def events(self, request: Request) -> bytes:
        """The events for the request's progress since the last call; after its end also those that close the stream."""
        finish = request.finish
        if finish is not None and finish.kind in ("error", "abort", "cut", "reset"):
            return self._broken_end(request, finish)
        out = self._progress(request)
        if self.padding and out:
            out = out[:-3] + b',"padding":"' + b"x" * self.padding + b'"}\n\n'
            self.padding = 0
        self._said, self._started = request.completion_tokens, True
        return out if finish is None else out + self._closing(request) + DONE

    def body(self, request: Request) -> Body:
        """The answer without streaming, once the request has ended."""
        raise NotImplementedError

    def completion_tokens(self, request: Request) -> int:
        """As reported."""
        return request.completion_tokens + self.miscount

    def usage(self, request: Request, *, cache_report: bool = False) -> dict[str, Any]:
        """OpenAI's usage object."""
        completion = self.completion_tokens(request)
        details = {"cached_tokens": request.cached_tokens} if cache_report and request.cached_tokens else None
        return {
            "prompt_tokens": request.prompt_tokens,
            "total_tokens": request.prompt_tokens + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": details,
            "reasoning_tokens": 0,
        }

    def text(self, request: Request, start: int = 0) -> str:
        """The answer's text from token ``start`` on."""
        text: str = json.loads(b'"' + text_json(request, start) + b'"')
        return text

    def _progress(self, request: Request) -> bytes:
        raise NotImplementedError

    def _closing(self, request: Request) -> bytes:
        raise NotImplementedError

    def _abort_event(self, request: Request, reason: Mapping[str, Any]) -> bytes:
        raise NotImplementedError

    def _error_event(self, message: str) -> bytes:
        raise NotImplementedError

    def _broken_end(self, request: Request, finish: Finish) -> bytes:
        if finish.kind in ("cut", "reset"):
            return b""
        if finish.kind == "error":
            return self._error_event("simulated: the stream failed") + DONE
        return self._abort_event(request, finish.reason or {}) + DONE


@dataclass(kw_only=True, slots=True)
class NativeReply(Reply):
    """``/generate``: cumulative text and ids, or only what is new with ``incremental``."""

    incremental: bool = False
    timings: bool = True
    """The times that SGLang adds with ``--enable-metrics``."""
    received_ts: float = field(default_factory=time.time)
    _sent_ts: float = 0.0

    def body(self, request: Request) -> Body:
        finish = request.finish
        if finish is not None and finish.kind == "error":
            return Body(status=500, content={"error": {"message": "simulated: the request failed"}})
        reason = finish.reason if finish is not None else None
        if reason is not None and reason.get("status_code") is not None:
            return Body(status=int(reason["status_code"]), content={"error": {"message": reason["message"]}})
        content: dict[str, Any] = json.loads(self._object(request, 0))
        return Body(status=200, content=content)

    def _object(self, request: Request, said: int) -> bytes:
        finish, last = b"null", b""
        if not self._sent_ts:
            self._sent_ts = time.time()
            last = b',"response_sent_to_client_ts":%.6f' % self._sent_ts
        if request.finish is not None:
            finish = dumps(request.finish.reason)
            last = self._final_times(request)
        queue = b'"queue_time":%.6f,' % ((request.admitted_s or request.arrival_s) - request.arrival_s)
        return (
            b'{"text":"%b","output_ids":[%b],"meta_info":{"id":"%b","finish_reason":%b,"prompt_tokens":%d,'
            b'"weight_version":"default","num_retractions":%d,%b"reasoning_tokens":0,"completion_tokens":%d,'
            b'"cached_tokens":%d,"cached_tokens_details":%b,"dp_rank":null%b}}'
        ) % (
            text_json(request, said),
            ids_json(request, said),
            request.rid.encode(),
            finish,
            request.prompt_tokens,
            request.retractions,
            queue if self.timings else b"",
            self.completion_tokens(request),
            request.cached_tokens,
            b'{"device":%d,"host":0}' % request.cached_tokens if request.cached_tokens else b"null",
            last,
        )

    def _final_times(self, request: Request) -> bytes:
        now_s, now_ts = time.monotonic(), time.time()
        out = b',"e2e_latency":%.6f' % max(now_s - request.arrival_s, 0.0)
        if not self.timings:
            return out + b',"response_sent_to_client_ts":%.6f' % self._sent_ts
        decode_s = max(now_s - (request.first_token_s or now_s), 1e-9)
        return out + (
            b',"request_received_ts":%.6f,"api_server_dispatch_finish_ts":%.6f,"response_sent_to_client_ts":%.6f,'
            b'"request_finished_ts":%.6f,"decode_throughput":%.3f'
        ) % (
            *(self.received_ts, self.received_ts, self._sent_ts, now_ts),
            max(request.completion_tokens - 1, 0) / decode_s,
        )

    def _progress(self, request: Request) -> bytes:
        return b"data: %b\n\n" % self._object(request, self._said if self.incremental else 0)

    def _closing(self, request: Request) -> bytes:  # noqa: ARG002 nothing between the last event and [DONE]
        return b""

    def _abort_event(self, request: Request, reason: Mapping[str, Any]) -> bytes:  # noqa: ARG002 it is in the request
        return self._progress(request)

    def _error_event(self, message: str) -> bytes:
        return native_error_event(message)


@dataclass(kw_only=True, slots=True)
class OpenAIReply(Reply):
    """What ``/v1/completions`` and ``/v1/chat/completions`` share."""

    include_usage: bool = False
    continuous_usage: bool = False
    cache_report: bool = False

    def body(self, request: Request) -> Body:
        finish = request.finish
        if finish is not None and finish.kind == "error":
            return Body(status=500, content=openai_error("simulated: the request failed", "InternalServerError", 500))
        reason = (finish.reason if finish is not None else None) or {}
        if reason.get("status_code") is not None:
            status = HTTPStatus(reason["status_code"])
            return Body(status=status.value, content=openai_error(reason["message"], status.name, status.value))
        return Body(status=200, content=self._full(request, reason))

    def _full(self, request: Request, reason: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _error_event(self, message: str) -> bytes:
        return sse({"error": openai_error(message, "BadRequestError", 400)})

    def _abort_event(self, request: Request, reason: Mapping[str, Any]) -> bytes:
        if reason.get("status_code") is None:
            return self._progress(request) + self._closing(request)
        status = HTTPStatus(reason["status_code"])
        return sse({"error": openai_error(reason["message"], status.name, status.value)})


@dataclass(kw_only=True, slots=True)
class CompletionReply(OpenAIReply):
    """``/v1/completions``."""

    def _full(self, request: Request, reason: Mapping[str, Any]) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": self.text(request),
            "logprobs": None,
            "finish_reason": reason.get("type"),
            "matched_stop": reason.get("matched"),
        }
        return {
            "id": request.rid,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": self.usage(request, cache_report=self.cache_report),
            "metadata": {"weight_version": "default"},
        }

    def _progress(self, request: Request) -> bytes:
        reason = (request.finish.reason if request.finish is not None else None) or {}
        return (
            b'data: {"id":"%b","object":"text_completion","created":%d,"model":%b,"choices":[{"index":0,"text":"%b",'
            b'"logprobs":null,"finish_reason":%b,"matched_stop":%b}],"usage":%b}\n\n'
        ) % (
            request.rid.encode(),
            self.created,
            dumps(self.model),
            text_json(request, self._said),
            dumps(reason.get("type")),
            dumps(reason.get("matched")),
            dumps(self.usage(request)) if self.continuous_usage else b"null",
        )

    def _closing(self, request: Request) -> bytes:
        if not self.include_usage:
            return b""
        usage = self.usage(request, cache_report=self.cache_report)
        final = {
            "id": request.rid,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [],
            "usage": {key: value for key, value in usage.items() if value is not None},
        }
        return sse(final)


@dataclass(kw_only=True, slots=True)
class ChatReply(OpenAIReply):
    """``/v1/chat/completions``: a role chunk first, the finish reason in a chunk of its own."""

    def _full(self, request: Request, reason: Mapping[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.text(request), "reasoning_content": None, "tool_calls": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": reason.get("type"),
            "matched_stop": reason.get("matched"),
        }
        return {
            "id": request.rid,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": self.usage(request, cache_report=self.cache_report),
            "metadata": {"weight_version": "default"},
        }

    def _progress(self, request: Request) -> bytes:
        role = b"" if self._started else self._chunk(request, b',"role":"assistant","content":""')
        if request.completion_tokens == self._said:
            return role
        text = text_json(request, self._said)
        usage = b',"usage":' + dumps(self.usage(request)) if self.continuous_usage else b""
        return role + self._chunk(request, b',"content":"%b"' % text, usage=usage)

    def _closing(self, request: Request) -> bytes:
        reason = (request.finish.reason if request.finish is not None else None) or {}
        end = self._chunk(request, b"", finish=dumps(reason.get("type")), matched=dumps(reason.get("matched")))
        if not self.include_usage:
            return end
        final = {
            "id": request.rid,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [],
            "usage": self.usage(request, cache_report=self.cache_report),
        }
        return end + sse(final)

    def _chunk(
        self, request: Request, delta: bytes, *, finish: bytes = b"null", matched: bytes = b"null", usage: bytes = b""
    ) -> bytes:
        return (
            b'data: {"id":"%b","object":"chat.completion.chunk","created":%d,"model":%b,"choices":[{"index":0,'
            b'"delta":{"reasoning_content":null%b},"logprobs":null,"finish_reason":%b,"matched_stop":%b}]%b}\n\n'
        ) % (request.rid.encode(), self.created, dumps(self.model), delta, finish, matched, usage)


def native_error_event(message: str) -> bytes:
    """What ``/generate`` sends instead of a token once the answer has begun."""
    return sse({"error": {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}})


def openai_error(message: str, kind: str, code: int) -> dict[str, Any]:
    """SGLang's error object of the OpenAI routes."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}
