"""The event parser gives the same events for every way to cut the bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.load.sse import SseParser, SseProblem

STREAMS = {
    "plain": (
        b'data: {"a": 1}\n\ndata: {"b": "two  words "}\n\ndata: [DONE]\n\n',
        [b'{"a": 1}', b'{"b": "two  words "}', b"[DONE]"],
    ),
    "crlf": (b"data: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
    "cr": (b"data: one\r\rdata: two\r\r", [b"one", b"two"]),
    "mixed ends": (b"data: one\r\n\ndata: two\n\r\n", [b"one", b"two"]),
    "no space": (b"data:one\n\ndata:  two\n\n", [b"one", b" two"]),
    "multi-line": (b"data: one\ndata: more\n\n", [b"one\nmore"]),
    "empty data": (b"data\n\ndata:\n\n", [b"", b""]),
    "comments and fields": (b": ping\n\nevent: x\nid: 3\nretry: 9\ndata: one\n: inside\n\n: bye\n\n", [b"one"]),
    "no data is no event": (b"event: x\n\nid: 1\n\n\n\ndata: one\n\n", [b"one"]),
    "byte order mark": (b"\xef\xbb\xbfdata: one\n\n", [b"one"]),
    "utf-8": ('data: {"t":"é€😀 data: x"}\n\n'.encode(), ['{"t":"é€😀 data: x"}'.encode()]),
    "done without blank line": (b"data: one\n\ndata: [DONE]\n", [b"one", b"[DONE]"]),
    "done without newline": (b"data: one\n\ndata: [DONE]", [b"one", b"[DONE]"]),
}


def parse(pieces: list[bytes]) -> list[bytes]:
    parser = SseParser()
    payloads = [payload for piece in pieces for payload in parser.feed(piece)]
    return payloads + parser.close()


@pytest.mark.parametrize("name", STREAMS)
def test_every_single_cut_and_byte_by_byte(name: str) -> None:
    data, expected = STREAMS[name]
    assert parse([data]) == expected
    assert parse([data[i : i + 1] for i in range(len(data))]) == expected
    for cut in range(len(data) + 1):
        assert parse([data[:cut], data[cut:]]) == expected, cut


@given(
    st.lists(
        st.sampled_from(
            [b"data: ", b"data:", b"\n", b"\r", b"\r\n", b"\n\n", b": c", b"x", b"[DONE]", "é".encode(), b" "]
        )
    ),
    st.data(),
)
def test_any_bytes_cut_anyhow_give_the_same_events(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    bounds = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(bounds)]

    def outcome(pieces: list[bytes]) -> list[bytes] | str:
        try:
            return parse(pieces)
        except SseProblem as problem:
            return str(problem)

    assert outcome(pieces) == outcome([stream])


def test_an_event_is_given_by_the_piece_that_completes_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\ndata: two\n\n") == [b"one", b"two"]
    assert parser.feed(b"") == []


def test_a_stream_that_ends_inside_an_event_is_a_problem() -> None:
    parser = SseParser()
    parser.feed(b"data: one\n\ndata: {half")
    with pytest.raises(SseProblem, match=r"^the stream ended inside an event: b'\{half'$"):
        parser.close()


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_huge_event_is_refused_however_it_is_cut(size: int) -> None:
    parser = SseParser(max_event_bytes=64)
    data = b"data: " + b"x" * 200 + b"\n\n"

    def feed() -> None:
        for start in range(0, len(data), size):
            parser.feed(data[start : start + size])

    with pytest.raises(SseProblem, match=r"^one event is larger than 64 bytes$"):
        feed()
