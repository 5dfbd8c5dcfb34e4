"""The scheduler and the step model in virtual time: exact, no clock."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pytest_moeperf.engines.simulated.engine import (
    STALL_AT_STEP,
    Disturbance,
    Finish,
    Request,
    Scheduler,
    StepModel,
    finish_abort,
    finish_stop,
)
from pytest_moeperf.engines.simulated.noise import Noise
from pytest_moeperf.engines.simulated.profile import NoiseLevels, StepTimes, Warmup

QUIET = NoiseLevels(session_sd=0.0, launch_sd=0.0, run_sd=0.0, step_sd=0.0, run_gap_s=0.5)
TIMES = StepTimes(a_ms=10.0, b_ms=1.0, prefill_ms_per_token=0.1)


def scheduler(
    *,
    times: StepTimes = TIMES,
    warmup: Warmup | None = None,
    disturbance: Disturbance | None = None,
    most: int = 100,
    time_scale: float = 1.0,
) -> Scheduler:
    noise = Noise(QUIET, seed=0, session_key="", launch_key="", profile_name="p")
    model = StepModel(
        times=times,
        levels=QUIET,
        warmup=warmup or Warmup(),
        noise=noise,
        disturbance=disturbance or Disturbance(),
        time_scale=time_scale,
    )
    return Scheduler(model, max_running_requests=most)


def request(rid: str = "r", *, at: float = 0.0, prompt: int = 0, new: int = 3, cached: int = 0) -> Request:
    return Request(rid=rid, prompt_tokens=prompt, max_new_tokens=new, arrival_s=at, cached_tokens=cached)


def play(sched: Scheduler, steps: int | None = None) -> list[tuple[float, list[str]]]:
    """Step until idle (or ``steps`` times): for each step its end in ms and the ids that it moved."""
    seen: list[tuple[float, list[str]]] = []
    end_s = 0.0
    while steps is None or len(seen) < steps:
        start_s = sched.next_start_s(end_s)
        if start_s is None:
            break
        end_s = start_s + sched.begin_step(start_s).duration_s
        seen.append((round(end_s * 1e3, 6), [moved.rid for moved in sched.end_step(end_s)]))
    return seen


def durations_ms(sched: Scheduler) -> list[float]:
    ends = [0.0, *(end for end, _ in play(sched))]
    return [round(right - left, 6) for left, right in pairwise(ends)]


def test_one_request_gets_a_token_a_step_and_pays_for_its_prompt_once() -> None:
    sched = scheduler()
    one = request(prompt=100, new=3)
    sched.submit(one)
    # 10 + 1 * 1 ms a step, and 100 * 0.1 ms in the first.
    assert play(sched) == [(21.0, ["r"]), (32.0, ["r"]), (43.0, ["r"])]
    assert one.completion_tokens == 3
    assert one.finish is not None
    assert one.finish.reason == {"type": "length", "length": 3}
    assert one.admitted_s == 0.0
    assert one.first_token_s == pytest.approx(0.021)
    assert sched.next_start_s(1.0) is None


def test_cached_prompt_tokens_cost_nothing() -> None:
    sched = scheduler()
    sched.submit(request(prompt=100, cached=60, new=1))
    assert play(sched) == [(15.0, ["r"])]


def test_a_batch_shares_its_steps_and_late_comers_join_the_next_one() -> None:
    sched = scheduler()
    sched.submit(request("a", at=0.0))
    sched.submit(request("b", at=0.005))
    # b arrives during the first step; the second has both, 10 + 2 ms.
    assert play(sched) == [(11.0, ["a"]), (23.0, ["a", "b"]), (35.0, ["a", "b"]), (46.0, ["b"])]


def test_a_request_is_admitted_only_by_a_step_that_starts_after_it_came() -> None:
    sched = scheduler()
    sched.submit(request("a", at=0.0, new=2))
    sched.submit(request("b", at=0.011_001, new=1))
    assert play(sched) == [(11.0, ["a"]), (22.0, ["a"]), (33.0, ["b"])]


def test_no_more_run_than_may_and_the_queue_keeps_its_order() -> None:
    sched = scheduler(most=2)
    for rid in "abc":
        sched.submit(request(rid, new=1 if rid == "a" else 2))
    assert play(sched) == [(12.0, ["a", "b"]), (24.0, ["b", "c"]), (35.0, ["c"])]


def test_an_idle_server_starts_when_the_request_comes() -> None:
    sched = scheduler()
    sched.submit(request(at=7.0, new=1))
    assert sched.next_start_s(2.0) == 7.0
    assert play(sched) == [(7011.0, ["r"])]


def test_a_step_without_requests_is_a_mistake() -> None:
    sched = scheduler()
    sched.submit(request(at=5.0))
    with pytest.raises(RuntimeError, match="a step needs a request"):
        sched.begin_step(1.0)


def test_an_early_end_and_an_empty_one() -> None:
    sched = scheduler()
    early, empty = request("early", new=9), request("empty", new=9)
    early.end_after, early.end_as = 2, finish_stop("NaN happened")
    empty.end_after, empty.end_as = 0, Finish(kind="error")
    sched.submit(early)
    sched.submit(empty)
    play(sched)
    assert (early.completion_tokens, early.finish) == (2, finish_stop("NaN happened"))
    assert (empty.completion_tokens, empty.finish, empty.first_token_s) == (0, Finish(kind="error"), None)


def test_aborting_running_waiting_and_gone() -> None:
    sched = scheduler(most=1)
    running, waiting = request("running"), request("waiting")
    sched.submit(running)
    sched.submit(waiting)
    sched.begin_step(0.0)
    assert sched.abort(waiting, finish_abort())
    assert sched.abort(running, finish_abort())
    assert not sched.abort(running, finish_stop())
    assert running.finish == finish_abort()
    assert (list(sched.waiting), sched.running, sched.end_step(1.0)) == ([], [], [])


def test_disturbances() -> None:
    slow = scheduler(disturbance=Disturbance(sleep_s=0.02))
    slow.submit(request(new=1))
    assert durations_ms(slow) == [31.0]
    throttled = scheduler(disturbance=Disturbance(throttle=1.5))
    throttled.submit(request(new=1))
    assert durations_ms(throttled) == [16.5]


def test_time_scale_shortens_the_model_but_not_an_ordered_sleep() -> None:
    sched = scheduler(time_scale=0.1, disturbance=Disturbance(sleep_s=0.02))
    sched.submit(request(prompt=10, new=1))
    assert durations_ms(sched) == [21.2]


def test_an_ordered_stall_hits_one_step_of_the_next_run_only() -> None:
    disturbance = Disturbance()
    sched = scheduler(disturbance=disturbance)
    sched.submit(request(new=2 * STALL_AT_STEP))
    play(sched, steps=1)
    disturbance.stall_s = 1.0
    # This run had begun before the order.
    assert max(end for end, _ in play(sched)) < 1000
    sched.order_new_run()
    sched.submit(request(new=2 * STALL_AT_STEP))
    spans = durations_ms(sched)
    assert [at for at, span in enumerate(spans, start=1) if span > 500] == [STALL_AT_STEP]
    assert disturbance.stall_s == 0.0


def test_young_batch_sizes_are_slow_by_bucket_and_stall_once() -> None:
    warmup = Warmup(runs=2, factor=2.0, compile_stall_ms=100.0)
    sched = scheduler(times=StepTimes(a_ms=10.0, b_ms=0.0), warmup=warmup)
    spans = []
    for sizes in (1, 1, 1, 2):
        sched.order_new_run()
        for _ in range(sizes):
            sched.submit(request(new=2))
        spans.append(durations_ms(sched))
    assert spans == [[120.0, 20.0], [20.0, 20.0], [10.0, 10.0], [120.0, 20.0]]


@pytest.mark.parametrize(("gap_s", "expected_runs"), [(0.4, 1), (0.6, 2)])
def test_a_gap_starts_a_new_run(gap_s: float, expected_runs: int) -> None:
    sched = scheduler()
    sched.submit(request(new=1))
    end_s = play(sched)[-1][0] * 1e-3
    sched.submit(request(at=end_s + gap_s, new=1))
    play(sched)
    assert sched.model.noise.run_index == expected_runs


def test_a_flush_starts_a_new_run_but_not_in_the_middle_of_one() -> None:
    sched = scheduler()
    sched.submit(request(new=3))
    play(sched, steps=1)
    sched.order_new_run()
    play(sched)
    assert sched.model.noise.run_index == 1
    sched.submit(request(new=1))
    play(sched)
    assert sched.model.noise.run_index == 2
