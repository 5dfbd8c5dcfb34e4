"""What of a run gets into a baseline."""

from __future__ import annotations

from dataclasses import replace

from pytest_moeperf.baselines import stored_runs
from pytest_moeperf.model.baseline import StoredRun
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import Check, Distribution, Launch, Metrics, Run
from pytest_moeperf.model.workload import Cell, Workload

METRICS = Metrics(
    completed=40,
    failed=0,
    output_tokens=5120,
    duration_s=7.00049,
    out_tps=700.0,
    out_tps_steady=731.23456789,
    steady_window_s=6.0,
    steady_share=0.86,
    request_rate=5.7,
    effective_concurrency=9.9,
    ttft_ms=Distribution(n=40, mean=41.5, p50=40.0, p99=None),
    tpot_ms=Distribution(n=40, mean=12.5, p50=12.25, p99=14.0),
    ntpot_ms=Distribution(n=40, mean=13.0),
    itl_ms=Distribution(n=5000, mean=12.5, p50=0.0, p99=float("nan")),
    icl_ms=Distribution(n=5000, mean=12.5),
    e2el_ms=Distribution(n=40, mean=1600.0),
    goodput_rps=5.5,
)
RUN = Run(
    id="r1",
    cell=Cell(backend="triton", workload=Workload(concurrency=10)),
    launch=Launch(id="l1", session="s1", start_s=131.00004),
    index=0,
    started_at="2026-11-01T10:00:00Z",
    metrics=METRICS,
    client=ClientReport(clock="kernel"),
)


def test_everything_defined_is_kept_and_nothing_else() -> None:
    assert stored_runs([RUN]) == (
        StoredRun(
            id="r1",
            session="s1",
            launch="l1",
            started_at="2026-11-01T10:00:00Z",
            values={
                "throughput": 731.2346,
                "tpot": 12.5,
                "tpot.p50": 12.25,
                "tpot.p99": 14.0,
                "ttft": 41.5,
                "ttft.p50": 40.0,
                "itl": 12.5,
                "e2el": 1600.0,
            },
            start_s=131.0,
            run_s=7.0,
        ),
    )


def test_what_only_the_test_defines_comes_with_its_bound() -> None:
    (run,) = stored_runs([RUN], [Bound(metric="goodput", slo_ms=(("ttft", 500.0),))])
    assert run.values["goodput"] == 5.5


def test_void_and_warm_up_runs_stay_out_and_the_rest_is_oldest_first() -> None:
    void = replace(RUN, id="void", checks=(Check(name="no_failed_requests", status="fail"),))
    unknown = replace(RUN, id="unknown", checks=(Check(name="throttling", status="unknown"),))
    warm_up = replace(RUN, id="warm-up", warmup=True)
    later = replace(RUN, id="later", started_at="2026-11-01T11:00:00Z")
    assert [run.id for run in stored_runs([later, void, warm_up, unknown])] == ["unknown", "later"]
