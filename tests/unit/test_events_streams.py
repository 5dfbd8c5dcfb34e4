"""What the payloads say, in SGLang's protocol and OpenAI's two; with real bytes of SGLang 0.5.14."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_moeperf.load.events import InBandError, PayloadProblem, token_stream
from pytest_moeperf.load.reply import Reply
from pytest_moeperf.model.records import RequestRecord

REAL = Path(__file__).parents[1] / "evidence_logs" / "sglang-0.5.14-cpu"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def feed(protocol: str, *payloads: Any, keep_output: bool = False) -> tuple[list[int], Any]:
    stream = token_stream(protocol, keep_output=keep_output)
    return [stream.feed(json.dumps(payload).encode()) for payload in payloads], stream


def sglang(count: int, *, text: str = "x", ids: list[int] | None = None, **meta: Any) -> dict[str, Any]:
    return {"text": text, "output_ids": ids or [], "meta_info": {"completion_tokens": count, **meta}}


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def usage(completion: int) -> dict[str, Any]:
    return {"prompt_tokens": 5, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": 2}}


def reply_record(protocol: str, body: bytes, *, piece: int | None = None, keep_output: bool = False) -> RequestRecord:
    reply = Reply(protocol, keep_output=keep_output)
    wire = HEAD + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    step = piece or len(wire)
    for number, start in enumerate(range(0, len(wire), step)):
        reply.feed(1000 + number, wire[start : start + step])
    return reply.record(index=0, slot=0, send_ns=0, scheduled_ns=None, requested_tokens=8, prompt_len=16)


class TestSglang:
    def test_cumulative(self) -> None:
        news, stream = feed(
            "sglang",
            sglang(1, text="a", ids=[7], prompt_tokens=5, cached_tokens=0),
            sglang(2, text="ab", ids=[7, 8]),
            sglang(4, text="abcd", ids=[7, 8, 9, 9], finish_reason={"type": "length", "length": 4}, num_retractions=1),
            keep_output=True,
        )
        assert news == [1, 1, 2]
        assert (stream.output_text, stream.output_ids) == ("abcd", (7, 8, 9, 9))
        assert (stream.completion_tokens, stream.prompt_tokens, stream.cached_tokens) == (4, 5, 0)
        assert (stream.finish_reason, stream.retractions) == ("length", 1)

    def test_incremental(self) -> None:
        news, stream = feed(
            "sglang",
            sglang(1, text="a", ids=[7]),
            sglang(2, text="a", ids=[8]),
            sglang(4, text="aa", ids=[9, 9]),
            keep_output=True,
        )
        assert news == [1, 1, 2]
        assert (stream.output_text, stream.output_ids) == ("aaaa", (7, 8, 9, 9))

    def test_the_last_event_may_bring_no_token(self) -> None:
        news, stream = feed("sglang", sglang(2), sglang(2, finish_reason={"type": "length"}))
        assert news == [2, 0]
        assert stream.finish_reason == "length"

    def test_text_that_is_held_back_is_still_a_token(self) -> None:
        assert feed("sglang", sglang(1, text=""))[0] == [1]

    def test_unknown_stays_none(self) -> None:
        _, stream = feed("sglang", {"text": "a", "meta_info": {}})
        assert stream.completion_tokens is None
        assert stream.cached_tokens is None

    def test_a_stop_says_what_matched(self) -> None:
        _, stream = feed("sglang", sglang(1, finish_reason={"type": "stop", "matched": "NaN happened"}))
        assert stream.finish_reason == "stop (NaN happened)"

    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ({"error": {"message": "too long", "type": "bad", "code": 400}}, "too long (bad)"),
            ({"error": "boom"}, "boom"),
            (sglang(3, finish_reason={"type": "abort", "message": "out of memory"}), "abort (out of memory)"),
        ],
    )
    def test_in_band_errors(self, payload: Any, message: str) -> None:
        with pytest.raises(InBandError) as caught:
            feed("sglang", payload)
        assert str(caught.value) == message

    def test_a_count_that_falls(self) -> None:
        with pytest.raises(PayloadProblem, match="completion_tokens fell from 3 to 2"):
            feed("sglang", sglang(3), sglang(2))

    @pytest.mark.parametrize("payload", [b"{half", b"[1]", b'{"meta_info": {"completion_tokens": "3"}}', b"\xff\xfe"])
    def test_not_of_this_protocol(self, payload: bytes) -> None:
        with pytest.raises(PayloadProblem, match="not of this protocol"):
            token_stream("sglang", keep_output=False).feed(payload)

    def test_without_meta_info(self) -> None:
        with pytest.raises(PayloadProblem, match="without meta_info"):
            feed("sglang", {"text": "x"})


class TestOpenAi:
    def test_a_chunk_is_a_token_until_the_usage_says_more(self) -> None:
        news, stream = feed(
            "openai-chat",
            chat({"role": "assistant", "content": ""}),
            chat({"content": "a"}),
            chat({"content": "bcd"}),
            chat({"content": "ef"}),
            chat({}, "length"),
            {"choices": [], "usage": usage(6)},
            keep_output=True,
        )
        assert news == [0, 1, 1, 1, 0, 0]
        tokens = array("i", [1, 1, 1])
        stream.settle(tokens)
        assert tokens.tolist() == [1, 3, 2]
        assert (stream.output_text, stream.finish_reason) == ("abcdef", "length")
        assert (stream.completion_tokens, stream.prompt_tokens, stream.cached_tokens) == (6, 5, 2)

    def test_continuous_usage_counts_each_chunk(self) -> None:
        news, stream = feed(
            "openai-completions",
            {"choices": [{"text": "a"}], "usage": usage(2)},
            {"choices": [{"text": "b"}], "usage": usage(2)},
            {"choices": [{"text": ""}], "usage": usage(5)},
            {"choices": [{"text": "", "finish_reason": "length"}], "usage": usage(5)},
            {"choices": [], "usage": usage(5)},
        )
        assert news == [2, 0, 3, 0, 0]
        tokens = array("i", [2, 3])
        stream.settle(tokens)
        assert tokens.tolist() == [2, 3]

    @pytest.mark.parametrize(
        "delta",
        [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}],
    )
    def test_reasoning_and_tool_calls_are_tokens_too(self, delta: dict[str, Any]) -> None:
        assert feed("openai-chat", chat(delta))[0] == [1]

    @pytest.mark.parametrize(
        ("total", "texts", "expected"),
        [
            (9, "a aa aa aa aa", [1, 2, 2, 2, 2]),
            (12, "aaaaaa bb bb bb", [6, 2, 2, 2]),
            (3, "a a a a a", [1, 1, 1, 0, 0]),
            (4, "a", [4]),
            (6, "aaaaaaaaaaaaaaaa b c", [4, 1, 1]),
            (6, "a b cccccccccccccccc", [1, 1, 4]),
            (3, "aaaa b c", [1, 1, 1]),
        ],
    )
    def test_settle_spreads_by_the_text_and_keeps_the_sum(self, total: int, texts: str, expected: list[int]) -> None:
        chunks = [{"choices": [{"text": text}]} for text in texts.split()]
        news, stream = feed("openai-completions", *chunks, {"choices": [], "usage": usage(total)})
        tokens = array("i", [new for new in news if new])
        stream.settle(tokens)
        assert tokens.tolist() == expected
        assert stream.assumed_tokens == abs(total - len(tokens))

    @pytest.mark.parametrize(
        "chunks",
        [
            [{"choices": [{"text": "a"}]}] * 3 + [{"choices": [{"text": "a"}], "usage": usage(4)}],
            [{"choices": [{"text": "a"}], "usage": usage(0)}] * 3 + [{"choices": [{"text": "a"}], "usage": usage(4)}],
            [{"choices": [{"text": "a"}], "usage": None}] * 4 + [{"choices": [], "usage": usage(4)}],
            [{"choices": [{"text": "a"}]}] * 4 + [{"usage": usage(4)}],
            [{"choices": [{"text": "a"}], "usage": usage(1)}] + [{"choices": [{"text": "a"}]}] * 3 + [{"usage": usage(4)}],
            [part for n in range(4) for part in ({"choices": [{"text": "a"}]}, {"choices": [], "usage": usage(n + 1)})],
        ],
        ids=["in the last choice", "zeros before", "null", "without choices", "first and last", "between"],
    )  # fmt: skip
    def test_usage_wherever_it_stands(self, chunks: list[dict[str, Any]]) -> None:
        news, stream = feed("openai-completions", *chunks)
        assert [new for new in news if new] == [1, 1, 1, 1]
        tokens = array("i", [1, 1, 1, 1])
        stream.settle(tokens)
        assert (tokens.tolist(), stream.completion_tokens, stream.assumed_tokens) == ([1, 1, 1, 1], 4, 0)

    def test_text_in_a_field_that_no_protocol_has(self) -> None:
        news, _ = feed(
            "openai-chat",
            chat({"role": "assistant", "content": ""}),
            chat({"content": "", "inner_voice": "hm"}),
            chat({"content": "a"}),
            chat({}, "length", native_finish_reason="max_tokens"),
        )
        assert news == [0, 1, 1, 0]
        assert feed("openai-completions", {"choices": [{"text": "", "thinking": "hm"}]})[0] == [1]

    @pytest.mark.parametrize(
        ("protocol", "payload"),
        [
            ("openai-completions", rb'{"choices":[{"text":"\ud83d"}]}'),
            ("openai-completions", rb'{"choices":[{"text":"","thought":"\ud83d"}]}'),
            ("sglang", rb'{"text":"a\udc00","meta_info":{"completion_tokens":1}}'),
        ],
    )
    @pytest.mark.parametrize("keep_output", [False, True])
    def test_half_a_character_is_no_fault(self, protocol: str, payload: bytes, keep_output: bool) -> None:
        assert token_stream(protocol, keep_output=keep_output).feed(payload) == 1

    def test_errors(self) -> None:
        with pytest.raises(InBandError, match=r"^no memory \(internal\)$"):
            feed("openai-chat", {"error": {"message": "no memory", "code": "internal"}})
        with pytest.raises(PayloadProblem, match="without choices"):
            feed("openai-chat", {"object": "something else"})
        with pytest.raises(InBandError, match="abort"):
            feed("openai-completions", {"choices": [{"text": "", "finish_reason": "abort"}]})


class TestReal:
    """Bytes that SGLang 0.5.14 sent."""

    @pytest.mark.parametrize("piece", [None, 1, 97])
    def test_generate(self, piece: int | None) -> None:
        record = reply_record("sglang", (REAL / "generate_stream.sse").read_bytes(), piece=piece, keep_output=True)
        assert record.ok
        assert (record.completion_tokens, sum(record.event_tokens), len(record.event_ns)) == (8, 8, 8)
        assert (record.prompt_tokens, record.cached_tokens, record.finish_reason) == (16, 0, "length")
        assert record.output_text == "ly4ly4ly4ly4"
        assert record.output_ids == (551, 53) * 4
        assert list(record.event_ns) == sorted(record.event_ns)
        assert (len(set(record.event_ns)) == 8) is (piece is not None)

    def test_generate_error(self) -> None:
        record = reply_record("sglang", (REAL / "generate_stream_error.sse").read_bytes())
        assert not record.ok
        assert record.error == (
            "in_band_error: The input (4999 tokens) is longer than the model's context length (4096 tokens). "
            "(invalid_request_error)"
        )
        assert record.done

    def test_generate_stopped(self) -> None:
        record = reply_record("sglang", (REAL / "generate_stream_stopped.sse").read_bytes())
        assert record.ok
        assert (record.finish_reason, record.completion_tokens) == ("stop (551)", 1)

    @pytest.mark.parametrize(
        ("name", "protocol", "completion"),
        [
            ("completions_stream", "openai-completions", 8),
            ("completions_stream_no_usage", "openai-completions", None),
            ("chat_stream", "openai-chat", 8),
        ],
    )
    def test_openai(self, name: str, protocol: str, completion: int | None) -> None:
        record = reply_record(protocol, (REAL / f"{name}.sse").read_bytes(), piece=50)
        assert record.ok
        assert record.completion_tokens == completion
        assert record.finish_reason == "length"
        assert sum(record.event_tokens) == 8


class TestReply:
    def test_cut_short(self) -> None:
        reply = Reply("sglang")
        body = b'data: {"text":"a","meta_info":{"completion_tokens":1}}\n\n'
        reply.feed(1, HEAD + b"%x\r\n%s\r\n" % (len(body), body))
        reply.eof(2)
        assert reply.error == ("connection: closed inside a chunked body, after 56 bytes (after 1 events, 1 tokens)")

    def test_no_done(self) -> None:
        record = reply_record("sglang", b'data: {"text":"a","meta_info":{"completion_tokens":1}}\n\n')
        assert record.error == "protocol: the stream ended without [DONE] (after 1 events, 1 tokens)"
        assert not record.done

    def test_something_after_done(self) -> None:
        record = reply_record("sglang", b"data: [DONE]\n\ndata: {}\n\n")
        assert record.error == "protocol: an event after [DONE]: b'{}'"

    def test_several_events_in_one_read_are_counted(self) -> None:
        reply = Reply("sglang")
        events = [b'data: {"text":"a","meta_info":{"completion_tokens":%d}}\n\n' % count for count in (1, 2, 3)]
        reply.feed(1, HEAD + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events[:2]))
        reply.feed(2, b"%x\r\n%s\r\n" % (len(events[2]), events[2]))
        assert reply.coalesced_reads == 1
        assert reply.event_ns.tolist() == [1, 1, 2]

    @pytest.mark.parametrize(
        ("head", "error"),
        [
            (b"HTTP/1.1 503 Busy\r\n", "http: status 503 Busy; it says b'later'"),
            (b"HTTP/1.1 307 Elsewhere\r\nLocation: /x\r\n", "http: status 307 Elsewhere to '/x'; it says b'later'"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n",
                "protocol: content type 'text/html' instead of 'text/event-stream'; it says b'later'",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n",
                "protocol: the stream is encoded as 'gzip', which was not asked for",
            ),
        ],
    )
    def test_refusals(self, head: bytes, error: str) -> None:
        reply = Reply("sglang")
        reply.feed(1, head + b"Content-Length: 5\r\n\r\nlater")
        assert reply.error == error
        assert reply.complete


def _outcome(reply: Reply) -> tuple[object, ...]:
    one = reply.record(index=0, slot=0, send_ns=0, scheduled_ns=None, requested_tokens=0, prompt_len=0)
    counted = (one.completion_tokens, one.prompt_tokens, one.cached_tokens, one.finish_reason, one.retractions)
    return (one.event_tokens.tolist(), counted, one.error, one.done, reply.http.body_bytes, reply.complete)


_EVENTS = st.one_of(
    st.builds(lambda more: ("tokens", more), st.integers(0, 3)),
    st.sampled_from(
        [("error", 0), ("abort", 0), ("not json", 0), ("fall", 0), ("comment", 0), ("no meta", 0), ("[DONE]", 0)]
    ),
)


_JSON = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["a", '"meta_info":', 'x"error"', "\\", '\\"', "{[", "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["meta_info", "error", '"meta_info', "text", "k"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_META = st.fixed_dictionaries(
    {"completion_tokens": st.integers(-1, 3)},
    optional={
        "prompt_tokens": st.integers(0, 3) | st.none(),
        "finish_reason": st.sampled_from([None, {"type": "length"}, {"type": "abort"}]),
        "meta_info": _JSON,
        "more": _JSON,
    },
)
_MEMBERS = st.tuples(st.sampled_from(["text", "output_ids", "error", '"meta_info', "index"]), _JSON)


@given(
    st.sampled_from(["text", "output_ids"]),
    st.lists(_MEMBERS | st.tuples(st.just("meta_info"), _META | st.none()), max_size=4),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_the_tail_of_a_long_event_says_what_the_whole_says(
    first: str, members: list[tuple[str, Any]], separators: tuple[str, str], ascii_only: bool
) -> None:
    """Names that come twice included: the last one counts."""
    long = 'x"meta_info":{"error":1}' * 60
    written = [
        json.dumps({name: value}, separators=separators)[1:-1]
        for name, value in [(first, long if first == "text" else list(range(600))), *members]
    ]
    payload = ("{" + separators[0].join(written) + "}").encode()
    if not ascii_only:
        payload = payload.replace(b"\\ud83d", "\u00e4\U0001f600".encode())
    assert len(payload) > 1024
    assert _read(payload) == _read(b" " + payload)  # no event of SGLang begins so, and all of it is decoded


def _read(payload: bytes) -> tuple[object, ...]:
    stream = token_stream("sglang", keep_output=False)
    in_the_short_way = token_stream("sglang", keep_output=False).feed_ordinary([payload])
    try:
        new: object = stream.feed(payload)
    except InBandError as error:
        new = f"in band: {error}"
    except PayloadProblem:
        new = "no event"
    assert in_the_short_way in (None, [new])
    return (new, stream.completion_tokens, stream.prompt_tokens, stream.finish_reason)


def test_of_a_long_event_only_the_tail_is_decoded() -> None:
    """What stands in the answer is not even looked at: no other way to be as fast for long answers."""
    payload = b'{"text":"%s","output_ids":[1,2],"meta_info":{"completion_tokens":7}}' % (b"\x01" * 2000)
    assert token_stream("sglang", keep_output=False).feed(payload) == 7
    with pytest.raises(PayloadProblem):
        token_stream("sglang", keep_output=True).feed(payload)


def test_what_ordinary_events_say_of_the_prompt_is_kept() -> None:
    """The last event may say nothing of it."""
    meta = b'data: {"meta_info":{"completion_tokens":%d%s}}\n\n'
    said = b',"prompt_tokens":3,"cached_tokens":1,"num_retractions":2'
    bodies = [meta % (1, said), meta % (2, said), meta % (3, b""), meta % (4, b',"finish_reason":{"type":"length"}')]
    reads = [
        HEAD,
        *(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies),
        b"e\r\ndata: [DONE]\n\n\r\n",
        b"0\r\n\r\n",
    ]
    reply = Reply("sglang")
    reply.feed_all(range(len(reads)), reads)
    assert _outcome(reply)[:2] == ([1, 1, 1, 1], (4, 3, 1, "length", 2))


def test_ordinary_events_after_done_are_refused_in_the_short_way_too() -> None:
    body = b'data: {"meta_info":{"completion_tokens":%d,"prompt_tokens":3}}\n\n'
    bodies = [body % 1, b"data: [DONE]\n\n", body % 2, body % 3, body % 4]
    reads = [HEAD, *(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies)]
    reply = Reply("sglang")
    reply.feed_all(range(3), reads[:3])
    reply.feed_all(range(3, len(reads)), reads[3:])  # nothing but ordinary events
    assert reply.event_tokens.tolist() == [1]
    assert str(reply.error).startswith("protocol: an event after [DONE]")


@given(st.lists(_EVENTS, max_size=12), st.data())
def test_the_short_ways_do_what_the_parsers_do(events: list[tuple[str, int]], data: st.DataObject) -> None:
    """A chunk a read, many reads at once, against the same bytes one at a time."""
    count = 0
    chunks = [b"e\r\ndata: [DONE]\n\n\r\n", b"0\r\n\r\n"]
    bodies = []
    for kind, more in events:
        count += more
        body = {
            "error": b'data: {"error":{"message":"no"}}\n\n',
            "abort": b'data: {"meta_info":{"finish_reason":{"type":"abort"}}}\n\n',
            "not json": b"data: {'x'}\n\n",
            "fall": b'data: {"meta_info":{"completion_tokens":-1}}\n\n',
            "comment": b": hello\n\n",
            "no meta": b'data: {"text":"x"}\n\n',
            "[DONE]": b"data: [DONE]\n\n",
        }.get(kind, b'data: {"meta_info":{"completion_tokens":%d,"prompt_tokens":3}}\n\n' % count)
        bodies.append(body)
    if data.draw(st.booleans()):
        bodies.append(
            b'data: {"meta_info":{"completion_tokens":%d,"finish_reason":{"type":"length"}}}\n\n' % (count + 1)
        )
    reads = [HEAD, *(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies), *chunks]
    together = Reply("sglang")
    cut = data.draw(st.integers(0, len(reads)))
    together.feed_all(range(cut), reads[:cut])
    together.feed_all(range(cut, len(reads)), reads[cut:])
    single = Reply("sglang")
    for byte in b"".join(reads):
        single.feed(0, bytes([byte]))
    assert _outcome(together) == _outcome(single)
    assert together.event_ns.tolist() == sorted(together.event_ns)
    assert len(together.event_ns) == len(together.event_tokens)
