"""Whatever a server does, the run ends within its time-out, in failed checks or a clear error; nothing is retried."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from load_scripted_server import SSE_HEAD, Connection, Script, chunk, event, good_answer, serving

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.driver import drive
from pytest_moeperf.load.prompts import make_prompts
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import client_checks

WORKLOAD = Workload(concurrency=2, input_len=8, output_len=4, num_prompts=6)
HTML = b"<html><body>Please log in</body></html>"


def load(url: str, workload: Workload = WORKLOAD, *, timeout_s: float = 20.0) -> LoadResult:
    prompts = make_prompts(workload, run_key="test")
    return drive(url=url, workload=workload, prompts=prompts, timeout_s=timeout_s, workers=0)


def failed_checks(result: LoadResult, workload: Workload = WORKLOAD) -> dict[str, str]:
    checks = client_checks(result, compute_metrics(result, workload), workload, min_window_s=0.0, min_steps=1)
    return {check.name: check.message for check in checks if check.status == "fail"}


def always(*pieces: bytes, then: Callable[[Connection], None] = Connection.reset) -> Script:
    def script(connection: Connection) -> None:
        while connection.read_request() is not None:
            connection.send(*pieces)
            then(connection)

    return script


def hold(connection: Connection) -> None:
    connection.server.stopping.wait(30)


def close(connection: Connection) -> None:
    connection.sock.close()


def keep(connection: Connection) -> None:
    """Wait for the next request."""


HUGE = b"data: " + b"x" * (16 << 20) + b"\n\n"

CASES: dict[str, tuple[Script, str, str]] = {
    "closes mid-stream": (
        always(SSE_HEAD, chunk(event(1)), chunk(event(2)), then=close),
        "no_failed_requests",
        "connection: closed inside a chunked body, after",
    ),
    "resets mid-stream": (always(SSE_HEAD, chunk(event(1))), "no_failed_requests", "connection: Connection reset by peer"),
    "closes without an answer": (always(then=close), "no_failed_requests", "connection: closed before any answer"),
    "16 MiB in one event": (
        always(SSE_HEAD, chunk(HUGE), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n", then=keep),
        "streams_complete",
        "protocol: one event is larger than 8388608 bytes",
    ),
    "HTML with 200": (
        always(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(HTML), HTML, then=keep),
        "streams_complete",
        "protocol: content type 'text/html' instead of 'text/event-stream'; it says b'<html><body>Please log in",
    ),
    "HTML without end": (
        always(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", HTML * 20, then=hold),
        "streams_complete",
        "protocol: content type 'text/html'",
    ),
    "not HTTP": (always(b"SSH-2.0-OpenSSH_9.6\r\n", then=hold), "streams_complete", "not an HTTP/1.1 answer: it begins b'SSH"),
    "redirect": (
        always(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", then=keep),
        "no_failed_requests",
        "http: status 307 Temporary Redirect to 'http://elsewhere/'; its body is empty",
    ),
    "Content-Length too long": (
        always(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n", event(1), then=close),
        "no_failed_requests",
        "of 999 body bytes",
    ),
    "Content-Length too short": (
        always(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 50\r\n\r\n", event(1), then=keep),
        "streams_complete",
        "protocol: ",
    ),
    "chunk size that is none": (
        always(SSE_HEAD, b"zz\r\nhello\r\n", then=hold),
        "streams_complete",
        "protocol: not a chunk size: b'zz'",
    ),
    "in-band error": (
        always(SSE_HEAD, chunk(event(1)), chunk(b'data: {"error":{"message":"no memory"}}\n\n'), *good_answer()[-2:], then=keep),
        "no_in_band_errors",
        "in_band_error: no memory (after 1 events, 1 tokens)",
    ),
    "no [DONE]": (
        always(*good_answer()[:-2], b"0\r\n\r\n", then=keep),
        "streams_complete",
        "protocol: the stream ended without [DONE] (after 4 events, 4 tokens)",
    ),
    "[DONE] and then more": (
        always(*good_answer()[:-1], chunk(event(4)), b"0\r\n\r\n", then=keep),
        "streams_complete",
        "protocol: an event after [DONE]",
    ),
    "early end": (
        always(SSE_HEAD, chunk(event(1, last=1)), *good_answer()[-2:], then=keep),
        "tokens_as_requested",
        "asked 4, the server counted 1, 1 arrived, finish reason length",
    ),
    "not JSON": (
        always(SSE_HEAD, chunk(b"data: {'text'}\n\n"), *good_answer()[-2:], then=keep),
        "streams_complete",
        "protocol: an event that is not of this protocol",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_named_and_ends_in_time(name: str) -> None:
    script, check, message = CASES[name]
    began = time.monotonic()
    with serving(script) as server:
        failed = failed_checks(load(server.url))
    assert message in failed[check]
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (always(then=hold), "timeout: not finished 0.5 s after the run began, no answer"),
        (
            always(SSE_HEAD, chunk(event(1)), then=hold),
            "timeout: not finished 0.5 s after the run began (after 1 events",
        ),
    ],
    ids=["never sends headers", "stops mid-stream"],
)
def test_silence_ends_with_the_time_out(script: Script, message: str) -> None:
    with serving(script) as server:
        result = load(server.url, timeout_s=0.5)
    assert message in failed_checks(result)["no_failed_requests"]
    assert len(result.records) == 2


def test_a_drip_feed_ends_with_the_time_out() -> None:
    def drip(connection: Connection) -> None:
        connection.read_request()
        for byte in b"".join(good_answer()):
            connection.send(bytes([byte]))
            if connection.server.stopping.wait(0.05):
                return

    with serving(drip) as server:
        result = load(server.url, timeout_s=0.8)
    assert "timeout: not finished 0.8 s after the run began" in failed_checks(result)["no_failed_requests"]


def test_a_503_that_recovers_is_not_retried() -> None:
    def busy_at_first(connection: Connection) -> None:
        if connection.number == 1:
            connection.read_request()
            connection.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 7\r\n\r\nloading")
        connection.serve()

    with serving(busy_at_first) as server:
        result = load(server.url)
        sent = len(server.requests)
    failed = failed_checks(result)
    assert failed["no_failed_requests"] == (
        f"1 of {sent} requests failed; request 0: http: status 503 Service Unavailable; it says b'loading'"
    )
    assert sent == len(result.records) < 6
    assert failed["all_requests_sent"].startswith(f"{sent} of 6 requests were sent")


def test_a_connection_too_many_is_dropped_by_the_server() -> None:
    workload = Workload(concurrency=65, input_len=8, output_len=4, num_prompts=65)

    def only_64(connection: Connection) -> None:
        if connection.number > 64:
            connection.reset()
        else:
            connection.serve()

    with serving(only_64) as server:
        failed = failed_checks(load(server.url, workload), workload)
    assert failed["no_failed_requests"].startswith("1 of 65 requests failed; request 64: connection: ")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(LoadError) as caught:
        load(f"http://127.0.0.1:{port}")
    assert str(caught.value) == (
        f"http://127.0.0.1:{port} took 0 of 2 connections; the next one failed: Connection refused\n"
        "  next: check that the server is up and listens on that address"
    )


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(LoadError, match=r"http://moeperf\.invalid:80 took 0 of 2 connections"):
        load("http://moeperf.invalid")


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://", "http://host:port", "http://h/?q=1"])
def test_not_a_url(url: str) -> None:
    with pytest.raises(LoadError, match="not a server URL"):
        load(url)
