"""Which runs of a launch count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_moeperf.bench.warmup import STALL, measure_until_steady
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import Check, Distribution, Launch, Metrics, Run
from pytest_moeperf.model.workload import Cell, Workload

NOTHING = Distribution(n=0)
STALLED = Check(name=STALL, status="fail", message="no token for 533 ms", repeatable=True)
BROKEN = Check(name="no_failed_requests", status="fail", message="3 of 16 failed")


def run(index: int, tok_s: float, *checks: Check) -> Run:
    metrics = Metrics(
        completed=1,
        failed=0,
        output_tokens=1,
        duration_s=1.0,
        out_tps=tok_s,
        out_tps_steady=tok_s,
        steady_window_s=1.0,
        steady_share=1.0,
        request_rate=1.0,
        effective_concurrency=1.0,
        ttft_ms=NOTHING,
        tpot_ms=NOTHING,
        ntpot_ms=NOTHING,
        itl_ms=NOTHING,
        icl_ms=NOTHING,
        e2el_ms=NOTHING,
    )
    return Run(
        id=str(index),
        cell=Cell(backend="b", workload=Workload(concurrency=1)),
        launch=Launch(id="l", session="s"),
        index=index,
        started_at="2026-01-01",
        metrics=metrics,
        client=ClientReport(clock="kernel"),
        checks=checks,
    )


def measured(values: Sequence[tuple[float, *tuple[Check, ...]]], runs: int = 3) -> list[Run]:
    return measure_until_steady(lambda index: run(index, *values[index]), runs=runs)


def kept(made: Sequence[Run]) -> list[int]:
    return [one.index for one in made if one.valid and not one.warmup]


def test_a_warm_server_takes_one_warm_up_run_and_no_more() -> None:
    made = measured([(100.0,), (101.0,), (99.0,), (100.0,)])
    assert kept(made) == [1, 2, 3]
    assert made[0].warmup


def test_cold_runs_are_dropped_until_the_trend_is_gone() -> None:
    made = measured([(20.0,), (40.0,), (60.0,), (80.0,), (99.0,), (100.0,), (101.0,)])
    assert kept(made) == [4, 5, 6]
    assert all(one.warmup for one in made[:4])


def test_a_second_run_that_compiles_is_no_run_that_counts() -> None:
    """Measured on an H200, triton_kernel at c=64, right after the kernels of this batch size were met first."""
    made = measured([(7844.3,), (6415.4,), (12139.7,), (12498.6,), (12300.0,)])
    assert kept(made) == [2, 3, 4]
    assert made[1].warmup


def test_a_server_that_never_warms_up_is_judged_as_it_is() -> None:
    made = measured([(10.0 * 2**index,) for index in range(8)])
    assert len(made) == 8
    assert len(kept(made)) >= 3


def test_noise_is_not_taken_for_a_warm_up() -> None:
    made = measured([(100.0,), (115.0,), (90.0,), (108.0,), (101.0,)])
    assert kept(made) == [1, 2, 3]


def test_a_single_stall_is_void_and_repeated() -> None:
    made = measured([(100.0,), (50.0, STALLED), (101.0,), (99.0,), (100.0,)])
    assert kept(made) == [2, 3, 4]
    assert made[1].failures == (STALLED,)


def test_one_stall_is_no_rhythm_however_few_runs_are_asked_for() -> None:
    made = measured([(100.0,), (50.0, STALLED), (101.0,)], runs=1)
    assert kept(made) == [2]
    twice = measured([(100.0,), (99.0, STALLED), (101.0, STALLED)], runs=1)
    assert kept(twice) == [1, 2]


def test_a_stall_in_every_run_is_the_servers_rhythm() -> None:
    made = measured([(100.0, STALLED), (100.0, STALLED), (101.0, STALLED), (99.0, STALLED)])
    assert kept(made) == [1, 2, 3]
    assert made[3].checks[0].status == "pass"
    assert made[3].checks[0].message == ("recurs from run to run, so it is this server's rhythm: no token for 533 ms")


def test_a_stall_beside_another_failure_is_never_believed() -> None:
    throttled = Check(name="no_throttling", status="fail", message="hot", repeatable=True)
    made = measured([(100.0,)] + [(100.0, STALLED, throttled)] * 7)
    assert kept(made) == []
    assert len(made) == 8


@pytest.mark.parametrize("position", [0, 2])
def test_a_server_that_answers_wrongly_is_not_asked_again(position: int) -> None:
    values: list[tuple[float, *tuple[Check, ...]]] = [(100.0,)] * 8
    values[position] = (100.0, BROKEN)
    made = measured(values)
    assert len(made) == position + 1
    assert made[-1].failures == (BROKEN,)
    assert not made[-1].warmup
