"""Long events that repeat the whole answer are cut to their tails before they are kept: what is counted stays the same."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.load.events import cut_read
from pytest_moeperf.load.reply import Reply

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(count: int, *, text: str = "some words and ", **more: Any) -> bytes:
    """As SGLang writes it."""
    meta = {"id": "0" * 32, "finish_reason": None, "prompt_tokens": 3, "completion_tokens": count, "cached_tokens": 0}
    whole = {"text": text * count, "output_ids": list(range(100_000, 100_000 + count)), "meta_info": {**meta, **more}}
    return b"data: " + json.dumps(whole, separators=(",", ":")).encode() + b"\n\n"


def outcome(reads: list[bytes]) -> tuple[object, ...]:
    reply = Reply("sglang")
    reply.feed_all(range(len(reads)), reads)
    record = reply.record(index=0, slot=0, send_ns=0, scheduled_ns=None, requested_tokens=8, prompt_len=3)
    counts = record.completion_tokens, record.prompt_tokens, record.cached_tokens, record.retractions
    error = None if record.error is None else record.error.split("{", 1)[0]
    times = list(record.event_ns), list(record.event_tokens), record.end_ns
    return (*times, counts, record.finish_reason, record.done, error, reply.complete, reply.coalesced_reads)


def test_of_a_long_event_a_few_hundred_bytes_are_kept() -> None:
    for text in ("some words and ", 'a "quoted" word and \\ ', "\u4f60\u597d"):
        read = chunk(event(2000, text=text))
        kept = cut_read(read)
        assert len(read) > 20_000
        assert len(kept) < 300
        assert outcome([HEAD, kept, END]) == outcome([HEAD, read, END])
        assert cut_read(kept) == kept


def test_reads_that_hold_several_events_or_begin_inside_of_one_are_cut_too() -> None:
    one, two, three = (chunk(event(count)) for count in (500, 501, 502))
    assert len(cut_read(one + two)) < 600
    assert cut_read(one[:-900]) == one[:-900]
    after_a_part = cut_read(one[-900:] + two + three[:700])
    assert after_a_part.startswith(one[-900:])
    assert after_a_part.endswith(three[:700])
    assert len(after_a_part) < 900 + 700 + 300
    assert cut_read(three + END).endswith(END)


def test_what_only_looks_like_a_long_event_is_left_alone() -> None:
    whole = event(500)
    for data in (
        chunk(whole)[:-1] + b"x",
        b"zz" + chunk(whole),
        chunk(whole.replace(b"some", b"so\ne")),
        chunk(whole.replace(b'"meta_info"', b'"meta"')),
        chunk(whole.replace(b'"output_ids"', b'"error":{"message":"no"},"output_ids"')),
        chunk(whole.replace(b'"meta_info":{', b'"nested":{"meta_info":{').replace(b"}\n", b"}}\n")),
        chunk(b": comment\n" + whole),
        chunk(whole[:-1]),
        chunk(whole + whole),
        b"x" * 2000,
    ):
        assert cut_read(data) == data


_TEXTS = st.sampled_from(
    ["plain words ", 'x"meta_info":{"error":1}', '"error":', "\\", '\\"', "\ud83d", "a\r\n\n\r\nb"]
)
_MORE: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["meta_info", "error", "k", "finish_reason", "completion_tokens", "num_retractions"]),
    st.sampled_from([None, 1, 7, "abort", {"type": "length"}, {"type": "abort"}, {"meta_info": {}}, ['"meta_info":']]),
    max_size=2,
)
_OTHER = st.sampled_from(
    [
        b": comment\n\n",
        b"data:\n",
        b"data: {\n",
        b'data: {"text":"' + b"y" * 1200,
        b'data: {"error":{"message":"' + b"long " * 300 + b'"}}\n\n',
        b'data: {"text":"' + b"a\x01" * 700 + b'","meta_info":{"completion_tokens":3}}\n\n',
        b'data: {"text":"' + b"y" * 1200 + b'","error":"no","output_ids":[1],"meta_info":{"completion_tokens":2}}\n\n',
        b'data: {"text":"' + b"y" * 1200 + b'","output_ids":[1],"meta_info":{"completion_tokens":2},"error":"no"}\n\n',
        b'data: {"output_ids":[' + b"1," * 600 + b'1],"meta_info":{"completion_tokens":3}}\n\n',
    ]
)


@st.composite
def _bodies(draw: st.DrawFn) -> list[bytes]:
    count, bodies = 0, []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 5)) == 0:
            bodies.append(draw(_OTHER))
        else:
            count += draw(st.integers(0, 120))
            bodies.append(event(count, text=draw(_TEXTS), **draw(_MORE)))
    return bodies


@given(_bodies(), st.data())
def test_a_reply_fed_with_cut_reads_counts_the_same(bodies: list[bytes], data: st.DataObject) -> None:
    """However the server puts the events into chunks, and however the chunks come in reads."""
    if data.draw(st.integers(0, 3)) == 0:
        stream = b"".join(bodies)
        marks = sorted({0, len(stream), *data.draw(st.lists(st.integers(0, len(stream)), max_size=6))})
        bodies = [stream[start:end] for start, end in itertools.pairwise(marks)]
    chunks = [chunk(body) for body in bodies if body]
    wire = b"".join(chunks) + END
    boundaries = [0]
    for one in chunks:
        boundaries.append(boundaries[-1] + len(one))
    near = st.builds(lambda at, off: min(len(wire), max(0, at + off)), st.sampled_from(boundaries), st.integers(-8, 8))
    cuts = data.draw(st.lists(st.sampled_from(boundaries) | near | st.integers(0, len(wire)), max_size=8))
    marks = sorted({0, len(wire), *cuts})
    reads = [wire[start:end] for start, end in itertools.pairwise(marks)]
    assert outcome([HEAD, *map(cut_read, reads)]) == outcome([HEAD, *reads])
