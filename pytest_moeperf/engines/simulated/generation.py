"""The three generation routes: from a body to a request in the batch, with the faults that hit it, to an answer."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pytest_moeperf.engines.simulated.arguments import ServerArgs
from pytest_moeperf.engines.simulated.clock import EngineLoop
from pytest_moeperf.engines.simulated.engine import Finish, Request, finish_abort, finish_stop
from pytest_moeperf.engines.simulated.faults import Fault, FaultBoard
from pytest_moeperf.engines.simulated.prefix_cache import PrefixCache
from pytest_moeperf.engines.simulated.protocol import (
    DONE,
    ChatReply,
    CompletionReply,
    NativeReply,
    Reply,
    dumps,
    native_error_event,
    openai_error,
)
from pytest_moeperf.engines.simulated.streams import EventStream, Outbox, Reset, ShortBody, Silence
from pytest_moeperf.engines.simulated.tokens import RING, prompt_bytes, ring_start, tokenize

_HTML = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
_ENDS: Mapping[str, Callable[[], Finish]] = {
    "early_eos": finish_stop,
    "nan_stop": lambda: finish_stop("NaN happened"),
    "abort_finish": lambda: finish_abort("simulated abort", status_code=503, err_type="ServiceUnavailableError"),
    "truncated_stream": lambda: Finish(kind="cut"),
    "reset_mid_stream": lambda: Finish(kind="reset"),
    "in_band_error_mid": lambda: Finish(kind="error"),
}


class BadRequest(ValueError):
    """A body that the route can't serve; the text goes to the client."""


class TooLong(BadRequest):
    """A prompt that the model can't take."""

    def __init__(self, message: str, *, stream: bool) -> None:
        super().__init__(message)
        self.stream = stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A parsed body."""

    reply: Reply
    prompt: bytes
    prompt_tokens: int
    max_new_tokens: int
    ignore_eos: bool
    stream: bool
    stream_interval: int
    rid: str


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Serves the generation routes."""

    args: ServerArgs
    engine: EngineLoop
    board: FaultBoard
    cache: PrefixCache
    live: dict[str, Request]
    """Requests by id, for ``/abort_request``."""

    async def native(self, http: HttpRequest) -> Response:
        """``/generate``."""
        return await self._serve(http, self._parse_native, _native_error)

    async def completions(self, http: HttpRequest) -> Response:
        """``/v1/completions``."""
        return await self._serve(http, self._parse_completion, _openai_bad_request)

    async def chat(self, http: HttpRequest) -> Response:
        """``/v1/chat/completions``."""
        return await self._serve(http, self._parse_chat, _openai_bad_request)

    async def _serve(
        self, http: HttpRequest, parse: Callable[[Mapping[str, Any]], Ask], error: Callable[[BadRequest], Response]
    ) -> Response:
        struck = self.board.strike()
        body = await http.body()
        broken = _broken_http(struck, http)
        if broken is not None:
            return broken
        try:
            ask = parse(_json_object(body))
        except BadRequest as problem:
            return error(problem)
        request = self._request(ask, struck)
        if ask.stream:
            return self._stream(request, ask.reply, struck)
        return await self._whole(request, ask.reply)

    def _stream(self, request: Request, reply: Reply, struck: Mapping[str, Fault]) -> Response:
        outbox = Outbox()

        def deliver(moved: Request) -> None:
            if reply.due(moved):
                outbox.put(reply.events(moved), last=moved.finish is not None)
            if moved.finish is not None:
                self.live.pop(moved.rid, None)

        self.live[request.rid] = request
        self.engine.submit(request, deliver)
        drip = struck.get("drip")
        return EventStream(
            outbox,
            on_disconnect=lambda: self.engine.abort(request, finish_abort("client disconnected")),
            ends_with_reset=lambda: request.finish is not None and request.finish.kind == "reset",
            seconds_a_byte=drip.number() if drip else 0.0,
        )

    async def _whole(self, request: Request, reply: Reply) -> Response:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def deliver(moved: Request) -> None:
            if moved.finish is not None:
                self.live.pop(moved.rid, None)
                if not ended.done():
                    ended.set_result(None)

        self.live[request.rid] = request
        self.engine.submit(request, deliver)
        await ended
        if request.finish is not None and request.finish.kind in ("cut", "reset"):
            return Reset()
        body = reply.body(request)
        return json_response(body.content, status=body.status)

    def _request(self, ask: Ask, struck: Mapping[str, Fault]) -> Request:
        request = Request(
            rid=ask.rid,
            prompt_tokens=ask.prompt_tokens,
            max_new_tokens=ask.max_new_tokens,
            arrival_s=time.monotonic(),
            ring_start=ring_start(ask.prompt),
            cached_tokens=0 if self.args.disable_radix_cache else self.cache.match_and_add(ask.prompt),
            stream_interval=ask.stream_interval,
        )
        if not ask.ignore_eos:
            # The answer's own end, between half and all of what was asked for; always the same for a prompt.
            request.end_after = max(ask.max_new_tokens - zlib.crc32(ask.prompt, 1) % (ask.max_new_tokens // 2 + 1), 1)
            request.end_as = finish_stop()
        apply_faults(struck, request, ask.reply)
        return request

    def _parse_native(self, body: Mapping[str, Any]) -> Ask:
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise BadRequest("sampling_params must be one object; the simulated engine takes one prompt a request")
        if body.get("return_logprob"):
            raise BadRequest("return_logprob is not simulated")
        ids = body.get("input_ids")
        return self._ask(
            NativeReply(
                model=self.args.served_model_name,
                timings=self.args.enable_metrics,
                incremental=_flag(body, "incremental_streaming_output", default=self.args.incremental_streaming_output),
            ),
            prompt=ids if ids is not None else body.get("text"),
            max_new_tokens=sampling.get("max_new_tokens", 128),
            ignore_eos=_flag(sampling, "ignore_eos"),
            stream=_flag(body, "stream"),
            stream_interval=sampling.get("stream_interval") or self.args.stream_interval,
            rid=body.get("rid"),
        )

    def _parse_completion(self, body: Mapping[str, Any]) -> Ask:
        limit = body.get("max_tokens")
        return self._ask(
            CompletionReply(**self._openai_options(body)),
            prompt=body.get("prompt"),
            max_new_tokens=16 if limit is None else limit,
            ignore_eos=_flag(body, "ignore_eos"),
            stream=_flag(body, "stream"),
            stream_interval=self.args.stream_interval,
            rid=body.get("rid"),
        )

    def _parse_chat(self, body: Mapping[str, Any]) -> Ask:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest("messages must be a list of at least one message")
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        return self._ask(
            ChatReply(**self._openai_options(body)),
            prompt="\n".join(_message_text(message) for message in messages),
            max_new_tokens=128 if limit is None else limit,
            ignore_eos=_flag(body, "ignore_eos"),
            stream=_flag(body, "stream"),
            stream_interval=self.args.stream_interval,
            rid=body.get("rid"),
        )

    def _openai_options(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("n") not in (None, 1):
            raise BadRequest("n must be 1; the simulated engine gives one answer a request")
        stream_options = body.get("stream_options") or {}
        if not isinstance(stream_options, dict):
            raise BadRequest("stream_options must be an object")
        return {
            "model": body.get("model") or self.args.served_model_name,
            "include_usage": _flag(stream_options, "include_usage"),
            "continuous_usage": _flag(stream_options, "continuous_usage_stats"),
            "cache_report": self.args.enable_cache_report,
        }

    def _ask(
        self,
        reply: Reply,
        *,
        prompt: Any,
        max_new_tokens: Any,
        ignore_eos: bool,
        stream: bool,
        stream_interval: Any,
        rid: Any,
    ) -> Ask:
        if isinstance(prompt, str):
            prompt = tokenize(prompt)
        if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], (list, str)):
            raise BadRequest("the prompt must be one text or one list of token ids, and not be empty")
        try:
            encoded = prompt_bytes(prompt)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        for name, value in (("max_new_tokens", max_new_tokens), ("stream_interval", stream_interval)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadRequest(f"{name} must be a whole number of at least 1, not {value!r}")
        if rid is not None and (not isinstance(rid, str) or not rid.isascii() or not rid.replace("-", "").isalnum()):
            raise BadRequest("rid must be a text of ASCII letters, digits and hyphens")
        if problem := _length_problem(len(prompt), max_new_tokens, self.args.context_length):
            raise TooLong(problem, stream=stream)
        return Ask(
            reply=reply,
            prompt=encoded,
            prompt_tokens=len(prompt),
            max_new_tokens=max_new_tokens,
            ignore_eos=ignore_eos,
            stream=stream,
            stream_interval=stream_interval,
            rid=rid or uuid.uuid4().hex,
        )


def apply_faults(struck: Mapping[str, Fault], request: Request, reply: Reply) -> None:
    """Change a request and its reply as the faults that hit it say."""
    for name, end in _ENDS.items():
        if fault := struck.get(name):
            request.end_after = int(fault.number(half_of=request.max_new_tokens))
            request.end_as = end()
    if "in_band_error" in struck:
        request.end_after, request.end_as = 0, Finish(kind="error")
    if fault := struck.get("wrong_token_count"):
        reply.miscount = int(fault.number())
    if fault := struck.get("multi_token_chunks"):
        request.stream_interval = max(int(fault.number()), 1)
    if fault := struck.get("cache_hits"):
        hits = int(fault.number(half_of=request.prompt_tokens))
        request.cached_tokens = max(request.cached_tokens, min(hits, request.prompt_tokens - 1))
    if "retract" in struck:
        request.retractions = 1
    if "wrong_text" in struck:
        request.ring_start = (request.ring_start + RING // 2) % RING
    if fault := struck.get("garbage_after"):
        request.garbage_after = int(fault.number(half_of=request.max_new_tokens))
    if fault := struck.get("big_event"):
        reply.padding = int(fault.number())


def json_response(content: Any, *, status: int = 200) -> Response:
    """JSON in SGLang's spelling."""
    return Response(dumps(content), status_code=status, media_type="application/json")


def _broken_http(struck: Mapping[str, Fault], http: HttpRequest) -> Response | None:
    """The answer of a fault that never reaches the engine."""
    if "http_503" in struck:
        return json_response({"error": {"message": "The request queue is full."}}, status=503)
    if "html_body" in struck:
        return HTMLResponse(_HTML)
    if "redirect" in struck:
        return RedirectResponse(http.url, status_code=307)
    if "wrong_content_length" in struck:
        return ShortBody()
    if "never_headers" in struck:
        return Silence()
    return None


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def _flag(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false, not {value!r}")
    return value


def _message_text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise BadRequest("each message must have a text as its content")
    return content


def _length_problem(prompt: int, new: int, most: int) -> str | None:
    """SGLang's words for a request that does not fit the context."""
    if prompt >= most:
        return f"The input ({prompt} tokens) is longer than the model's context length ({most} tokens)."
    if prompt + new > most:
        return (
            f"Requested token count exceeds the model's maximum context length of {most} tokens. "
            f"You requested a total of {prompt + new} tokens: {prompt} tokens from the input messages "
            f"and {new} tokens for the completion. Please reduce the number of tokens in the input messages "
            "or the completion to fit within the limit."
        )
    return None


def _native_error(problem: BadRequest) -> Response:
    if isinstance(problem, TooLong) and problem.stream:
        # SGLang finds this after it has answered 200, and says so in the stream.
        return Response(native_error_event(str(problem)) + DONE, media_type="text/event-stream")
    return json_response({"error": {"message": str(problem)}}, status=400)


def _openai_bad_request(problem: BadRequest) -> Response:
    return json_response(openai_error(str(problem), "BadRequestError", 400), status=400)
