"""One small HTTP request to a server, and its answer or what came instead of one: bounded in every direction.

No redirect is followed (the key would go with it) and no proxy is used (the load goes to the server directly, and what
is asked of it must go the same way). The whole exchange has one deadline, and an answer has a largest size.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pytest_moeperf.foreign import DEEPEST_JSON, deeper_than
from pytest_moeperf.outgoing import printable_line, told
from pytest_moeperf.outgoing.key import ApiKey

LARGEST_ANSWER_BYTES = 16 * 2**20
"""/server_info of 64 ranks is 1 MB, /metrics of as many 5 MB."""
_PIECE_BYTES = 256 * 1024
_NOT_THERE = frozenset({404, 405, 501})
_SHOWN = 120

REFUSED = "refused"
"""Nobody listens there."""
NAME = "name"
"""Its host name is not known."""
CERTIFICATE = "certificate"
TLS = "tls"
LATE = "late"
LOST = "lost"
"""The connection ended, or can't be made, for another reason."""
BROKEN = "broken"
"""What came is no HTTP answer, or not what was asked for."""
LARGE = "large"
REDIRECT = "redirect"
KEY = "key"
"""401 or 403."""
ABSENT = "absent"
"""The server has no such endpoint."""
STATUS = "status"
"""Any other status than 200."""
URL = "url"
"""The question can't be asked: an address or a key that HTTP does not carry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Either ``text`` (and ``data``, where JSON was asked for), or ``problem`` and its ``cause``."""

    path: str
    status: int | None = None
    """None: no answer came."""
    text: str = ""
    data: Any = None
    cause: str = ""
    """One of this module's constants; empty: the answer is good."""
    problem: str = ""
    """``/server_info: nothing came within 10 s``: one line for people; empty: the answer is good."""

    @property
    def good(self) -> bool:
        return not self.cause

    @property
    def absent(self) -> bool:
        """The server answers, and has no such endpoint."""
        return self.cause == ABSENT

    def refused(self, cause: str, why: str) -> Answer:
        """The same answer, which is none."""
        return replace(self, data=None, cause=cause, problem=f"{self.path}: {why}")

    def as_object(self) -> Answer:
        """With ``data``, if the text is a JSON object that can be worked with."""
        if not self.good:
            return self
        import msgspec

        # Half surrogates, NaN, what is cut short, what is nested deeply.
        try:
            data = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return self.refused(BROKEN, f"the answer is no JSON that can be read: {str(error)[:_SHOWN]}")
        if not isinstance(data, dict):
            return self.refused(BROKEN, f"the answer is a JSON {type(data).__name__}, not an object")
        if deeper_than(data, DEEPEST_JSON):
            return self.refused(BROKEN, f"the answer is nested more than {DEEPEST_JSON} levels deep")
        return replace(self, data=data)


def ask(
    url: str,
    path: str = "",
    *,
    body: bytes | None = None,
    api_key: ApiKey | None = None,
    timeout_s: float,
    largest_bytes: int = LARGEST_ANSWER_BYTES,
) -> Answer:
    """GET ``url`` + ``path``, or POST ``body`` (JSON) to it. Never raises for what a server does.

    :param timeout_s: from the connection to the last byte; looking its name up is the system's own time.
    """
    nothing = Answer(path=path or url)
    deadline_s = time.monotonic() + timeout_s
    headers = {"Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if api_key:
        headers["Authorization"] = f"Bearer {api_key.reveal()}"
    try:
        parts = urlsplit(url)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[parts.scheme]
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    except (KeyError, ValueError, http.client.InvalidURL):
        return nothing.refused(URL, f"{_printable(url)} is no http(s) address")
    connection.response_class = _response_until(deadline_s)
    try:
        target = f"{parts.path.rstrip('/')}{path}" or "/"
        connection.request("GET" if body is None else "POST", target, body=body, headers=headers)
        with connection.getresponse() as response:
            return _read(response, nothing, largest_bytes)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return nothing.refused(*_cause(error, host=parts.hostname, timeout_s=timeout_s))
    finally:
        connection.close()


def _cause(error: Exception, *, host: str | None, timeout_s: float) -> tuple[str, str]:
    match error:
        case TimeoutError():
            found = LATE, f"no whole answer came within {timeout_s:g} s"
        case http.client.RemoteDisconnected():
            found = BROKEN, "the connection was closed without an answer"
        case ConnectionRefusedError():
            found = REFUSED, "connection refused"
        case socket.gaierror():
            found = NAME, f"the host name {host!r} is not known"
        case ssl.SSLCertVerificationError():
            found = CERTIFICATE, f"its TLS certificate is not trusted: {error.verify_message}"
        case ssl.SSLError():
            found = TLS, f"no TLS connection: {error.reason or error}"
        case http.client.HTTPException():
            found = BROKEN, f"no HTTP answer: {type(error).__name__} {_printable(str(error))}".rstrip()
        case OSError():
            found = LOST, f"the connection failed: {error.strerror or error}"
        case _:  # http.client's, for header values that HTTP has no bytes for
            found = URL, "the address or the API key holds characters that HTTP can't carry"
    return found


def _read(response: http.client.HTTPResponse, answer: Answer, largest_bytes: int) -> Answer:
    answer = replace(answer, status=response.status)
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > largest_bytes:
            return answer.refused(LARGE, f"the answer is larger than {largest_bytes / 2**20:g} MiB")
    if response.length:
        return answer.refused(BROKEN, f"the answer ended {response.length} bytes before its Content-Length")
    answer = replace(answer, text=b"".join(pieces).decode("utf-8", "replace"))
    where = _printable(response.headers.get("Location", ""))
    return answer if response.status == 200 else answer.refused(*_status(response.status, answer.text, where))


def _status(status: int, text: str, where: str) -> tuple[str, str]:
    if 300 <= status < 400:
        return REDIRECT, f"it redirects ({status}) to {where or 'nowhere'}; redirects are not followed"
    if status in _NOT_THERE:
        return ABSENT, f"there is no such endpoint ({status})"
    if status in (401, 403):
        return KEY, f"the API key is refused, or one is needed ({status})"
    said = _printable(text)
    return STATUS, f"status {status}" + (f": {said}" if said else "")


def _printable(text: str) -> str:
    """The beginning of what a server says, on one line and without control characters."""
    return told(printable_line(text[: 4 * _SHOWN]))[:_SHOWN]


class _Reader(io.RawIOBase):
    """A socket's bytes until a deadline, however slowly they come."""

    def __init__(self, sock: socket.socket, kept: io.BufferedIOBase, deadline_s: float) -> None:
        self._sock = sock
        self._kept = kept
        """http.client's own reader: the socket stays open as long as it does."""
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        self._kept.close()
        super().close()


def _response_until(deadline_s: float) -> type[http.client.HTTPResponse]:
    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
            super().__init__(sock, *given, **named)
            self.fp: Any = io.BufferedReader(_Reader(sock, self.fp, deadline_s))

    return Response
