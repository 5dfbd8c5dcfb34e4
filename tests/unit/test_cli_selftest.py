"""``moeperf selftest``: the texts, the exit codes, and one real run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cli_samples import moeperf

from pytest_moeperf import selftest
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.selftest import SelftestReport

REPORT = SelftestReport(
    concurrency=1024,
    rate_per_stream=20.0,
    offered_events_per_s=20_431.0,
    read_events_per_s=20_429.5,
    limit_events_per_s=81_200.0,
    stamp_error_ms_p50=0.0121,
    stamp_error_ms_p99=0.0437,
    lost_events=0,
    coalesced_share=0.00004,
    client=ClientReport(clock="kernel", workers=2, worker_cpu=0.2),
    problems=(),
)


@pytest.fixture(autouse=True)
def at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def answering(report: SelftestReport, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Let the self-test come out as ``report``. Returns what it is asked for."""
    asked: list[dict[str, float]] = []

    def run_selftest(**load: float) -> SelftestReport:
        asked.append(load)
        return report

    monkeypatch.setattr(selftest, "run_selftest", run_selftest)
    return asked


def test_a_load_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(REPORT, monkeypatch)
    ran = moeperf("selftest", "--concurrency=1024", "--rate=20", "--duration=3s")
    assert asked == [{"concurrency": 1024, "rate": 20.0, "duration_s": 3.0}]
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
1024 streams x 20 tokens/s = 20.5k events/s asked of 2 workers
  sent         20.4k events/s
  read         20.4k events/s, 0 lost
  limit        about 81.2k events/s, with each worker at 80 % of a core
  stamp error  p50 0.012 ms, p99 0.044 ms (kernel clock)
  coalesced    0.00 % of the reads
this client can read that load
"""
    )


def test_a_load_that_can_not(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(
        REPORT,
        concurrency=1,
        limit_events_per_s=None,
        lost_events=3,
        client=ClientReport(clock="user"),
        problems=(
            "3 events were sent but not seen",
            "the p99 of the stamp error is 9.000 ms (at most 5.000 ms, user clock)",
        ),
    )
    answering(slow, monkeypatch)
    ran = moeperf("selftest")
    assert (ran.code, ran.err) == (1, "")
    assert (
        ran.out
        == """\
1 stream x 20 tokens/s = 20 events/s asked of 1 worker
  sent         20.4k events/s
  read         20.4k events/s, 3 lost
  limit        not known
  stamp error  p50 0.012 ms, p99 0.044 ms (user clock)
  coalesced    0.00 % of the reads
this client can't read that load
  3 events were sent but not seen
  the p99 of the stamp error is 9.000 ms (at most 5.000 ms, user clock)
"""
    )


def test_a_server_that_can_not_keep_its_pace_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(replace(REPORT, server_problem="the paced server sent 9000 of 20480 events/s"), monkeypatch)
    ran = moeperf("selftest")
    assert ran.code == 1
    assert ran.out.endswith(
        "not shown: the paced server sent 9000 of 20480 events/s\n"
        "  next: a lower --rate or --concurrency, or a host with more cores\n"
    )
    assert "can read" not in ran.out


def test_a_real_run_reads_a_small_load() -> None:
    ran = moeperf("selftest", "--concurrency=4", "--rate=20", "--duration=1s", "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err) == (0 if found["ok"] else 1, "")
    assert (found["concurrency"], found["rate_per_stream"], found["lost_events"]) == (4, 20.0, 0)
    assert found["client"]["events"] >= 4 * 20
    assert found["read_events_per_s"] > 0


@pytest.mark.parametrize("rate", ["0", "-1", "inf", "nan", "fast"])
def test_a_rate_must_be_a_number_above_zero(rate: str) -> None:
    ran = moeperf("selftest", f"--rate={rate}")
    assert ran.code == 2
    assert "argument --rate: " in ran.err
