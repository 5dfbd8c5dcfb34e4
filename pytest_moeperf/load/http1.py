"""The part of HTTP/1.1 that a response needs: status, headers, a body that is chunked, counted or ended by close."""

from __future__ import annotations

import re
from typing import Literal

MAX_HEAD_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: ([^\r\n]*))?")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?")
_MAX_CHUNK_LINE = 256


class HttpProblem(ValueError):
    """Bytes that are not an HTTP/1.1 response, or one that ended too early."""


_State = Literal["head", "chunk size", "chunk data", "chunk end", "trailer", "counted", "until close", "complete"]


class ResponseParser:
    """Feed it the bytes of one response, however cut; it returns the body bytes that each feed completed."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.reason = ""
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated ones joined with a comma."""
        self.keep_alive = True
        self.chunked = False
        self.expected_bytes: int | None = None
        """Content-Length, where that is what counts."""
        self.body_bytes = 0
        self._state: _State = "head"
        self._buffer = b""
        self._remaining = 0

    @property
    def complete(self) -> bool:
        return self._state == "complete"

    @property
    def between_chunks(self) -> bool:
        """The next byte is the first of a chunk's size."""
        return self._state == "chunk size" and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``.

        :raises HttpProblem: for malformed bytes, or bytes after the end of the response.
        """
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        parts: list[bytes] = []
        while data:
            if self._state == "complete":
                raise HttpProblem(f"{len(data)} bytes follow the end of the response, beginning {data[:40]!r}")
            rest = self._step(data, parts)
            if rest is None:
                self._buffer = data
                break
            data = rest
        body = b"".join(parts)
        self.body_bytes += len(body)
        return body

    def eof(self) -> None:
        """The server closed its side.

        :raises HttpProblem: if the response was not complete.
        """
        if self._state == "until close":
            self._state = "complete"
        if self._state == "complete":
            return
        if self._state == "head":
            raise HttpProblem("closed inside the headers" if self._buffer else "closed before any answer")
        if self.expected_bytes is not None:
            raise HttpProblem(f"closed after {self.body_bytes} of {self.expected_bytes} body bytes")
        raise HttpProblem(f"closed inside a chunked body, after {self.body_bytes} bytes")

    def _step(self, data: bytes, parts: list[bytes]) -> bytes | None:
        """Consume one element; the bytes behind it, or None if it is not whole yet."""
        state = self._state
        if state == "head":
            return self._read_head(data)
        if state == "chunk size":
            return self._read_chunk_size(data)
        if state in {"chunk data", "counted"}:
            parts.append(data[: self._remaining])
            rest = data[self._remaining :]
            self._remaining -= len(parts[-1])
            if not self._remaining:
                self._state = "chunk end" if state == "chunk data" else "complete"
            return rest
        if state == "chunk end":
            return self._read_chunk_end(data)
        if state == "trailer":
            return self._read_trailer(data)
        parts.append(data)
        return b""

    def _read_head(self, data: bytes) -> bytes | None:
        if not data.startswith(b"HTTP/1."[: len(data)]):
            raise HttpProblem(f"not an HTTP/1.1 answer: it begins {data[:40]!r}")
        head, separator, rest = data.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise HttpProblem(f"the headers are larger than {MAX_HEAD_BYTES} bytes")
        if not separator:
            return None
        status_line, *lines = head.split(b"\r\n")
        match = _STATUS_LINE.fullmatch(status_line)
        if match is None:
            raise HttpProblem(f"not a status line: {status_line[:80]!r}")
        status = int(match[2])
        if 100 <= status < 200:
            return rest
        self.status, self.reason = status, (match[3] or b"").decode("latin-1")
        self.headers = _headers(lines)
        connection = self.headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (match[1] == b"1" or "keep-alive" in connection)
        self._choose_body(status)
        return rest

    def _choose_body(self, status: int) -> None:
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.chunked = True
            self._state = "chunk size"
        elif status in {204, 304}:
            self._state = "complete"
        elif length is not None:
            if not length.isascii() or not length.isdigit():
                raise HttpProblem(f"not a Content-Length: {length!r}")
            self.expected_bytes = self._remaining = int(length)
            self._state = "counted" if self._remaining else "complete"
        else:
            self._state = "until close"
            self.keep_alive = False

    def _read_chunk_size(self, data: bytes) -> bytes | None:
        end = data.find(b"\r\n", 0, _MAX_CHUNK_LINE)
        if end < 0:
            if len(data) >= _MAX_CHUNK_LINE:
                raise HttpProblem(f"not a chunk size: {data[:40]!r}")
            return None
        match = _CHUNK_SIZE.fullmatch(data, 0, end)
        if match is None:
            raise HttpProblem(f"not a chunk size: {data[:end]!r}")
        self._remaining = int(match[1], 16)
        self._state = "chunk data" if self._remaining else "trailer"
        return data[end + 2 :]

    def _read_chunk_end(self, data: bytes) -> bytes | None:
        if not data.startswith(b"\r\n"[: len(data)]):
            raise HttpProblem(f"a chunk is longer than its size says: {data[:40]!r}")
        if len(data) < 2:
            return None
        self._state = "chunk size"
        return data[2:]

    def _read_trailer(self, data: bytes) -> bytes | None:
        line, separator, rest = data.partition(b"\r\n")
        if not separator:
            if len(data) > MAX_HEAD_BYTES:
                raise HttpProblem(f"the trailer is larger than {MAX_HEAD_BYTES} bytes")
            return None
        if not line:
            self._state = "complete"
        return rest


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(b":")
        if not separator or not name or name != name.strip():
            raise HttpProblem(f"not a header line: {line[:80]!r}")
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers
