"""Several tokens in one event need somebody else who says so: a counter, or an argument of the server."""

from __future__ import annotations

from typing import Any

import pytest
from load_samples import record

from pytest_moeperf.validity.claimed import claimed_tokens_check

TIMES = list(range(10, 210, 10))


def answers(tokens: list[int], **more: Any) -> list[Any]:
    return [record(index=index, events=TIMES[: len(tokens)], tokens=tokens, **more) for index in range(3)]


def test_on_the_word_of_the_answers_alone_the_run_does_not_count() -> None:
    check = claimed_tokens_check(answers([2] * 20), counted=False)
    assert (check.status, check.repeatable) == ("fail", False)
    assert check.message == (
        "120 tokens are claimed of 60 events, and nothing but the answers themselves says that there were more than "
        "one in each: neither counters of the server nor a stream interval or speculation in its /server_info. Let the "
        "client reach its /metrics (SGLang: --enable-metrics), or have it send each token alone"
    )


@pytest.mark.parametrize(
    ("tokens", "more", "settled"),
    [
        ([1] * 20, {}, {}),
        ([1] * 19 + [2], {}, {}),  # caught up after a hiccup
        ([2] * 20, {}, {"counted": True}),
        ([1] + [20] * 3, {}, {"info": {"stream_interval": 20}}),
        ([1] + [4] * 10, {}, {"info": {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}}),
        ([1] + [4] * 10, {}, {"info": {"prefill": [{}], "decode": [{"stream_interval": 4}]}}),
        ([1] + [3] * 10, {"verify_steps": 10}, {}),
    ],
)
def test_what_settles_it(tokens: list[int], more: dict[str, Any], settled: dict[str, Any]) -> None:
    assert claimed_tokens_check(answers(tokens, **more), **{"counted": False, **settled}).status == "pass"


@pytest.mark.parametrize(
    "info",
    [
        {"stream_interval": 1},
        {"stream_interval": 3},
        {"stream_interval": None},
        {"stream_interval": "20"},
        {"speculative_num_draft_tokens": 8},
        {"speculative_algorithm": None, "speculative_num_draft_tokens": 8},
    ],
)
def test_what_does_not(info: dict[str, Any]) -> None:
    assert claimed_tokens_check(answers([4] * 20), counted=False, info=info).status == "fail"
