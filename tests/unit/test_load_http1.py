"""HTTP/1.1 responses, however cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.load.http1 import HttpProblem, ResponseParser

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = (
    HEAD + b"Transfer-Encoding: chunked\r\nX: 1\r\nx: 2\r\n\r\n"
    b"6\r\nhello \r\nA;ext=1\r\n0123456789\r\n5\r\n0\r\n\r\n\r\n0\r\nTrailer: yes\r\n\r\n"
)
RESPONSES = {
    "chunked": (CHUNKED, b"hello 01234567890\r\n\r\n"),
    "counted": (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "empty": (HEAD + b"Content-Length: 0\r\n\r\n", b""),
    "until close": (HEAD + b"\r\nhello", b"hello"),
    "after a continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED, b"hello 01234567890\r\n\r\n"),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
}


def parse(pieces: list[bytes]) -> tuple[bytes, ResponseParser]:
    parser = ResponseParser()
    body = b"".join(parser.feed(piece) for piece in pieces)
    parser.eof()
    return body, parser


@pytest.mark.parametrize("name", RESPONSES)
def test_every_single_cut_and_byte_by_byte(name: str) -> None:
    data, expected = RESPONSES[name]
    for cut in range(len(data) + 1):
        body, parser = parse([data[:cut], data[cut:]])
        assert body == expected, cut
        assert parser.complete
        assert parser.status == 200
    assert parse([data[i : i + 1] for i in range(len(data))])[0] == expected


@given(st.lists(st.binary(min_size=1, max_size=40)), st.data())
def test_any_chunks_cut_anyhow(chunks: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    response = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + wire
    cuts = sorted(data.draw(st.lists(st.integers(0, len(response)))))
    bounds = [0, *cuts, len(response)]
    body, parser = parse([response[a:b] for a, b in itertools.pairwise(bounds)])
    assert body == b"".join(chunks)
    assert parser.complete


def test_headers_are_lower_case_and_joined() -> None:
    _, parser = parse([CHUNKED])
    assert parser.headers["x"] == "1, 2"
    assert parser.chunked


@pytest.mark.parametrize(
    ("head", "alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\n", False),
    ],
)
def test_keep_alive(head: bytes, alive: bool) -> None:
    assert parse([head])[1].keep_alive is alive


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>", "not an HTTP/1.1 answer: it begins b'<html>'"),
        (b"HTTP/1.1 two hundred\r\n\r\n", "not a status line: b'HTTP/1.1 two hundred'"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "not a header line: b'no colon'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", "not a Content-Length: '-3'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "not a chunk size: b'xyz'"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 300, f"not a chunk size: {b'1' * 40!r}"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd", "a chunk is longer than its size says: b'cd'"),
        (HEAD + b"Content-Length: 2\r\n\r\nabXY", "2 bytes follow the end of the response, beginning b'XY'"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the headers are larger than 65536 bytes"),
    ],
)
def test_malformed(data: bytes, message: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        parse([data])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "closed before any answer"),
        (b"HTTP/1.1 200", "closed inside the headers"),
        (HEAD + b"Content-Length: 9\r\n\r\nabc", "closed after 3 of 9 body bytes"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "closed inside a chunked body, after 3 bytes"),
    ],
)
def test_closed_too_early(data: bytes, message: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        parse([data])
    assert str(caught.value) == message
