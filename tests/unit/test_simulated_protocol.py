"""Bodies: the same keys, in the same events, as recorded from a real SGLang; and what each kind of end looks like."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.engines.simulated.engine import Finish, Request, finish_abort, finish_length, finish_stop
from pytest_moeperf.engines.simulated.protocol import ChatReply, CompletionReply, NativeReply, Reply
from pytest_moeperf.engines.simulated.tokens import (
    EOS_ID,
    MAX_OUTPUT,
    RING,
    prompt_bytes,
    ring_start,
    token_ring,
    tokenize,
)

RECORDED = Path(__file__).parents[1] / "evidence_logs" / "sglang-0.5.14-cpu"


def request(*, new: int = 3, **changes: Any) -> Request:
    return Request(rid="abc", prompt_tokens=4, max_new_tokens=new, arrival_s=0.0, ring_start=100, **changes)


def play(reply: Reply, one: Request, *, end: Finish | None = None, at: int | None = None) -> bytes:
    """All bytes of a stream of ``one``, one token a step, ended by ``end`` after ``at`` tokens."""
    out = b""
    for _ in range(at if at is not None else one.max_new_tokens):
        one.advance(1.0)
        if end is not None and one.completion_tokens == at:
            one.finish = end
        if reply.due(one):
            out += reply.events(one)
    if at == 0:
        one.finish = end
        out += reply.events(one)
    return out


def events(stream: bytes) -> list[Any]:
    """The parsed data of each event; ``[DONE]`` stays a text."""
    parts = stream.decode().split("\n\n")
    assert parts[-1] == ""
    assert all(part.startswith("data: ") for part in parts[:-1])
    data = [part.removeprefix("data: ") for part in parts[:-1]]
    return [entry if entry == "[DONE]" else json.loads(entry) for entry in data]


def shape(value: Any) -> Any:
    """Keys all the way down, with the type of each leaf (all numbers alike)."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def recorded_events(name: str) -> list[Any]:
    return events((RECORDED / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("generate_stream.sse", lambda: NativeReply(model="m")),
        ("completions_stream.sse", lambda: CompletionReply(model="m", include_usage=True)),
        ("completions_stream_no_usage.sse", lambda: CompletionReply(model="m")),
        ("chat_stream.sse", lambda: ChatReply(model="m", include_usage=True)),
    ],
)
def test_streams_have_the_shape_of_recorded_ones(name: str, make: Callable[[], Reply]) -> None:
    theirs = recorded_events(name)
    ours = events(play(make(), request(new=8)))
    # Recorded chat tokens were halves of characters, several to an event: how many alike follow each other may differ.
    assert [key for key, _ in groupby(map(shape, ours))] == [key for key, _ in groupby(map(shape, theirs))]


@pytest.mark.parametrize(
    ("name", "make"),
    [("generate.json", lambda: NativeReply(model="m")), ("completions.json", lambda: CompletionReply(model="m"))],
)
def test_whole_bodies_have_the_shape_of_recorded_ones(name: str, make: Callable[[], Reply]) -> None:
    one = request(new=8)
    for _ in range(8):
        one.advance(1.0)
    body = make().body(one)
    assert body.status == 200
    assert shape(body.content) == shape(json.loads((RECORDED / name).read_text(encoding="utf-8")))


def test_an_error_in_a_native_stream_has_the_recorded_shape() -> None:
    ours = events(play(NativeReply(model="m"), request(), end=Finish(kind="error"), at=0))
    assert [shape(event) for event in ours] == [shape(event) for event in recorded_events("generate_stream_error.sse")]


def test_native_events_are_cumulative() -> None:
    ours = events(play(NativeReply(model="m"), request(new=3)))
    ids = token_ring().ids[100:103]
    assert [event["output_ids"] for event in ours[:3]] == [ids[:1], ids[:2], ids]
    assert [event["meta_info"]["completion_tokens"] for event in ours[:3]] == [1, 2, 3]
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in pairwise(ours[:3]))
    assert [event["meta_info"]["finish_reason"] for event in ours[:3]] == [None, None, {"type": "length", "length": 3}]
    assert ours[3] == "[DONE]"


def test_incremental_events_join_to_the_cumulative_text() -> None:
    whole = events(play(NativeReply(model="m"), request(new=5)))[4]
    parts = events(play(NativeReply(model="m", incremental=True), request(new=5)))[:5]
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert [token for part in parts for token in part["output_ids"]] == whole["output_ids"]
    assert [part["meta_info"]["completion_tokens"] for part in parts] == [1, 2, 3, 4, 5]


def test_openai_deltas_join_to_the_whole_text() -> None:
    one = request(new=5)
    completion = events(play(CompletionReply(model="m"), one))
    assert "".join(event["choices"][0]["text"] for event in completion[:-1]) == CompletionReply(model="m").text(one)
    chat = events(play(ChatReply(model="m"), request(new=5)))
    assert chat[0]["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in chat[:-1]) == Reply(model="m").text(one)


@pytest.mark.parametrize("make", [CompletionReply, ChatReply])
def test_continuous_usage_counts_up(make: Callable[..., Reply]) -> None:
    ours = events(play(make(model="m", continuous_usage=True), request(new=3)))
    counts = [event["usage"]["completion_tokens"] for event in ours[:-1] if event.get("usage")]
    assert counts == [1, 2, 3]


def test_stream_interval_sends_the_first_token_at_once_and_the_rest_in_groups() -> None:
    ours = events(play(NativeReply(model="m"), request(new=10, stream_interval=4)))
    assert [event["meta_info"]["completion_tokens"] for event in ours[:-1]] == [1, 5, 9, 10]


@pytest.mark.parametrize(
    ("end", "last_finish", "done"),
    [
        (finish_length(3), {"type": "length", "length": 3}, True),
        (finish_stop(), {"type": "stop", "matched": EOS_ID}, True),
        (finish_stop("NaN happened"), {"type": "stop", "matched": "NaN happened"}, True),
        (
            finish_abort("gone", status_code=503, err_type="X"),
            {"type": "abort", "message": "gone", "status_code": 503, "err_type": "X"},
            True,
        ),
        (Finish(kind="cut"), None, False),
        (Finish(kind="reset"), None, False),
    ],
)
def test_ends_of_native_streams(end: Finish, last_finish: object, done: bool) -> None:
    ours = events(play(NativeReply(model="m"), request(new=9), end=end, at=2))
    assert (ours[-1] == "[DONE]") is done
    assert [event for event in ours if event != "[DONE]"][-1]["meta_info"]["finish_reason"] == last_finish


@pytest.mark.parametrize("make", [CompletionReply, ChatReply])
def test_an_abort_with_a_status_is_an_error_event_on_openai_routes(make: Callable[..., Reply]) -> None:
    end = finish_abort("gone", status_code=503, err_type="X")
    ours = events(play(make(model="m", include_usage=True), request(new=9), end=end, at=2))
    assert ours[-2:] == [
        {"error": {"object": "error", "message": "gone", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}},
        "[DONE]",
    ]


@pytest.mark.parametrize("make", [CompletionReply, ChatReply])
def test_an_abort_without_a_status_ends_openai_streams_as_usual(make: Callable[..., Reply]) -> None:
    ours = events(play(make(model="m"), request(new=9), end=finish_abort(), at=2))
    assert ours[-2]["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize("make", [NativeReply, CompletionReply, ChatReply])
def test_whole_bodies_of_aborted_and_failed_requests_have_their_status(make: Callable[..., Reply]) -> None:
    one = request()
    one.finish = finish_abort("gone", status_code=503)
    assert make(model="m").body(one).status == 503
    one.finish = Finish(kind="error")
    assert make(model="m").body(one).status == 500


@pytest.mark.parametrize("make", [NativeReply, CompletionReply, ChatReply])
def test_a_miscount_and_padding(make: Callable[..., Reply]) -> None:
    stream = play(make(model="m", miscount=2, padding=1000), request(new=3))
    assert [len(event["padding"]) for event in events(stream)[:-1] if "padding" in event] == [1000]
    usage = make(model="m", miscount=2).usage(request(new=3))
    assert usage["completion_tokens"] == 2


def test_cached_tokens_show_in_meta_info_and_in_usage_only_with_the_report() -> None:
    native = events(play(NativeReply(model="m"), request(cached_tokens=3)))[0]["meta_info"]
    assert (native["cached_tokens"], native["cached_tokens_details"]) == (3, {"device": 3, "host": 0})
    for report, details in ((True, {"cached_tokens": 3}), (False, None)):
        one = request(cached_tokens=3)
        one.advance(1.0)
        usage = CompletionReply(model="m", cache_report=report).body(one).content["usage"]
        assert usage["prompt_tokens_details"] == details


def test_a_model_name_with_quotes_stays_json() -> None:
    ours = events(play(CompletionReply(model='say "hi" \\ é'), request()))
    assert ours[0]["model"] == 'say "hi" \\ é'


def test_the_ring_is_never_empty_holds_no_end_token_and_has_pieces_that_are_easy_to_get_wrong() -> None:
    ring = token_ring()
    assert len(ring.ids) == RING + MAX_OUTPUT
    assert EOS_ID not in ring.ids
    assert ring.ids[:100] == ring.ids[RING : RING + 100]
    text = json.loads(b'"' + ring.text_json(0, RING) + b'"')
    assert all(piece in text for piece in ("é", "語言", '"quoted"', "\\", "\n"))
    assert all(ring.text_json(at, at + 1) for at in range(1000))
    assert json.loads(b"[" + ring.ids_json(5, 9) + b"]") == ring.ids[5:9]
    assert ring.ids_json(5, 5) == b""


def test_the_answer_depends_on_the_prompt_alone() -> None:
    one, same, other = (ring_start(prompt_bytes(ids)) for ids in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))
    assert one == same != other


def test_text_prompts_are_counted_in_words_and_signs() -> None:
    assert len(tokenize("Hello, world!")) == 4
    assert tokenize("a b") == tokenize("a  b")
    assert tokenize("") == [1]


def test_prompts_of_anything_but_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="input_ids must be a list of integers"):
        prompt_bytes([1, 2.5])  # type: ignore[list-item]
