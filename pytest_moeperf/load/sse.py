"""Server-sent events: bytes in, payloads out, the same payloads for every way to cut the bytes."""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""SGLang repeats the whole output in each event: about 1 MB at 100k tokens. Beyond 8 MiB something is wrong."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseProblem(ValueError):
    """A stream that can't be cut into events."""


class SseParser:
    """The ``data`` of each event as bytes, lines joined by a newline. Other fields and comments are skipped.

    As the standard asks: LF, CRLF and CR end a line, one space after the colon is dropped, no data is no event.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._lines: list[bytes] = []
        self._data_bytes = 0
        self._first_line = True
        self._max = max_event_bytes

    @property
    def between_events(self) -> bool:
        """The next byte is the first of a line outside of any event (and not the first of the stream)."""
        return not self._buffer and not self._lines and not self._first_line

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that ``data`` completed.

        :raises SseProblem: for an event above ``max_event_bytes``.
        """
        self._buffer += data
        payloads = self._take_lines(final=False)
        if len(self._buffer) + self._data_bytes > self._max:
            raise SseProblem(f"one event is larger than {self._max} bytes")
        return payloads

    def close(self) -> list[bytes]:
        """The stream has ended. A last ``[DONE]`` counts without its blank line, since nothing can follow it.

        :raises SseProblem: if the stream ended inside an event.
        """
        payloads = self._take_lines(final=True)
        if self._buffer:
            self._line(bytes(self._buffer), payloads)
            self._buffer.clear()
        if self._lines:
            rest = b"\n".join(self._lines)
            if rest != b"[DONE]":
                raise SseProblem(f"the stream ended inside an event: {rest[:80]!r}")
            payloads.append(rest)
            self._lines = []
        return payloads

    def _take_lines(self, *, final: bool) -> list[bytes]:
        payloads: list[bytes] = []
        buffer = self._buffer
        start = 0
        # Two searches for one byte each, as fast as a copy; a pattern would look at each of the 20 kB of an event.
        lf, cr = buffer.find(b"\n", self._scanned), buffer.find(b"\r", self._scanned)
        while lf >= 0 or cr >= 0:
            end = lf if cr < 0 or 0 <= lf < cr else cr
            if end == cr and end + 1 == len(buffer) and not final:
                break  # perhaps the first half of CRLF
            self._line(bytes(buffer[start:end]), payloads)
            start = end + 1 + (end == cr and lf == cr + 1)
            if 0 <= lf < start:
                lf = buffer.find(b"\n", start)
            if 0 <= cr < start:
                cr = buffer.find(b"\r", start)
        del buffer[:start]
        # A trailing CR has to be looked at again together with what follows it.
        self._scanned = len(buffer) - buffer.endswith(b"\r")
        return payloads

    def _line(self, line: bytes, payloads: list[bytes]) -> None:
        if self._first_line:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._first_line = False
        if not line:
            if self._lines:
                payloads.append(b"\n".join(self._lines))
                self._lines = []
                self._data_bytes = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._lines.append(value)
            self._data_bytes += len(value) + 1
