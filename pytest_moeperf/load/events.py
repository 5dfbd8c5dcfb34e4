"""What the payloads of one response say: tokens, usage, finish reason, error; in SGLang's protocol and OpenAI's two."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from pytest_moeperf.load.tails import LONG_BYTES, cut, tail_of

SGLANG = "sglang"
OPENAI_COMPLETIONS = "openai-completions"
OPENAI_CHAT = "openai-chat"
PROTOCOLS = (SGLANG, OPENAI_COMPLETIONS, OPENAI_CHAT)

DONE = b"[DONE]"


class PayloadProblem(ValueError):
    """A payload that the protocol doesn't have."""


class InBandError(Exception):
    """The server reported a failure inside a stream that had begun with status 200."""


class TokenStream(Protocol):
    """The running account of one response."""

    completion_tokens: int | None
    """As the server counted."""
    prompt_tokens: int | None
    cached_tokens: int | None
    finish_reason: str | None
    retractions: int | None
    verify_steps: int | None
    """Steps that verified drafted tokens, where the server speculates and says so."""
    assumed_tokens: int
    """Tokens of which nothing told the event that brought them; known once all is settled."""

    def feed(self, payload: bytes) -> int:
        """New tokens in this payload; 0 for one that carries none (role, usage, empty text).

        :raises InBandError: if it is an error or an abort.
        :raises PayloadProblem: if it is not of this protocol.
        """
        ...

    def feed_ordinary(self, payloads: Sequence[bytes]) -> list[int] | None:
        """The same for many payloads at once, if they only count tokens. None: they do more, and nothing was taken."""
        ...

    def settle(self, event_tokens: array[int]) -> None:
        """Once all is known: correct the tokens of each event where the stream itself didn't say them."""
        ...

    @property
    def output_ids(self) -> tuple[int, ...] | None: ...

    @property
    def output_text(self) -> str | None: ...


def token_stream(protocol: str, *, keep_output: bool) -> TokenStream:
    return SglangStream(keep_output=keep_output) if protocol == SGLANG else OpenAiStream(keep_output=keep_output)


class _MetaInfo(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    num_retractions: int | None = None
    spec_verify_ct: int | None = None
    finish_reason: Any = None


class _Generated(msgspec.Struct):
    meta_info: _MetaInfo | None = None
    error: Any = None


class _GeneratedWithOutput(_Generated):
    text: str | None = None
    output_ids: list[int] | None = None


_decode_generated = msgspec.json.Decoder(_Generated).decode
_decode_generated_with_output = msgspec.json.Decoder(_GeneratedWithOutput).decode


def _decode_counts(payload: bytes) -> _Generated:
    """Of a long event only the tail, which says what decoding all of it would say."""
    if len(payload) >= LONG_BYTES:
        tail = tail_of(payload, 0, len(payload))
        if tail is not None:
            try:
                return _decode_generated(tail)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
    return _decode_generated(payload)


def cut_read(data: bytes) -> bytes:
    """A read of a ``/generate`` stream without the answers that its long events repeat; it counts the same."""
    return cut(data, is_whole=_is_event)


def _is_event(tail: bytes) -> bool:
    try:
        _decode_generated(tail)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


T = TypeVar("T")


def _decode(decode: Callable[[bytes], T], payload: bytes) -> T:
    """
    :raises PayloadProblem: if it is not of this protocol.
    """
    try:
        return decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Half of a character that two tokens share is no JSON for msgspec, in a text that nobody reads at that.
        mended = _SURROGATE.sub(rb"\\ufffd", payload)
        if mended == payload:
            raise _not_an_event(payload, error) from None
    try:
        return decode(mended)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_an_event(payload, error) from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class SglangStream:
    """``/generate``: ``meta_info`` is cumulative in each event; text and ids are cumulative or not (a server flag)."""

    def __init__(self, *, keep_output: bool) -> None:
        self.completion_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.retractions: int | None = None
        self.verify_steps: int | None = None
        self.assumed_tokens = 0
        self._keep_output = keep_output
        self._ids: list[int] = []
        self._text = ""

    def feed(self, payload: bytes) -> int:
        event = _decode(_decode_generated_with_output if self._keep_output else _decode_counts, payload)
        if event.error is not None:
            raise InBandError(_error_text(event.error))
        meta = event.meta_info
        if meta is None:
            raise PayloadProblem(f"an event without meta_info: {payload[:120]!r}")
        if meta.prompt_tokens is not None:
            self.prompt_tokens = meta.prompt_tokens
        if meta.cached_tokens is not None:
            self.cached_tokens = meta.cached_tokens
        if meta.num_retractions is not None:
            self.retractions = meta.num_retractions
        if meta.spec_verify_ct is not None:
            self.verify_steps = meta.spec_verify_ct
        if meta.finish_reason is not None:
            self.finish_reason = _finish_text(meta.finish_reason)
            if self.finish_reason.startswith("abort"):
                raise InBandError(self.finish_reason)
        new = self._count(meta.completion_tokens)
        if isinstance(event, _GeneratedWithOutput):
            self._keep(event, new)
        return new

    def feed_ordinary(self, payloads: Sequence[bytes]) -> list[int] | None:
        if self._keep_output:
            return None
        # Answers only grow.
        decode = _decode_counts if len(payloads[-1]) >= LONG_BYTES else _decode_generated
        try:
            metas = [event.meta_info for event in map(decode, payloads) if event.error is None]
            counts = [meta.completion_tokens for meta in metas if meta.finish_reason is None]  # type: ignore[union-attr]
            news = [later - earlier for earlier, later in itertools.pairwise([self.completion_tokens or 0, *counts])]  # type: ignore[operator]
        except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError):
            return None
        if len(news) != len(payloads) or min(news) < 0:
            return None
        self.completion_tokens = counts[-1]
        # What an event says of the prompt stands until a later one says it again.
        self.prompt_tokens = _last(self.prompt_tokens, (meta.prompt_tokens for meta in reversed(metas)))  # type: ignore[union-attr]
        self.cached_tokens = _last(self.cached_tokens, (meta.cached_tokens for meta in reversed(metas)))  # type: ignore[union-attr]
        self.retractions = _last(self.retractions, (meta.num_retractions for meta in reversed(metas)))  # type: ignore[union-attr]
        return news

    def settle(self, event_tokens: array[int]) -> None:
        """Every event said its tokens."""

    @property
    def output_ids(self) -> tuple[int, ...] | None:
        return tuple(self._ids) if self._keep_output else None

    @property
    def output_text(self) -> str | None:
        return self._text if self._keep_output else None

    def _count(self, cumulative: int | None) -> int:
        if cumulative is None:
            return 0
        new = cumulative - (self.completion_tokens or 0)
        if new < 0:
            raise PayloadProblem(f"completion_tokens fell from {self.completion_tokens} to {cumulative}")
        self.completion_tokens = cumulative
        return new

    def _keep(self, event: _GeneratedWithOutput, new: int) -> None:
        ids = event.output_ids
        total = self.completion_tokens or 0
        # The number of ids tells the two kinds of stream apart; without ids only the text itself can.
        cumulative = len(ids) == total if ids else (event.text or "").startswith(self._text)
        if ids:
            self._ids = ids if cumulative else self._ids + ids
        if event.text and (new or cumulative):
            self._text = event.text if cumulative else self._text + event.text


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    matched_stop: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class OpenAiStream:
    """``/v1/completions`` and ``/v1/chat/completions``. Tokens come from the ``usage`` of each chunk if the first one
    with tokens has it (continuous usage). Otherwise a chunk counts as one token until the last usage tells how many
    there were; if that is another number, the length of each chunk's text says how they are spread."""

    def __init__(self, *, keep_output: bool) -> None:
        self.completion_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.retractions: int | None = None
        self.verify_steps: int | None = None
        self.assumed_tokens = 0
        self._keep_output = keep_output
        self._text: list[str] = []
        self._continuous: bool | None = None
        """None: no token has come yet."""
        self._lengths = array("i")
        """Of the text of each event."""

    def feed(self, payload: bytes) -> int:
        chunk = _decode(_decode_chunk, payload)
        if chunk.error is not None:
            raise InBandError(_error_text(chunk.error))
        if chunk.choices is None and chunk.usage is None:
            raise PayloadProblem(f"a chunk without choices: {payload[:120]!r}")
        length = 0
        for choice in chunk.choices or ():
            length += self._read_choice(choice)
        counted = self._read_usage(chunk.usage) if chunk.usage is not None else None
        if not length and not counted and chunk.choices and not self._continuous:
            length = _unknown_text(payload)
        if self._continuous is None and (length or counted):
            # Usage of the last chunk alone, or zeros up to there, say nothing of the chunks before.
            self._continuous = bool(counted and chunk.choices)
        elif self._continuous and length and counted is None:
            self._continuous = False
        new = (counted or 0) if self._continuous else int(length > 0)
        if new:
            self._lengths.append(length)
        return new

    def feed_ordinary(self, payloads: Sequence[bytes]) -> list[int] | None:  # noqa: ARG002
        """No short way here."""
        return None

    def settle(self, event_tokens: array[int]) -> None:
        """Without continuous usage: each event gets its share of the tokens by the length of its text, at least one."""
        total, events = self.completion_tokens, len(event_tokens)
        if self._continuous or total is None or not events or total == events:
            return
        self.assumed_tokens = abs(total - events)
        if total < events:
            for position in range(events):
                event_tokens[position] = int(position < total)
            return
        length, so_far, given = max(1, sum(self._lengths)), 0, 0
        for position, own in enumerate(self._lengths):
            so_far += own
            # Each later event needs a token too.
            upto = min(total - (events - 1 - position), max(given + 1, round(total * so_far / length)))
            event_tokens[position] = upto - given
            given = upto

    @property
    def output_ids(self) -> tuple[int, ...] | None:
        return None

    @property
    def output_text(self) -> str | None:
        return "".join(self._text) if self._keep_output else None

    def _read_choice(self, choice: _Choice) -> int:
        """The length of its text; a tool call without any counts as one character."""
        if choice.finish_reason is not None:
            matched = choice.matched_stop
            self.finish_reason = (
                f"{choice.finish_reason} ({matched})" if isinstance(matched, str) else choice.finish_reason
            )
            if choice.finish_reason == "abort":
                raise InBandError("abort")
        delta = choice.delta
        text = choice.text or ""
        has_tool_call = False
        if delta is not None:
            text += (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")
            has_tool_call = bool(delta.tool_calls)
        if self._keep_output and text:
            self._text.append(text)
        return len(text) or int(has_tool_call)

    def _read_usage(self, usage: _Usage) -> int | None:
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            self.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens is None:
            return None
        new = usage.completion_tokens - (self.completion_tokens or 0)
        if new < 0:
            raise PayloadProblem(f"completion_tokens fell from {self.completion_tokens} to {usage.completion_tokens}")
        self.completion_tokens = usage.completion_tokens
        return new


_NOT_TEXT = ("role", "id", "name", "object", "type", "index", "matched_stop")
_NOT_TEXT_ENDS = ("finish_reason", "stop_reason")


def _unknown_text(payload: bytes) -> int:
    """The length of the text that stands where no protocol has any: ``thinking`` of somebody's delta."""
    length = 0
    for choice in msgspec.json.decode(_SURROGATE.sub(rb"\\ufffd", payload))["choices"]:
        for part in (choice, choice.get("delta")):
            if isinstance(part, dict):
                length += sum(
                    len(value)
                    for name, value in part.items()
                    if isinstance(value, str) and name not in _NOT_TEXT and not name.endswith(_NOT_TEXT_ENDS)
                )
    return length


def _last(before: int | None, latest_first: Iterable[int | None]) -> int | None:
    return next((value for value in latest_first if value is not None), before)


def _not_an_event(payload: bytes, error: Exception) -> PayloadProblem:
    return PayloadProblem(f"an event that is not of this protocol ({error}): {payload[:120]!r}")


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        message = error.get("message") or error.get("msg")
        kind = error.get("type") or error.get("code")
        if message:
            return f"{message} ({kind})" if kind else str(message)
    return str(error)[:500]


def _finish_text(reason: Any) -> str:
    """``length``; with what the server added where that says more: ``stop (NaN happened)``, ``abort (no memory)``."""
    if not isinstance(reason, dict):
        return str(reason)
    kind = str(reason.get("type", "unknown"))
    detail = reason.get("message") or reason.get("matched")
    return f"{kind} ({detail})" if detail is not None and kind != "length" else kind
