"""The self-test's verdict from the two sides of a run."""

from __future__ import annotations

from typing import Any

import pytest
from load_samples import record, result

from pytest_moeperf.errors import LoadError
from pytest_moeperf.load.paced import Report, request_key
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.selftest import SelftestReport, judge

MS = 1_000_000
PROMPTS = [[100 + index, 2, 3, 4] for index in range(4)]
SENT_MS = [10.0 * tick for tick in range(1, 101)]


def server(**changes: Any) -> Report:
    sent = {request_key(prompt): [round(at * MS) for at in SENT_MS] for prompt in PROMPTS}
    return Report(**{"sent_ns": sent, "late_ns": [0], "tick_ns": [1], "interval_ns": 10 * MS, **changes})


def client(*, late_ms: float = 0.005, count: int = 100, **report: Any) -> LoadResult:
    records = [
        record(index=index, slot=index, send=0.0, events=[at + late_ms for at in SENT_MS[:count]]) for index in range(4)
    ]
    return result(*records, **report)


def verdict(load: LoadResult, report: Report | None = None, rate: float = 100.0) -> SelftestReport:
    return judge(load, report or server(), PROMPTS, concurrency=4, rate=rate)


def test_a_client_that_can() -> None:
    seen = verdict(client())
    assert seen.ok
    assert seen.stamp_error_ms_p50 == pytest.approx(0.005)
    assert seen.stamp_error_ms_p99 == pytest.approx(0.005)
    assert seen.offered_events_per_s == pytest.approx(400)
    assert seen.read_events_per_s == pytest.approx(400)
    assert seen.limit_events_per_s == pytest.approx(400 * 0.8 / 0.2)


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (client(late_ms=0.7), "the p99 of the stamp error is 0.700 ms (at most 0.500 ms, kernel clock)"),
        (client(late_ms=1.2, clock="user"), "the p99 of the stamp error is 1.200 ms (at most 1.000 ms, user clock)"),
        (client(count=99), "4 events were sent but not seen"),
        (client(worker_cpu=0.9, workers=1), "a worker used 90% of its core (at most 80%); workers: 1"),
        (client(coalesced_reads=2), "2.0% of the reads held several events of one stream (at most 1%)"),
    ],
)
def test_a_client_that_can_not(load: LoadResult, problem: str) -> None:
    seen = verdict(load)
    assert seen.problems == (problem,)
    assert not seen.ok


def test_a_server_that_was_too_slow_proves_nothing() -> None:
    seen = verdict(client(), rate=200.0)
    assert seen.server_problem == "the paced server sent 400 of 800 events/s: this host has no core left for it"
    assert not seen.ok


def test_unknown_cpu_gives_no_limit() -> None:
    assert verdict(client(worker_cpu=None)).limit_events_per_s is None


def test_a_failed_load_is_an_error() -> None:
    failed = record(events=[1.0], error="connection: gone")
    with pytest.raises(LoadError, match="the self-test's own load failed: connection: gone"):
        verdict(result(failed))
