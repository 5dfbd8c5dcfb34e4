"""Every odd answer is a clear refusal, and none hangs, costs memory or takes the key elsewhere."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from pytest_moeperf.engines.control import Control
from pytest_moeperf.outgoing.key import ApiKey

Script = Callable[[socket.socket, bytes], None]


@contextmanager
def serving(script: Script) -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads one request a connection and lets ``script`` answer it."""
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    heads.append(connection.recv(65536))
                    script(connection, heads[-1])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heads
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def saying(*parts: bytes, status: str = "200 OK", headers: bytes = b"") -> Script:
    body = b"".join(parts)
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode() + headers + b"\r\n"
    return lambda connection, _: connection.sendall(head + body)


def raw(data: bytes) -> Script:
    return lambda connection, _: connection.sendall(data)


def for_ever(piece: bytes, pause_s: float) -> Script:
    def script(connection: socket.socket, _: bytes) -> None:
        end_s = time.monotonic() + 10
        while time.monotonic() < end_s:
            connection.sendall(piece)
            time.sleep(pause_s)

    return script


def then(*scripts: Script) -> Script:
    def script(connection: socket.socket, head: bytes) -> None:
        for one in scripts:
            one(connection, head)

    return script


HEAD = b"HTTP/1.1 200 OK\r\n"


def test_a_good_answer_and_what_is_sent() -> None:
    with serving(saying(b'{"a": [1]}')) as (url, heads):
        control = Control(url=f"{url}/base/", api_key=ApiKey("k"))
        answer = control.get_json("/server_info")
        assert (answer.good, answer.data, answer.status, answer.problem) == (True, {"a": [1]}, 200, "")
        assert control.post("/flush_cache?timeout=1").good
    assert heads[0].startswith(b"GET /base/server_info HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in heads[0]
    assert heads[1].startswith(b"POST /base/flush_cache?timeout=1 HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 2\r\n" in heads[1]


@pytest.mark.parametrize(
    ("script", "cause", "problem"),
    [
        (saying(status="404 Not Found"), "absent", "/x: there is no such endpoint (404)"),
        (saying(status="401 Unauthorized"), "key", "/x: the API key is refused, or one is needed (401)"),
        (saying(b"no\x1b[2Jway\r\n", status="503 Busy"), "status", "/x: status 503: noway"),
        (
            saying(status="302 Found", headers=b"Location: http://elsewhere/\r\n"),
            "redirect",
            "/x: it redirects (302) to http://elsewhere/; redirects are not followed",
        ),
        (saying(b"[1]"), "broken", "/x: the answer is a JSON list, not an object"),
        (saying(b"\x1f\x8b\x08", headers=b"Content-Encoding: gzip\r\n"), "broken", "/x: the answer is no JSON that"),
        (raw(HEAD + b"Content-Length: -5\r\n\r\n{"), "broken", "/x: the answer is no JSON that can be read"),
        (raw(HEAD + b"Content-Length: 1e9\r\n\r\n{"), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b'{"a": 1}{"b": 2}'), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b"[" * 2**20), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b"null"), "broken", "/x: the answer is a JSON NoneType, not an object"),
        (saying(b"<html>"), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b'{"a": "\\ud800"}'), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b'{"a": NaN}'), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b'{"a":' * 100_000), "broken", "/x: the answer is no JSON that can be read"),
        (saying(b'{"a":' * 70 + b"1" + b"}" * 70), "broken", "/x: the answer is nested more than 64 levels deep"),
        (raw(HEAD + b"Content-Length: 9\r\n\r\n{}"), "broken", "/x: the answer ended 7 bytes before"),
        (raw(HEAD + b"Content-Length: 1\r\n\r\n{}"), "broken", "/x: the answer is no JSON that can be read"),
        (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "broken", "/x: no HTTP answer: IncompleteRead"),
        (raw(b"SSH-2.0-OpenSSH\r\n"), "broken", "/x: no HTTP answer: BadStatusLine SSH-2.0-OpenSSH"),
        (raw(HEAD + b"A: b\r\n" * 200), "broken", "/x: no HTTP answer: HTTPException got more than 100 headers"),
        (raw(b""), "broken", "/x: the connection was closed without an answer"),
        (
            then(raw(HEAD + b"\r\n"), for_ever(b"x" * 2**20, 0.0)),
            "large",
            "/x: the answer is larger than 16 MiB",
        ),
    ],
)
def test_odd_answers(script: Script, cause: str, problem: str) -> None:
    with serving(script) as (url, heads):
        answer = Control(url=url, api_key=ApiKey("k")).get_json("/x")
    assert answer.cause == cause
    assert answer.problem.startswith(problem)
    assert answer.data is None
    assert answer.absent is (cause == "absent")
    assert len(heads) == 1


@pytest.mark.parametrize(
    "script",
    [
        then(raw(HEAD + b"\r\n"), for_ever(b"x", 0.05)),
        then(raw(HEAD), for_ever(b"A: b\r\n", 0.2)),
        for_ever(b"H", 0.05),
        lambda _connection, _head: time.sleep(2),
    ],
    ids=["body", "headers", "status line", "silent"],
)
def test_a_slow_answer_ends_at_the_deadline(script: Script) -> None:
    with serving(script) as (url, _):
        began_s = time.monotonic()
        answer = Control(url=url).get_json("/x", timeout_s=0.5)
        assert time.monotonic() - began_s < 5
    assert (answer.cause, answer.problem) == ("late", "/x: no whole answer came within 0.5 s")


def test_nobody_there() -> None:
    with serving(raw(b"")) as (url, _):
        pass
    assert Control(url=url).get_json("/x").cause == "refused"
    assert Control(url="http://no-such-host.invalid").get_json("/x").cause in ("name", "lost")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "not a url", "http://127.0.0.1:99999", "http://[::1"])
def test_no_address(url: str) -> None:
    answer = Control(url=url).get_text("/x")
    assert (answer.cause, answer.problem) == ("url", f"/x: {url} is no http(s) address")


def test_a_key_that_no_header_carries() -> None:
    with serving(saying(b"{}")) as (url, _):
        assert Control(url=url, api_key=ApiKey("k\r\nX: y")).get_json("/x").cause == "url"


def test_tls_towards_a_plain_server() -> None:
    with serving(raw(b"HTTP/1.1 400 Bad\r\n\r\n")) as (url, _):
        answer = Control(url=url.replace("http:", "https:")).get_json("/x", timeout_s=5)
    assert answer.cause == "tls"


def test_a_certificate_that_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"

    def refuse(*_given: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPSConnection, "request", refuse)
    answer = Control(url="https://127.0.0.1:1").get_json("/x")
    assert (answer.cause, answer.problem) == (
        "certificate",
        "/x: its TLS certificate is not trusted: self-signed certificate",
    )


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_the_key_goes_nowhere_with_a_redirect(status: str) -> None:
    with serving(saying(b"{}")) as (other, asked):
        moved = saying(status=status, headers=f"Location: {other}/x\r\n".encode())
        with serving(moved) as (url, _):
            control = Control(url=url, api_key=ApiKey("planted-key"))
            answers = control.get_json("/x"), control.post("/x")
    assert [answer.cause for answer in answers] == ["redirect", "redirect"]
    assert asked == []


def test_what_is_quoted_of_an_answer_holds_no_key() -> None:
    with serving(saying(b"you sent Authorization: Bearer planted-key", status="500 Oops")) as (url, _):
        answer = Control(url=url, api_key=ApiKey("planted-key")).get_json("/x")
    assert answer.problem == "/x: status 500: you sent Authorization: Bearer ***"


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(saying(b"{}")) as (url, _):
        assert Control(url=url).get_json("/x").good


def test_the_next_name_is_asked_only_where_the_first_is_not_there() -> None:
    def named(connection: socket.socket, head: bytes) -> None:
        old = head.startswith(b"GET /get_server_info ")
        answer = saying(json.dumps({"old": old}).encode(), status="200 OK" if old else "404 Not Found")
        answer(connection, head)

    with serving(named) as (url, heads):
        assert Control(url=url).server_info().data == {"old": True}
        assert len(heads) == 2
    with serving(saying(status="500 Internal Server Error")) as (url, heads):
        answer = Control(url=url).server_info()
        assert (answer.cause, answer.problem) == ("status", "/server_info: status 500")
        assert len(heads) == 1
