"""The memory bound: whatever the load, unparsed reads stay below it, and nothing is lost."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from pytest_moeperf.load.backlog import READ_OVERHEAD_BYTES, Backlog, Exchange
from pytest_moeperf.load.job import DEFAULT_HELD_BYTES
from pytest_moeperf.load.reply import Reply

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMIT = 100_000


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(count: int) -> bytes:
    return chunk(b'data: {"text":"%s","meta_info":{"completion_tokens":%d}}\n\n' % (b"x" * 300, count))


def exchange(index: int) -> Exchange:
    return Exchange(index=index, slot=index, scheduled_ns=None, requested_tokens=0, prompt_len=0, reply=Reply("sglang"))


def store(backlog: Backlog, one: Exchange, data: bytes, at: int) -> None:
    one.reads.append((at, data, b""))
    backlog.held_bytes += len(data) + READ_OVERHEAD_BYTES


def fill(backlog: Backlog, one: Exchange, tokens: int, *, end: bool) -> None:
    store(backlog, one, HEAD, 0)
    for count in range(1, tokens + 1):
        store(backlog, one, event(count), count)
    if end:
        store(backlog, one, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", tokens + 1)
        backlog.ended(one)


@pytest.mark.parametrize("end", [True, False], ids=["ended requests", "requests in flight"])
def test_a_busy_loop_parses_down_to_the_bound(end: bool) -> None:
    backlog = Backlog(limit_bytes=LIMIT)
    live: list[Exchange] = []
    for index in range(50):
        one = exchange(index)
        live += [] if end else [one]
        fill(backlog, one, 40, end=end)
        backlog.make_room(live.copy, idle=False)
        assert backlog.held_bytes <= LIMIT
        in_flight = sum(len(one.reads) for one in live)
        assert backlog.reads + backlog.waiting_reads + in_flight == 41 * (index + 1) + (index + 1) * end
    for one in live:
        store(backlog, one, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", 99)
        backlog.ended(one)
    backlog.finish(lambda: None)
    assert (backlog.held_bytes, backlog.waiting_reads, backlog.reads) == (0, 0, 50 * 42)
    assert sorted(record.index for record in backlog.records) == list(range(50))
    assert all(record.ok and record.completion_tokens == 40 for record in backlog.records)
    assert all(list(record.event_ns) == list(range(1, 41)) for record in backlog.records)
    assert backlog.parsed_in_window > 0


def test_an_idle_moment_parses_one_slice() -> None:
    backlog = Backlog(limit_bytes=LIMIT)
    one = exchange(0)
    fill(backlog, one, 100, end=True)
    assert backlog.wants_room
    backlog.make_room(list, idle=True)
    assert len(one.reads) == 102 - 16


def test_below_half_of_the_bound_nothing_is_parsed() -> None:
    backlog = Backlog(limit_bytes=LIMIT)
    fill(backlog, exchange(0), 50, end=True)
    assert not backlog.wants_room
    backlog.make_room(list, idle=False)
    assert backlog.parsed_in_window == 0


def test_nothing_to_parse_ends_the_search_for_room() -> None:
    backlog = Backlog(limit_bytes=0)
    backlog.held_bytes = 1
    backlog.make_room(list, idle=False)
    backlog.make_room(lambda: [exchange(0)], idle=True)
    assert backlog.records == []


def test_the_stated_cost_a_read_and_an_event() -> None:
    """What the bound counts is what the objects take, and what is left of an event is about 12 bytes."""
    backlog = Backlog(limit_bytes=DEFAULT_HELD_BYTES)
    one = exchange(0)
    tracemalloc.start()
    try:
        for count in range(1, 20_001):
            one.reads.append((10**15 + count, event(count), bytes(bytearray(16))))
            backlog.held_bytes += len(one.reads[-1][1]) + READ_OVERHEAD_BYTES
        stored, _ = tracemalloc.get_traced_memory()
        assert stored < 1.2 * backlog.held_bytes
        one.reads.insert(0, (0, HEAD, b""))
        backlog.held_bytes += len(HEAD) + READ_OVERHEAD_BYTES
        backlog.parse(one)
        one.reads = []
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(one.reply.event_ns) == 20_000
    assert left < 20_000 * 24  # some freed tuples stay with the interpreter


def test_done_before_the_end_of_the_body_is_an_error() -> None:
    backlog = Backlog(limit_bytes=LIMIT)
    one = exchange(0)
    store(backlog, one, HEAD + chunk(b"data: [DONE]\n\n"), 1)
    backlog.ended(one)
    backlog.finish(lambda: None)
    assert backlog.records[0].error == "protocol: [DONE] came before the end of the body"


@pytest.mark.parametrize("length", [21, 262, 4103])
def test_a_read_of_a_length_that_no_chunk_has(length: int) -> None:
    """A chunk of 15 bytes takes 20 with what is around it, one of 16 takes 22; two reads that came as one may take 21."""
    reply = Reply("sglang")
    reply.feed(0, HEAD)
    reply.feed(1, event(1))
    rest = event(2) + event(3) + b"".join(event(count) for count in range(4, 16))
    reply.feed(2, rest[:length])
    reply.feed(3, rest[length:])
    assert (reply.error, sum(reply.event_tokens)) == (None, 15)


@pytest.mark.parametrize(("back_ns", "expected_ns"), [(0, 5000), (16_000, 5000), (2_000_000, 5000 - 2_000_000)])
def test_a_stamp_a_little_before_that_of_the_bytes_before_it_is_two_cores(back_ns: int, expected_ns: int) -> None:
    """What goes back further is a clock, and stays as it is: a check of the run looks for it."""
    backlog = Backlog(limit_bytes=LIMIT)
    one = exchange(0)
    for number, wall_ns in enumerate((4000, 5000, 5000 - back_ns)):
        one.reads.append((9000, event(number) if number else HEAD, struct.pack("@qq", *divmod(wall_ns, 10**9))))
    backlog.parse(one, 2)
    backlog.parse(one)
    assert list(one.reply.event_ns) == [5000, expected_ns]
