"""The server ran as many at once as the cell says, and by which source that is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from load_samples import record, steady_run

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import Limits, ranks_balanced, running_limits, server_ran_as_asked
from pytest_moeperf.validity.as_asked import most_at_once

LOGS = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-cpu"
WORKLOAD = Workload(concurrency=10, input_len=10, output_len=60)
NOTHING = Limits()
WIDE = Limits(least=2048, most=2048, tokens=100_000)
CAPPED = Limits(least=4, most=4, tokens=100_000)


def capped(*, at: int, of: int = 10) -> tuple[RequestRecord, ...]:
    """A closed loop of ``of`` slots on a server that runs ``at`` at once, each for 100 ms."""
    return tuple(
        record(
            index=n, slot=n % of, send=max(0, n - of) // at * 100.0, events=[n // at * 100.0 + 5, n // at * 100.0 + 99]
        )
        for n in range(4 * of)
    )


def judged(records: Any, limits: Limits = NOTHING, workload: Workload = WORKLOAD, **seen: Any) -> Check:
    return server_ran_as_asked(records, workload, limits, {"samples": 5, **seen} if seen else {})


@pytest.mark.parametrize(("at", "of"), [(4, 10), (10, 10), (1, 3)])
def test_streams_that_overlap(at: int, of: int) -> None:
    assert most_at_once(capped(at=at, of=of)) == at


def test_any_one_source_is_enough() -> None:
    short = [record(index=n, slot=n % 10, send=n * 5.0, events=[n * 5.0 + 4]) for n in range(40)]
    assert judged(capped(at=10)).status == "pass"  # the client's own records
    assert judged(short).status == "fail"
    assert judged(short, WIDE).status == "pass"  # what the server resolved
    assert judged(short, running_max=10.0, queued_max=0.0).status == "pass"  # its gauges
    assert judged(steady_run().records, NOTHING, replace(WORKLOAD, concurrency=4)).status == "pass"


def test_a_cap_is_named() -> None:
    check = judged(capped(at=4), CAPPED)
    assert (check.name, check.status, check.repeatable) == ("server_ran_as_asked", "fail", False)
    assert check.message == (
        "the server runs at most 4 requests at once (its max_running_requests), 10 were asked for: the others waited in "
        "its queue. Raise --max-running-requests, or say queueing=True in the perf marker if its queue is part of the load"
    )


def test_a_queue_that_was_seen() -> None:
    check = judged(capped(at=4), running_max=4.0, queued_max=6.0)
    assert (check.status, check.repeatable) == ("fail", True)
    assert check.message.startswith(
        "the server ran at most 4 of 10 requests at once, and up to 6 waited in its queue (seen"
    )


def test_a_small_cache_is_not_enough_of_a_limit() -> None:
    assert judged(capped(at=4), replace(WIDE, tokens=500)).status == "fail"


def test_neither_shows_it() -> None:
    check = judged(capped(at=4))
    assert (check.status, check.repeatable) == ("fail", True)
    assert check.message == (
        "not shown: whether the server ran 10 requests at once. At most 4 streams overlapped, and it shows no gauges of "
        "its requests. Let it serve /metrics (SGLang: --enable-metrics), or say queueing=True in the perf marker if its "
        "queue is part of the load"
    )


@pytest.mark.parametrize("how", [{"queueing": True}, {"request_rate": 5.0}])
def test_a_queue_that_is_part_of_the_load(how: dict[str, Any]) -> None:
    assert judged(capped(at=4), CAPPED, replace(WORKLOAD, **how)).status == "pass"


STATE = {"effective_max_running_requests_per_dp": 24}


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        (None, Limits()),
        ({"max_running_requests": None}, Limits()),
        # Speculation lowers what nobody set: the resolved number counts.
        ({"internal_states": [STATE | {"x": 1}], "max_running_requests": 48}, Limits(least=24, most=24)),
        ({"internal_states": [STATE, STATE], "dp_size": 2}, Limits(least=48, most=48, ranks=2)),
        (
            {"internal_states": [STATE], "dp_size": 2, "max_total_num_tokens": 7},
            Limits(least=48, most=48, tokens=14, ranks=2),
        ),
        ({"max_running_requests": 4, "dp_size": 2}, Limits(most=8, ranks=2)),
        ({"internal_states": "odd", "max_running_requests": True, "max_total_num_tokens": -1}, Limits()),
        ({"prefill": [{}], "decode": [{"internal_states": [STATE]}] * 2}, Limits(least=48, most=48, ranks=2)),
    ],
)
def test_limits(info: dict[str, Any] | None, limits: Limits) -> None:
    assert running_limits(info) == limits


def test_limits_of_a_real_server() -> None:
    info = json.loads((LOGS / "server_info.json").read_text("utf-8"))
    assert running_limits(info) == Limits(least=2500, most=2500, tokens=20_000)
    # A gateway in front of an attached server may let fewer through.
    assert running_limits(info, direct=False) == Limits(most=2500, tokens=20_000)


def test_uneven_ranks_are_told_and_void_nothing() -> None:
    def of(**ranks: float) -> Check | None:
        return ranks_balanced({"samples": 5, "running_by_rank": ranks})

    assert of(all=4.0) is None
    assert ranks_balanced({}) is None
    even, uneven = of(a=4.0, b=5.0), of(a=11.0, b=0.0, c=0.0, d=0.0)
    assert even is not None
    assert even.status == "pass"
    assert uneven is not None
    assert (uneven.name, uneven.status) == ("ranks_evenly_loaded", "unknown")
    assert uneven.message == (
        "not shown: what evenly loaded ranks give; 11.0 requests ran on a and 0.0 on b on average (in 5 looks)"
    )
