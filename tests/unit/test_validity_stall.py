"""A kernel that compiles inside the window is found; a run's own rhythm is not taken for one."""

from __future__ import annotations

import random

import pytest
from load_samples import record, result, steady_run

from pytest_moeperf.validity import compile_stall_check


def test_a_stall_while_decoding() -> None:
    check = compile_stall_check(steady_run(stalls=[(2, 30, 600.0)]))
    assert check.status == "fail"
    assert check.repeatable
    assert "no stream got a token for 610 ms" in check.message
    assert "while all were decoding" in check.message


def test_a_first_token_that_all_waited_for() -> None:
    # As measured on an H200: the first wave compiles, 777 ms against 190 ms.
    check = compile_stall_check(
        steady_run(concurrency=64, tokens=128, step=3.0, wave_ttft=[777, 190, 190, 190], waves=4)
    )
    assert check.status == "fail"
    assert "no stream got a token for 777 ms" in check.message
    assert "64 requests waited for their first token" in check.message
    assert "about 189.6 ms elsewhere" in check.message


@pytest.mark.parametrize("concurrency", [1, 4, 64])
def test_prefill_pauses_between_waves_are_the_rhythm(concurrency: int) -> None:
    assert compile_stall_check(steady_run(concurrency=concurrency, ttft=190.0, step=3.0)).status == "pass"


def test_a_big_first_prefill_before_staggered_ones() -> None:
    # All 16 start together and share one prefill of 160 ms; later each prefills alone, 10 ms, while the others decode.
    records = []
    for slot in range(16):
        first = [160.0 + 10 * k for k in range(20 + 3 * slot)]
        records.append(record(index=slot, slot=slot, send=0.0, events=first))
        start = first[-1] + 0.2
        records.append(record(index=16 + slot, slot=slot, send=start, events=[start + 20 + 10 * k for k in range(60)]))
    assert compile_stall_check(result(*records)).status == "pass"


@pytest.mark.parametrize("concurrency", [1, 8])
def test_slow_steps_in_a_short_run_are_the_rhythm(concurrency: int) -> None:
    assert compile_stall_check(steady_run(concurrency=concurrency, step=95.0, tokens=12, ttft=95.0)).status == "pass"


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_stall_longer_than_all_the_rest_of_the_run(concurrency: int) -> None:
    check = compile_stall_check(steady_run(concurrency=concurrency, waves=2, stalls=[(1, 30, 9000.0)]))
    assert check.status == "fail"
    assert "such a gap is about 10.0 ms elsewhere" in check.message


def test_a_single_slow_stream_is_not_a_stall_of_the_server() -> None:
    load = steady_run()
    late = record(index=99, slot=9, send=0.0, events=[50.0, 1500.0, 1510.0])
    assert compile_stall_check(result(*load.records, late)).status == "pass"


def test_a_hiccup_that_costs_little_passes() -> None:
    assert compile_stall_check(steady_run(tokens=200, stalls=[(1, 50, 120.0)])).status == "pass"


def test_noise_passes() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        noise = [(wave, token, draw.expovariate(1 / 4)) for wave in range(4) for token in range(1, 60)]
        assert compile_stall_check(steady_run(stalls=noise)).status == "pass", seed


def test_a_pause_of_the_client_is_not_the_servers() -> None:
    assert compile_stall_check(steady_run(gap=900.0)).status == "pass"


def test_too_little_to_tell() -> None:
    assert compile_stall_check(result()).status == "unknown"
    assert compile_stall_check(result(record(send=0, events=[10, 900]))).status == "unknown"
