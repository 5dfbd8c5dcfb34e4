"""The self-test end to end, and its paced server."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from pytest_moeperf.errors import LoadError
from pytest_moeperf.selftest import run_selftest


def test_every_event_is_accounted_for_and_nothing_is_left_running() -> None:
    report = run_selftest(concurrency=4, rate=50.0, duration_s=0.5)
    assert report.lost_events == 0
    assert report.client.events == 4 * 25
    assert report.rate_per_stream == 50.0
    assert 0 < report.stamp_error_ms_p50 <= report.stamp_error_ms_p99
    assert report.limit_events_per_s is not None
    assert report.limit_events_per_s > report.read_events_per_s
    assert psutil.Process().children() == []


@pytest.mark.parametrize(("concurrency", "rate", "duration_s"), [(0, 1.0, 1.0), (1, 0.0, 1.0), (1, 1.0, -1.0)])
def test_impossible_self_tests(concurrency: int, rate: float, duration_s: float) -> None:
    with pytest.raises(LoadError, match="must all be above 0"):
        run_selftest(concurrency=concurrency, rate=rate, duration_s=duration_s)


def test_the_paced_server_ends_with_its_owner() -> None:
    command = [sys.executable, "-m", "pytest_moeperf.load.paced", "--interval-ms", "10", "--with-owner"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert int(server.stdout.readline()) > 0
        server.stdin.close()
        assert server.wait(10) == 0
