"""Every client check, with a fault that triggers it and the figures it shows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from load_samples import record, result, steady_run

from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.server_info import page_size
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import client_checks, window_check
from pytest_moeperf.validity.cache import Reuse

WORKLOAD = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16)
NAMES = [
    "all_requests_sent",
    "no_failed_requests",
    "no_in_band_errors",
    "streams_complete",
    "tokens_as_requested",
    "tokens_of_each_event",
    "finish_reason_length",
    "prompt_tokens_as_sent",
    "cached_tokens_as_declared",
    "effective_concurrency",
    "window_long_enough",
    "client_not_bottleneck",
    "clocks_monotonic",
    "schedule_kept",
    "no_stall_in_window",
]


def checks(load: LoadResult, workload: Workload = WORKLOAD, **options: Any) -> dict[str, Check]:
    return {check.name: check for check in client_checks(load, compute_metrics(load, workload), workload, **options)}


def failures(load: LoadResult, workload: Workload = WORKLOAD, **options: Any) -> list[str]:
    return [name for name, check in checks(load, workload, **options).items() if check.status == "fail"]


def with_first(load: LoadResult, client: dict[str, Any] | None = None, **fields: Any) -> LoadResult:
    """The same run whose first request differs in ``fields``."""
    first, *others = load.records
    values = {name: getattr(first, name) for name in first.__slots__}
    changed = type(first)(**{**values, **fields})
    return result(changed, *others, **(client or {}))


GOOD = steady_run()


def test_a_good_run_passes_every_check() -> None:
    assert list(checks(GOOD)) == NAMES
    assert {check.status for check in checks(GOOD).values()} == {"pass"}


@pytest.mark.parametrize(
    ("fields", "failed", "message"),
    [
        (
            {"error": "connection: closed inside a chunked body, after 56 bytes", "done": False},
            ["no_failed_requests"],
            "1 of 16 requests failed; request 0: connection: closed inside a chunked body, after 56 bytes",
        ),
        ({"error": "http: status 503 Busy", "done": False, "status": 503}, ["no_failed_requests"], "status 503"),
        ({"error": "timeout: not finished 3 s after the run began"}, ["no_failed_requests"], "not finished 3 s"),
        (
            {"error": "in_band_error: out of memory"},
            ["no_in_band_errors"],
            "1 of 16 requests got an error inside a stream with status 200; request 0: in_band_error: out of memory",
        ),
        ({"error": "protocol: the stream ended without [DONE]"}, ["streams_complete"], "without [DONE]"),
        ({"done": False}, ["streams_complete"], "1 of 16 requests did not end as the protocol says; request 0: no [DONE]"),
        ({"finish_reason": None}, ["streams_complete"], "request 0: no finish reason"),
        (
            {"completion_tokens": 59},
            ["tokens_as_requested"],
            "request 0: asked 60, the server counted 59, 60 arrived, finish reason length",
        ),
        ({"requested_tokens": 61}, ["tokens_as_requested"], "asked 61, the server counted 60"),
        (
            {"completion_tokens": None},
            ["tokens_as_requested"],
            "request 0: not shown: the server sends no usage, so how many tokens were generated nobody knows (asked 60, "
            "60 events with text arrived); let it answer stream_options.include_usage",
        ),
        (
            {"completion_tokens": 63},
            ["tokens_as_requested"],
            "asked 60, the server counted 63, 60 arrived, finish reason length: more than asked for, as when speculation "
            "runs past the end of an answer",
        ),
        (
            {"completion_tokens": 64, "requested_tokens": 64, "event_tokens": array("i", [1] * 59 + [5])},
            ["tokens_as_requested"],
            "asked 64, the server counted 64, but 5 of them in the last event, where the events before it brought 1 at "
            "most: they were counted, not delivered",
        ),
        (
            {"finish_reason": "stop (NaN happened)"},
            ["finish_reason_length"],
            "requests ended otherwise than by their length: 1 x 'stop (NaN happened)'",
        ),
        ({"prompt_tokens": 11}, ["prompt_tokens_as_sent"], "request 0: sent 10 tokens, the server counted 11"),
        (
            {"cached_tokens": 8},
            ["cached_tokens_as_declared"],
            "8 of 160 prompt tokens came from the prefix cache, at most 1 were declared",
        ),
        ({"send_ns": 51_000_000}, ["clocks_monotonic"], "request 0 has an event 1.000 ms before the one it follows"),
    ],
)  # fmt: skip
def test_faults_of_one_request(fields: dict[str, Any], failed: list[str], message: str) -> None:
    load = with_first(GOOD, **fields)
    assert failures(load) == failed
    assert message in checks(load)[failed[0]].message


def test_requests_that_were_not_sent() -> None:
    load = result(*GOOD.records[:12])
    assert checks(load)["all_requests_sent"].message == (
        "12 of 16 requests were sent: sending ends at the first failure or time-out"
    )


@pytest.mark.parametrize(
    ("client", "message", "repeatable"),
    [
        ({"worker_cpu": 0.93, "workers": 1, "events": 5}, "a load worker used 93% of its core (at most 80%)", False),
        ({"coalesced_reads": 30, "stamp_delay_ms_p99": 12.0}, "30.0% of the reads held more than one event", True),
        ({"clock": "user", "loop_stall_ms_max": 8.0}, "the client looked away for 8.0 ms (at most 1.0 ms", True),
    ],
)
def test_a_client_that_is_the_bottleneck(client: dict[str, Any], message: str, repeatable: bool) -> None:
    check = checks(with_first(GOOD, client))["client_not_bottleneck"]
    assert check.status == "fail"
    assert message in check.message
    assert check.repeatable is repeatable


def test_a_client_that_reads_each_answer_over_and_over_is_told_the_servers_flag() -> None:
    busy = with_first(GOOD, {"worker_cpu": 0.93, "workers": 1, "events": 5})
    assert checks(busy, repeats_answers=True)["client_not_bottleneck"].message == (
        "a load worker used 93% of its core (at most 80%): 1 workers are too few for 5 events; each event repeats the "
        "whole answer so far: start the server with --incremental-streaming-output, and an event holds only what is new"
    )
    assert "--incremental" not in checks(busy)["client_not_bottleneck"].message
    assert failures(GOOD, repeats_answers=True) == []


@pytest.mark.parametrize(
    "client",
    [
        {"coalesced_reads": 30, "stamp_delay_ms_p99": 0.02},  # the server itself sends its events together
        {"loop_stall_ms_max": 8.0},  # harmless with kernel stamps
    ],
)
def test_what_does_not_make_the_client_a_bottleneck(client: dict[str, Any]) -> None:
    assert failures(with_first(GOOD, client)) == []


def test_a_stepped_clock() -> None:
    assert "the wall clock was stepped by -12.00 ms inside the run" in (
        checks(with_first(GOOD, {"clock_step_ms": -12.0}))["clocks_monotonic"].message
    )
    assert failures(with_first(GOOD, {"clock_step_ms": -12.0, "clock": "user"})) == []


class TestCache:
    def test_an_accidental_token_in_a_long_prompt_passes(self) -> None:
        load = with_first(steady_run(), prompt_tokens=1000, prompt_len=1000, cached_tokens=3)
        assert failures(load) == []

    def test_a_declared_prefix(self) -> None:
        workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, shared_prefix_len=8)
        used = result(*(_with(one, cached_tokens=8) for one in GOOD.records))
        assert failures(used, workload) == []
        assert failures(used) == ["cached_tokens_as_declared"]
        more = result(*(_with(one, cached_tokens=10) for one in GOOD.records))
        assert failures(more, workload) == ["cached_tokens_as_declared"]

    def test_a_declared_prefix_that_nobody_reused(self) -> None:
        workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, shared_prefix_len=8)
        check = checks(GOOD, workload)["cached_tokens_as_declared"]
        assert check.message == (
            "a shared prefix of 8 tokens is declared, and 0 tokens came from the prefix cache (at least 48 are expected "
            "of the 12 requests after the first 4): is the cache on, and large enough (no --disable-radix-cache, no "
            "--no-enable-prefix-caching)? Else drop shared_prefix_len"
        )
        assert not check.repeatable

    @pytest.mark.parametrize(
        ("each", "page", "status"), [(4, 1, "pass"), (3, 1, "fail"), (1, 4, "fail"), (2, 4, "pass")]
    )
    def test_half_of_the_pages_is_enough(self, each: int, page: int, status: str) -> None:
        workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, shared_prefix_len=7)
        load = result(*(_with(one, cached_tokens=0 if one.index < 4 else each) for one in GOOD.records))
        reuse = Reuse(most_tokens=15 * 7, page_size=page)
        assert checks(load, workload, reuse=reuse)["cached_tokens_as_declared"].status == status

    def test_a_prefix_below_a_page(self) -> None:
        workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, shared_prefix_len=8)
        reuse = Reuse(most_tokens=0, page_size=64)
        assert checks(GOOD, workload, reuse=reuse)["cached_tokens_as_declared"].message == (
            "shared_prefix_len=8 is less than a page of the server's prefix cache (64 tokens), so nothing of it can be "
            "reused: make it at least 64"
        )

    def test_a_declared_prefix_that_the_answers_do_not_tell(self) -> None:
        workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, shared_prefix_len=8)
        load = result(*(_with(one, cached_tokens=None) for one in GOOD.records))
        check = checks(load, workload)["cached_tokens_as_declared"]
        assert check.status == "fail"
        assert check.message.startswith("not shown: 16 of 16 answers don't say how many of their prompt tokens")
        assert "--enable-cache-report" in check.message

    def test_first_tokens_that_a_small_vocabulary_forces_upon_prompts(self) -> None:
        load = result(*(_with(one, cached_tokens=1 if one.index > 2 else 0) for one in GOOD.records))
        assert failures(load) == ["cached_tokens_as_declared"]
        assert failures(load, reuse=Reuse(most_tokens=13, page_size=1)) == []

    def test_unknown_is_said(self) -> None:
        load = result(*(_with(one, cached_tokens=None, prompt_tokens=None) for one in GOOD.records))
        seen = checks(load)
        assert [seen[name].status for name in ("cached_tokens_as_declared", "prompt_tokens_as_sent")] == ["unknown"] * 2


def _with(one: Any, **fields: Any) -> Any:
    return type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, **fields})


def test_a_slow_turnaround_is_not_the_concurrency_that_was_asked_for() -> None:
    load = steady_run(gap=60.0)
    check = checks(load)["effective_concurrency"]
    assert check.status == "fail"
    assert "requests were in flight on average, 4 were asked for (-" in check.message
    assert check.repeatable


def test_too_few_at_once() -> None:
    workload = Workload(concurrency=8, input_len=10, output_len=60, num_prompts=16)
    seen = checks(steady_run(), workload)
    assert seen["effective_concurrency"].message == "8 requests were never in flight at once"
    assert seen["window_long_enough"].message.startswith("there was no steady window")


class TestWindow:
    def check(self, load: LoadResult, workload: Workload, **limits: Any) -> Check:
        return window_check(load, compute_metrics(load, workload), workload, **limits)

    def test_too_short_in_time_says_how_many_prompts_would_do(self) -> None:
        load = steady_run(concurrency=1, waves=4, tokens=128, step=1.3, ttft=5)
        check = self.check(load, Workload(concurrency=1, output_len=128))
        assert check.status == "fail"
        assert check.message == (
            "the steady window is 0.68 s and 512 steps long; at least 1 s and 50 steps are needed "
            "(num_prompts=6 would do, it was 4)"
        )

    def test_too_few_steps(self) -> None:
        load = steady_run(concurrency=2, waves=2, tokens=10, step=100.0)
        check = self.check(load, Workload(concurrency=2, output_len=10, num_prompts=4))
        assert check.status == "fail"
        assert "20 steps long" in check.message

    def test_the_limits_are_arguments(self) -> None:
        load = steady_run(concurrency=2, waves=2, tokens=10, step=100.0)
        workload = Workload(concurrency=2, output_len=10, num_prompts=4)
        assert self.check(load, workload, min_window_s=0.5, min_steps=10).status == "pass"


@pytest.mark.parametrize(("lag_ms", "status"), [(9.0, "pass"), (60.0, "fail")])
def test_an_open_loop_that_falls_behind(lag_ms: float, status: str) -> None:
    workload = Workload(concurrency=4, input_len=10, output_len=60, num_prompts=16, request_rate=10.0)
    check = checks(with_first(GOOD, {"schedule_lag_ms_p99": lag_ms}), workload)["schedule_kept"]
    assert check.status == status
    if status == "fail":
        assert check.message == (
            "the p99 of the delay between planned and actual send is 60.0 ms (at most 50.0 ms): "
            "with 4 requests in flight the server is slower than 10 requests/s"
        )


def test_in_an_open_loop_the_concurrency_is_a_cap() -> None:
    workload = Workload(concurrency=64, input_len=10, output_len=60, num_prompts=16, request_rate=10.0)
    assert checks(GOOD, workload)["effective_concurrency"].status == "pass"


def test_each_check_is_made_even_without_a_record() -> None:
    empty: Sequence[str] = failures(result())
    assert "all_requests_sent" in empty
    assert record(events=[1.0]).ok


@pytest.mark.parametrize("step_s", [-1700, 3600])
def test_a_clock_that_was_set_voids_the_run_and_is_the_only_thing_said(step_s: int) -> None:
    """What a window or a stall would be then is not known; the run is repeated."""
    step_ns = step_s * 10**9
    records = [
        replace(one, event_ns=array("q", [at + step_ns for at in one.event_ns]), end_ns=(one.end_ns or 0) + step_ns)
        if one.index >= 8
        else one
        for one in GOOD.records
    ]
    load = replace(GOOD, records=tuple(records), client=replace(GOOD.client, clock_step_ms=step_s * 1e3))
    found = checks(load)
    assert [(name, check.repeatable) for name, check in found.items() if check.status == "fail"] == [
        ("clocks_monotonic", True)
    ]
    assert {name for name, check in found.items() if check.status == "unknown"} == {
        "effective_concurrency",
        "window_long_enough",
        "no_stall_in_window",
    }


@pytest.mark.parametrize(
    ("info", "tokens"),
    [
        ({"page_size": 64}, 64),
        ({"page_size": 1, "internal_states": [{"page_size": 32}, {"page_size": 32}]}, 32),
        ({"page_size": 1, "internal_states": [{}, "odd"]}, 1),
        ({"page_size": None, "internal_states": None}, None),
        ({"page_size": 0}, None),
        ({"page_size": True}, None),
        ({}, None),
    ],
)
def test_the_page_that_a_server_says_its_cache_keeps(info: dict[str, Any], tokens: int | None) -> None:
    assert page_size(info) == tokens
