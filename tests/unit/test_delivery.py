"""What is believed of how answers arrive: lumps that the server sends, and bundles that something on the way makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from load_samples import record, result

from pytest_moeperf.delivery import UNSHOWN, arrivals_of, tokens_until
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Metrics
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity import client_checks, compile_stall_check, window_check

STEP, TTFT, TOKENS = 8.0, 40.0, 64
Delivery = Callable[[Sequence[float]], tuple[list[float], list[int]]]
"""When each token was generated -> when events came, and with how many tokens."""


def one_by_one(times: Sequence[float]) -> tuple[list[float], list[int]]:
    return list(times), [1] * len(times)


def interval(size: int) -> Delivery:
    """As SGLang does: the first token, then each ``size``-th, then the last."""

    def deliver(times: Sequence[float]) -> tuple[list[float], list[int]]:
        last = len(times) - 1
        sent = [n for n in range(len(times)) if n == 0 or (n + 1) % size == 0 or n == last]
        return [times[n] for n in sent], [n - before for before, n in zip([-1, *sent], sent, strict=False)]

    return deliver


def flushed(*ends: int, apart: float = 0.02) -> Delivery:
    """Something on the way holds one-token events back until the token of ``ends`` is there."""

    def deliver(times: Sequence[float]) -> tuple[list[float], list[int]]:
        came, begin = [], 0
        for end in ends:
            came += [times[end - 1] + apart * k for k in range(end - begin)]
            begin = end
        return came, [1] * len(times)

    return deliver


def run(
    deliver: Delivery, *, concurrency: int = 4, waves: int = 3, step: float = STEP, ttft: float = TTFT
) -> LoadResult:
    records = []
    for slot in range(concurrency):
        now = slot * 13.0
        for wave in range(waves):
            events, tokens = deliver([now + ttft + step * n for n in range(TOKENS)])
            records.append(record(index=wave * concurrency + slot, slot=slot, send=now, events=events, tokens=tokens))
            now = events[-1] + 0.2
    return result(*records)


def metrics_of(load: LoadResult, *, concurrency: int = 4) -> Metrics:
    return compute_metrics(load, Workload(concurrency=concurrency, output_len=TOKENS, num_prompts=len(load.records)))


@pytest.mark.parametrize(
    "deliver",
    [
        flushed(TOKENS),
        flushed(TOKENS, apart=0.0),
        flushed(TOKENS, apart=0.3),
        flushed(TOKENS - 1, TOKENS),
        flushed(TOKENS // 2, TOKENS),
        flushed(13, 26, 39, 52, TOKENS),
        flushed(3, 6, TOKENS),
        lambda times: ([times[-1]], [len(times)]),
        lambda times: ([times[-1], times[-1] + 1.3], [len(times) // 2] * 2),
    ],
    ids=[
        "whole",
        "one read",
        "slowly",
        "all but one",
        "halves",
        "every 100 ms",
        "threes",
        "one event",
        "two at the end",
    ],
)
def test_answers_that_were_held_back_show_no_latency(deliver: Delivery) -> None:
    seen = metrics_of(run(deliver))
    assert set(seen.undefined) == set(UNSHOWN)
    assert [seen.ttft_ms.n, seen.tpot_ms.n, seen.itl_ms.n, seen.icl_ms.n] == [0, 0, 0, 0]
    assert seen.e2el_ms.mean == pytest.approx(TTFT + STEP * (TOKENS - 1), rel=0.05)
    assert "12 of 12 answers began with several tokens at once (request " in seen.undefined["tpot"]
    assert "switch its buffering off" in seen.undefined["tpot"]
    # What was delivered in all still is what was generated.
    honest = metrics_of(run(one_by_one))
    assert seen.out_tps == pytest.approx(honest.out_tps, rel=0.05)
    assert seen.out_tps_steady == pytest.approx(honest.out_tps_steady, rel=0.08)


@pytest.mark.parametrize(
    "deliver",
    [
        one_by_one,
        interval(20),
        interval(50),
        lambda times: (list(times[::4]), [1, *[4] * 15]),
        flushed(1, 5, 9, *range(13, TOKENS, 4), TOKENS, apart=0.01),
    ],
    ids=["tokens", "interval of 20", "interval of 50", "speculation", "speculation, an event a token"],
)
def test_sound_servers_are_believed(deliver: Delivery) -> None:
    load = run(deliver)
    seen = metrics_of(load)
    assert seen.undefined == {}
    assert seen.ttft_ms.mean == pytest.approx(TTFT)
    assert seen.tpot_ms.mean == pytest.approx(STEP, rel=0.02)
    workload = Workload(concurrency=4, output_len=TOKENS, num_prompts=12)
    assert window_check(load, seen, workload).status == "pass"
    assert compile_stall_check(load).status == "pass"


def test_the_client_is_not_blamed_for_what_came_together() -> None:
    load = run(flushed(TOKENS))
    workload = Workload(concurrency=4, input_len=10, output_len=TOKENS, num_prompts=12)

    def failures(delay_ms: float) -> list[str]:
        late = result(*load.records, coalesced_reads=60, stamp_delay_ms_p99=delay_ms)
        checks = client_checks(late, compute_metrics(late, workload), workload)
        return [check.name for check in checks if check.status == "fail"]

    assert failures(5.0) == []
    assert failures(50.0) == ["client_not_bottleneck"]


@pytest.mark.parametrize("deliver", [interval(20), interval(50), interval(64)])
def test_no_streams_last_lump_is_lost(deliver: Delivery) -> None:
    lumps, tokens = metrics_of(run(deliver)), metrics_of(run(one_by_one))
    assert lumps.tpot_ms.mean == pytest.approx(tokens.tpot_ms.mean)
    assert lumps.out_tps_steady == pytest.approx(tokens.out_tps_steady, rel=0.01)


def test_tokens_of_the_first_event_are_not_in_the_rate() -> None:
    deliver: Delivery = lambda times: (list(times[3:]), [4, *[1] * 60])  # noqa: E731
    assert metrics_of(run(deliver)).tpot_ms.mean == pytest.approx(STEP)


@pytest.mark.parametrize("odd", [flushed(5, *range(6, TOKENS + 1)), flushed(TOKENS)])
def test_a_hiccup_of_the_server_while_one_wave_begins_is_no_proxy(odd: Delivery) -> None:
    load = result(*run(one_by_one, waves=3).records, *run(odd, waves=1).records)
    seen = compute_metrics(load, Workload(concurrency=4, num_prompts=16))
    assert seen.undefined == {}
    assert seen.tpot_ms.mean == pytest.approx(STEP, rel=1e-3)


def test_a_client_that_comes_late_is_not_a_proxy() -> None:
    load = run(flushed(3, 6, *range(9, TOKENS), TOKENS))
    assert metrics_of(load).undefined != {}
    assert metrics_of(result(*load.records, stamp_delay_ms_p99=9.0)).undefined == {}


def test_a_prefill_far_longer_than_the_decode_is_no_bundle() -> None:
    assert metrics_of(run(one_by_one, ttft=9000.0, step=2.0)).undefined == {}


def test_a_goodput_of_what_is_not_shown_is_not_defined() -> None:
    load, workload = run(flushed(TOKENS)), Workload(concurrency=4, output_len=TOKENS, num_prompts=12)
    assert compute_metrics(load, workload, slo=[("tpot", 1.0)]).goodput_rps is None
    assert "goodput" in compute_metrics(load, workload, slo=[("tpot", 1.0)]).undefined
    assert compute_metrics(load, workload, slo=[("e2el", 1.0)]).goodput_rps == 0


def test_one_event_a_stream_cannot_say_what_its_rhythm_was() -> None:
    several = flushed(1, 21, 41, 61, TOKENS, apart=0.01)
    assert set(metrics_of(run(several)).undefined) == {"itl"}


class TestSteps:
    def test_the_servers_own_count_comes_first(self) -> None:
        records = [record(events=[1, 5, 9], tokens=[1, 4, 4], verify_steps=3)]
        assert compute_metrics(result(*records), Workload(concurrency=1)).tokens_per_step == pytest.approx(3)

    @pytest.mark.parametrize(
        ("tokens", "per_step"),
        [
            ([1, 20, 20, 20, 3], 1.0),
            ([1, 4, 2, 3, 3, 1], 3.0),
            ([1, 30, 28, 31, 2], 1.0),
            ([1, 1, 1, 1], 1.0),
            ([5], 1.0),
        ],
        ids=["interval", "speculation", "a proxy's", "tokens", "one event"],
    )
    def test_else_the_lumps_tell(self, tokens: list[int], per_step: float) -> None:
        one = record(events=[10.0 * (n + 1) for n in range(len(tokens))], tokens=tokens)
        assert metrics_of(result(one), concurrency=1).tokens_per_step == pytest.approx(per_step)

    def test_a_stall_among_lumps(self) -> None:
        def stalled(times: Sequence[float]) -> tuple[list[float], list[int]]:
            return interval(20)([at + 900.0 * (at > 900.0) for at in times])

        assert compile_stall_check(run(interval(20), waves=2)).status == "pass"
        check = compile_stall_check(run(stalled, waves=1, concurrency=4, step=30.0))
        assert check.status == "fail"


def test_tokens_count_when_they_came_and_those_of_a_lump_evenly_before() -> None:
    one = record(send=0, events=[100, 110, 150], tokens=[1, 1, 4])
    arrivals = arrivals_of(one)
    at = [tokens_until(arrivals, 0, ms * 1_000_000) for ms in (0, 99, 100, 109, 110, 119, 120, 131, 149, 150, 900)]
    assert at == [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 6]
