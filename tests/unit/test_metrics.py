"""Each metric by hand on a request that can be checked on paper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from load_samples import record, result, steady_run

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.metrics import compute_metrics, distribution, steady_window
from pytest_moeperf.model.bounds import METRICS, Bound
from pytest_moeperf.model.run import Distribution
from pytest_moeperf.model.workload import Workload

ONE = Workload(concurrency=1, input_len=10, output_len=6, num_prompts=1)
# Sent at 100; 2 tokens at 150, 1 at 160, 3 at 190; trailer at 195.
REQUEST = record(send=100, events=[150, 160, 190], tokens=[2, 1, 3], end=195)


def test_one_request() -> None:
    metrics = compute_metrics(result(REQUEST), ONE)
    assert metrics.ttft_ms.mean == pytest.approx(50)
    assert metrics.e2el_ms.mean == pytest.approx(90)
    assert metrics.tpot_ms.mean == pytest.approx(40 / 4)
    assert metrics.ntpot_ms.mean == pytest.approx(90 / 6)
    assert metrics.icl_ms.n == 2
    assert metrics.icl_ms.mean == pytest.approx(20)
    assert metrics.itl_ms.n == 4
    assert metrics.itl_ms.mean == pytest.approx((10 + 3 * 10) / 4)
    assert metrics.tokens_per_event == pytest.approx(2)
    assert metrics.duration_s == pytest.approx(0.090)
    assert metrics.out_tps == pytest.approx(6 / 0.090)
    assert metrics.request_rate == pytest.approx(1 / 0.090)
    assert (metrics.completed, metrics.failed, metrics.output_tokens) == (1, 0, 6)
    assert (metrics.cached_tokens, metrics.prompt_tokens) == (0, 10)


def test_one_token_has_no_tpot() -> None:
    metrics = compute_metrics(result(record(send=0, events=[40])), ONE)
    assert metrics.tpot_ms == Distribution(n=0)
    assert metrics.itl_ms == Distribution(n=0)
    assert metrics.ttft_ms.mean == pytest.approx(40)
    assert metrics.ntpot_ms.mean == pytest.approx(40)


def test_all_tokens_in_the_first_event_have_no_tpot() -> None:
    assert compute_metrics(result(record(send=0, events=[40], tokens=[6])), ONE).tpot_ms.n == 0


def test_nothing_at_all_is_none_and_never_nan() -> None:
    metrics = compute_metrics(result(), ONE)
    assert metrics.out_tps is None
    assert metrics.out_tps_steady is None
    assert metrics.ttft_ms == Distribution(n=0)
    assert metrics.tokens_per_event is None


def test_failed_requests_have_no_latency_and_no_tokens() -> None:
    failed = record(index=1, send=0, events=[5, 6], error="connection: gone")
    empty = record(index=2, send=0)
    metrics = compute_metrics(result(REQUEST, failed, empty), ONE)
    assert (metrics.completed, metrics.failed, metrics.output_tokens) == (1, 2, 6)
    assert metrics.ttft_ms.n == 1
    assert metrics.ttft_ms.mean == pytest.approx(50)


def test_unknown_cached_tokens_of_one_make_the_sum_unknown() -> None:
    assert compute_metrics(result(REQUEST, record(events=[1], cached_tokens=None)), ONE).cached_tokens is None


def test_without_the_servers_count_the_events_count() -> None:
    metrics = compute_metrics(result(record(send=0, events=[10, 20], tokens=[1, 2], completion_tokens=None)), ONE)
    assert metrics.output_tokens == 3
    assert metrics.tpot_ms.mean == pytest.approx(5)


@pytest.mark.parametrize(
    ("n", "p50", "p90", "p99"),
    [(1, False, False, False), (2, True, False, False), (9, True, False, False), (10, True, True, False),
     (99, True, True, False), (100, True, True, True)],
)  # fmt: skip
def test_percentiles_need_a_sample_that_carries_them(n: int, p50: bool, p90: bool, p99: bool) -> None:
    seen = distribution([float(value) for value in range(n)])
    assert (seen.p50 is not None, seen.p90 is not None, seen.p99 is not None) == (p50, p90, p99)
    assert (seen.minimum, seen.maximum) == (0, n - 1)


def test_percentiles_are_numpys_linear_ones() -> None:
    seen = distribution([float(value) for value in range(101)])
    assert (seen.p50, seen.p90, seen.p99, seen.mean) == (50, 90, 99, 50)
    assert distribution([1.0, 2.0]).p50 == 1.5


def test_goodput_counts_requests_that_meet_every_limit() -> None:
    slow = record(index=1, send=100, events=[180, 185, 190], tokens=[2, 1, 3])
    one_token = record(index=2, send=100, events=[150])
    failed = record(index=3, send=100, events=[150], error="http: status 500")
    load = result(REQUEST, slow, one_token, failed)
    assert compute_metrics(load, ONE).goodput_rps is None
    assert compute_metrics(load, ONE, slo=[("ttft", 60.0)]).goodput_rps == pytest.approx(2 / 0.090)
    assert compute_metrics(load, ONE, slo=[("ttft", 60.0), ("tpot", 10.0)]).goodput_rps == pytest.approx(1 / 0.090)
    assert compute_metrics(load, ONE, slo=[("itl", 9.9)]).goodput_rps == pytest.approx(1 / 0.090)
    with pytest.raises(UsageProblem, match="unknown metric 'speed'"):
        compute_metrics(load, ONE, slo=[("speed", 1.0)])


class TestSteady:
    def test_a_synchronous_closed_loop_is_steady_throughout(self) -> None:
        load = steady_run(concurrency=4, waves=4)
        metrics = compute_metrics(load, Workload(concurrency=4, output_len=60, num_prompts=16))
        assert metrics.steady_share == pytest.approx(1.0, abs=0.001)
        assert metrics.effective_concurrency == pytest.approx(4, rel=0.002)
        assert metrics.out_tps_steady == pytest.approx(metrics.out_tps, rel=0.005)

    def test_one_stream_is_one_window_in_spite_of_the_turnaround(self) -> None:
        load = steady_run(concurrency=1, waves=4)
        metrics = compute_metrics(load, Workload(concurrency=1, output_len=60))
        assert metrics.steady_share == pytest.approx(1.0)
        assert metrics.out_tps_steady == pytest.approx(240 / metrics.duration_s)

    def test_ramp_and_drain_are_outside(self) -> None:
        # Four slots start one second apart and end one second apart; each sends a token every 100 ms.
        records = [
            record(index=slot, slot=slot, send=1000 * slot, events=[1000 * slot + 100 * k for k in range(1, 101)])
            for slot in range(4)
        ]
        workload = Workload(concurrency=4, num_prompts=4)
        assert steady_window(result(*records), workload) == (3_000_000_000, 10_000_000_000)
        metrics = compute_metrics(result(*records), workload)
        assert metrics.out_tps_steady == pytest.approx(40)
        assert metrics.out_tps == pytest.approx(400 / 13)
        assert metrics.steady_share == pytest.approx(7 / 13)
        assert metrics.effective_concurrency == pytest.approx(4)

    def test_a_straddling_request_counts_by_its_events(self) -> None:
        records = [
            record(index=0, slot=0, send=0, events=[100, 200, 300, 400]),
            record(index=1, slot=1, send=250, events=[350, 450, 550], end=550),
        ]
        metrics = compute_metrics(result(*records), Workload(concurrency=2, num_prompts=2))
        assert metrics.steady_window_s == pytest.approx(0.150)
        assert metrics.out_tps_steady == pytest.approx(3 / 0.150)

    def test_a_slow_turnaround_shows_in_the_effective_concurrency(self) -> None:
        load = steady_run(concurrency=2, waves=3, tokens=10, step=10, ttft=10, gap=20)
        metrics = compute_metrics(load, Workload(concurrency=2, output_len=10, num_prompts=6))
        assert metrics.effective_concurrency == pytest.approx(2 * 300 / 340, rel=0.01)

    def test_too_few_slots_have_no_window(self) -> None:
        metrics = compute_metrics(steady_run(concurrency=2), Workload(concurrency=4, num_prompts=8))
        assert metrics.steady_window_s is None
        assert metrics.out_tps_steady is None
        assert metrics.effective_concurrency is None

    def test_an_open_loop_is_taken_from_the_first_completion_to_the_last_send(self) -> None:
        records = [record(index=k, slot=k, send=100 * k, events=[100 * k + 30, 100 * k + 50]) for k in range(5)]
        metrics = compute_metrics(result(*records), Workload(concurrency=8, num_prompts=5, request_rate=10.0))
        assert metrics.steady_window_s == pytest.approx(0.350)
        assert metrics.out_tps_steady == pytest.approx(6 / 0.350)
        assert metrics.effective_concurrency == pytest.approx(150 / 350)


def test_no_value_is_negative_or_nan_whatever_the_records() -> None:
    metrics = compute_metrics(steady_run(), Workload(concurrency=4, output_len=60))
    assert metrics.undefined == {}
    for name in set(metrics.__slots__) - {"undefined"}:
        value = getattr(metrics, name)
        values = [getattr(value, field) for field in value.__slots__] if isinstance(value, Distribution) else [value]
        assert all(number is None or (math.isfinite(number) and number >= 0) for number in values), name


class TestImpossibleTimes:
    """A wall clock that is set moves kernel stamps; what they say then is no time at all."""

    @pytest.mark.parametrize(
        ("step_ms", "said"),
        [
            (-1_699_974.0, "request 1 was stamped 1.7e+06 ms before what came first: the clock was set during the run"),
            (3_600_000.0, "request 1 was stamped 3.59e+06 ms after the end: the clock was set during the run"),
        ],
    )
    def test_a_void_run_holds_counts_and_no_times(self, step_ms: float, said: str) -> None:
        one = record(events=[10, 20, 30])
        stepped = record(index=1, send=40, events=[step_ms + at for at in (50, 60, 70)], end=step_ms + 70)
        metrics = compute_metrics(replace(result(one, stepped), end_ns=10**10), Workload(concurrency=1, num_prompts=2))
        assert (metrics.completed, metrics.output_tokens, metrics.duration_s) == (2, 6, 10.0)
        assert metrics.undefined == dict.fromkeys(METRICS, said)
        assert [metrics.value(Bound(metric=metric)) for metric in METRICS] == [None] * len(METRICS)
        assert metrics.icl_ms.n == metrics.ntpot_ms.n == 0
        assert metrics.steady_window_s is metrics.request_rate is None

    def test_a_read_that_the_client_stamped_late_is_no_clock_that_was_set(self) -> None:
        late = record(send=0, events=[10, 25, 22])
        workload = Workload(concurrency=1, num_prompts=1)
        assert compute_metrics(result(late, unstamped_reads=1, stamp_delay_ms_max=5.0), workload).ttft_ms.mean == 10
        assert compute_metrics(result(late), workload).ttft_ms.mean is None


def test_accepted_tokens_are_known_where_every_answer_tells_its_steps() -> None:
    def accepted(*steps: int | None) -> float | None:
        records = [record(index=i, events=[10, 20, 30, 40], verify_steps=count) for i, count in enumerate(steps)]
        return compute_metrics(result(*records), Workload(concurrency=1, num_prompts=2)).accepted_per_step

    assert accepted(2, 2) == 2.0
    assert accepted(2, None) is None
    assert accepted(None, None) is None
