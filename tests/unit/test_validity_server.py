"""The server's own counters against the client's."""

from __future__ import annotations

from typing import Any

import pytest
from load_samples import steady_run

from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import server_checks

WORKLOAD = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16)
BEFORE = {
    "requests": 100,
    "generated_tokens": 5000,
    "prompt_tokens": 900,
    "cached_tokens": 7,
    "aborted": 1,
    "retracted": 2,
}
AFTER = {**BEFORE, "requests": 116, "generated_tokens": 5960, "prompt_tokens": 1060}
NAMES = [
    "server_requests_agree",
    "server_generated_tokens_agree",
    "server_prompt_tokens_agree",
    "server_cached_tokens_agree",
    "server_no_aborts",
    "server_no_retractions",
]


def checks(after: dict[str, Any], before: dict[str, Any] = BEFORE, **options: Any) -> dict[str, Check]:
    return {check.name: check for check in server_checks(before, after, steady_run(), WORKLOAD, **options)}


def test_a_server_that_agrees() -> None:
    seen = checks(AFTER)
    assert list(seen) == NAMES
    assert {check.status for check in seen.values()} == {"pass"}


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (
            {"requests": 120},
            "server_requests_agree",
            "the server counted 20 requests in the run, the client 16: somebody else uses it too",
        ),
        (
            {"requests": 110},
            "server_requests_agree",
            "10 requests in the run, the client 16: some of what was answered",
        ),
        (
            {"generated_tokens": 5961},
            "server_generated_tokens_agree",
            "961 generated tokens in the run, the client 960",
        ),
        ({"prompt_tokens": 1000}, "server_prompt_tokens_agree", "100 prompt tokens in the run, the client 160"),
        ({"cached_tokens": 47}, "server_cached_tokens_agree", "40 cached tokens in the run, the client 0"),
        ({"aborted": 3}, "server_no_aborts", "2 aborted requests in the run, the client 0: it gave up requests"),
        ({"retracted": 3}, "server_no_retractions", "1 retracted requests in the run, the client 0: its KV cache"),
    ],
)
def test_each_disagreement(change: dict[str, Any], name: str, message: str) -> None:
    seen = checks({**AFTER, **change})
    assert [check.name for check in seen.values() if check.status == "fail"] == [name]
    assert message in seen[name].message


def test_what_the_server_does_not_tell_is_unknown() -> None:
    assert {check.status for check in checks({}, {}).values()} == {"unknown"}
    assert (
        checks({**AFTER, "requests": None})["server_requests_agree"].message == "the server does not count its requests"
    )


def test_a_tolerance_for_tokens_only() -> None:
    seen = checks({**AFTER, "generated_tokens": 5965, "requests": 117}, token_tolerance=0.01)
    assert [check.name for check in seen.values() if check.status == "fail"] == ["server_requests_agree"]
