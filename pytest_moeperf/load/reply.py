"""One response from its first byte to its record: each event gets the stamp of the read that completed it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pytest_moeperf.load.events import DONE, InBandError, PayloadProblem, token_stream
from pytest_moeperf.load.http1 import HttpProblem, ResponseParser
from pytest_moeperf.load.sse import SseParser, SseProblem
from pytest_moeperf.model.records import RequestRecord

_SNIPPET_BYTES = 300
_LF, _CR = b"\n\r"
_AROUND_PAYLOAD = len(b"data: \n\n")


class Reply:
    """Feed it each read with its stamp, in order; when the exchange is over, ask it for the record."""

    def __init__(self, protocol: str, *, keep_output: bool = False) -> None:
        self.http = ResponseParser()
        self.error: str | None = None
        """``kind: detail`` of the first thing that went wrong."""
        self.event_ns = array("q")
        self.event_tokens = array("i")
        self.coalesced_reads = 0
        self.closed = False
        """The server closed the connection."""
        self._sse = SseParser()
        self._tokens = token_stream(protocol, keep_output=keep_output)
        self._keep_output = keep_output
        self._done_seen = False
        self._end_ns: int | None = None
        self._is_stream: bool | None = None
        self._snippet = b""
        self._at_boundary = False
        """Neither parser is inside of anything: what comes is a new chunk and a new event."""

    @property
    def complete(self) -> bool:
        """The response has ended, as HTTP sees it."""
        return self.http.complete

    @property
    def streams_in_chunks(self) -> bool:
        """The head is read and promises what nearly every response is: a chunked event stream."""
        return self._is_stream is True and self.http.chunked and "trailer" not in self.http.headers and not self.error

    @property
    def broken(self) -> bool:
        """Nothing that still comes can be understood, or matters: the connection is of no more use."""
        return self.error is not None and (self._is_stream is not True or self.error.startswith("protocol"))

    def feed_all(self, stamps_ns: Sequence[int], reads: Sequence[bytes]) -> None:
        """Reads in order; an empty one is the end of the connection."""
        taken = 0
        tried = False
        while taken < len(reads):
            if self._at_boundary and not tried:
                tried = True
                taken += self._feed_ordinary(stamps_ns[taken:], reads[taken:])
            if reads[taken]:
                self.feed(stamps_ns[taken], reads[taken])
            else:
                self.eof(stamps_ns[taken])
            taken += 1

    def _feed_ordinary(self, stamps_ns: Sequence[int], reads: Sequence[bytes]) -> int:
        """The short way for the bulk of a stream: as many reads as hold one event each that only counts tokens, and
        never the last of them. The number that was taken."""
        payloads: list[bytes] = []
        for data in reads:
            payload = _only_payload(data)
            if payload is None or payload == DONE:
                break
            payloads.append(payload)
        del payloads[-1:]  # often the one with the finish reason
        sound = self.error is None and not self._done_seen
        news = self._tokens.feed_ordinary(payloads) if payloads and sound else None
        if news is None:
            return 0
        self.http.body_bytes += sum(map(len, payloads)) + len(payloads) * _AROUND_PAYLOAD
        if 0 in news:
            stamps_ns = [stamp_ns for stamp_ns, new in zip(stamps_ns, news, strict=False) if new]
            news = [new for new in news if new]
        self.event_ns.extend(stamps_ns[: len(news)])
        self.event_tokens.extend(news)
        return len(payloads)

    def feed(self, stamp_ns: int, data: bytes) -> None:
        """One read, and when it arrived."""
        try:
            payload = _only_payload(data) if self._at_boundary else None
            if payload is not None:
                self.http.body_bytes += len(payload) + _AROUND_PAYLOAD
                self._read_payload(stamp_ns, payload)
            elif self.error is None or not self.error.startswith("protocol"):
                self._parse(stamp_ns, data)
        except (HttpProblem, SseProblem, PayloadProblem) as error:
            self._at_boundary = False
            self._fail(f"protocol: {error}")

    def _parse(self, stamp_ns: int, data: bytes) -> None:
        self._at_boundary = False
        body = self.http.feed(data)
        if self._is_stream is None and self.http.status is not None:
            self._check_head()
        if body or self.http.complete:
            self._read_body(stamp_ns, body)
        self._at_boundary = bool(self._is_stream) and self.http.between_chunks and self._sse.between_events

    def eof(self, stamp_ns: int) -> None:
        """The server closed the connection."""
        self.closed = True
        if self.http.complete:
            return
        try:
            self.http.eof()
        except HttpProblem as error:
            self._fail(f"connection: {error}{self._progress()}")
            return
        self.feed(stamp_ns, b"")

    def fail(self, kind: str, detail: str) -> None:
        """Something happened to the exchange from outside: a lost connection, a time-out."""
        self._fail(f"{kind}: {detail}{self._progress()}")

    def record(
        self,
        *,
        index: int,
        slot: int,
        send_ns: int,
        scheduled_ns: int | None,
        requested_tokens: int,
        prompt_len: int,
    ) -> RequestRecord:
        tokens = self._tokens
        tokens.settle(self.event_tokens)
        return RequestRecord(
            index=index,
            slot=slot,
            send_ns=send_ns,
            scheduled_ns=scheduled_ns,
            event_ns=self.event_ns,
            event_tokens=self.event_tokens,
            end_ns=self._end_ns,
            requested_tokens=requested_tokens,
            prompt_len=prompt_len,
            prompt_tokens=tokens.prompt_tokens,
            completion_tokens=tokens.completion_tokens,
            cached_tokens=tokens.cached_tokens,
            finish_reason=tokens.finish_reason,
            status=self.http.status,
            done=self._done_seen and self.http.complete,
            error=self.error,
            retractions=tokens.retractions,
            verify_steps=tokens.verify_steps,
            assumed_tokens=tokens.assumed_tokens,
            output_ids=tokens.output_ids,
            output_text=tokens.output_text,
        )

    def _check_head(self) -> None:
        headers = self.http.headers
        content_type = headers.get("content-type", "")
        encoding = headers.get("content-encoding", "identity")
        self._is_stream = self.http.status == 200 and content_type.lower().startswith("text/event-stream")
        if self._is_stream and encoding.lower() != "identity":
            self._is_stream = False
            self._fail(f"protocol: the stream is encoded as {encoding!r}, which was not asked for")

    def _read_body(self, stamp_ns: int, body: bytes) -> None:
        if self._is_stream:
            before = len(self.event_ns)
            for payload in self._sse.feed(body):
                self._read_payload(stamp_ns, payload)
            self.coalesced_reads += len(self.event_ns) - before > 1
        elif len(self._snippet) < _SNIPPET_BYTES:
            self._snippet += body[:_SNIPPET_BYTES]
            if len(self._snippet) >= _SNIPPET_BYTES:
                self._fail(self._refusal())
        if self.http.complete:
            self._read_end(stamp_ns)

    def _read_payload(self, stamp_ns: int, payload: bytes) -> None:
        if self._done_seen:
            raise PayloadProblem(f"an event after [DONE]: {payload[:120]!r}")
        if payload == DONE:
            self._done_seen = True
            return
        try:
            new = self._tokens.feed(payload)
        except InBandError as error:
            self._fail(f"in_band_error: {error}{self._progress()}")
            return
        if new:
            self.event_ns.append(stamp_ns)
            self.event_tokens.append(new)

    def _read_end(self, stamp_ns: int) -> None:
        self._end_ns = stamp_ns
        if not self._is_stream:
            self._fail(self._refusal())
            return
        for payload in self._sse.close():
            self._read_payload(stamp_ns, payload)
        if not self._done_seen:
            self._fail(f"protocol: the stream ended without [DONE]{self._progress()}")

    def _refusal(self) -> str:
        status, headers = self.http.status, self.http.headers
        body = f"; it says {self._snippet[:_SNIPPET_BYTES]!r}" if self._snippet else "; its body is empty"
        if status != 200:
            location = f" to {headers['location']!r}" if "location" in headers else ""
            return f"http: status {status} {self.http.reason}{location}{body}"
        return f"protocol: content type {headers.get('content-type')!r} instead of 'text/event-stream'{body}"

    def _progress(self) -> str:
        return f" (after {len(self.event_ns)} events, {sum(self.event_tokens)} tokens)" if self.event_ns else ""

    def _fail(self, error: str) -> None:
        if self.error is None:
            self.error = error


def _only_payload(data: bytes) -> bytes | None:
    """The short way for how nearly every read looks: one whole chunk that is one whole ``data`` line. Given a boundary
    before it, this is what the two parsers would find (the tests hold it against them), at a third of the cost."""
    length = len(data)
    head = _heads.get(length)
    if head is None:
        digits = next((digits for digits in range(1, 9) if len(f"{length - digits - 4:x}") == digits), 0)
        if not digits:  # 21, 262, 4103 bytes: one chunk is never that long
            return None
        head = _heads[length] = b"%x\r\ndata: " % max(0, length - digits - 4)
    payload = data[len(head) : -4]
    if data[: len(head)] != head or data[-4:] != b"\n\n\r\n" or _LF in payload or _CR in payload:
        return None
    return payload


_heads: dict[int, bytes] = {}
"""How such a read begins, by its length; at most 64 Ki entries, since a read has no more bytes."""
