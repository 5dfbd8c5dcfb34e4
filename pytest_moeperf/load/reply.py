"""One response from its first byte to its record: each event gets the stamp of the read that completed it."""

from __future__ import annotations

from array import array

from pytest_moeperf.load.events import DONE, InBandError, PayloadProblem, token_stream
from pytest_moeperf.load.http1 import HttpProblem, ResponseParser
from pytest_moeperf.load.sse import SseParser, SseProblem
from pytest_moeperf.model.records import RequestRecord

_SNIPPET_BYTES = 300


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

    def feed(self, stamp_ns: int, data: bytes) -> None:
        if self.error is not None and self.error.startswith("protocol"):
            return
        try:
            body = self.http.feed(data)
            if self._is_stream is None and self.http.status is not None:
                self._check_head()
            if body or self.http.complete:
                self._read_body(stamp_ns, body)
        except (HttpProblem, SseProblem, PayloadProblem) as error:
            self._fail(f"protocol: {error}")

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
