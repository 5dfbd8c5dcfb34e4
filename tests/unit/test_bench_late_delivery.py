"""A whole answer that comes late, token by token, is told from a long prefill by an answer of one token."""

from __future__ import annotations

import pytest
from load_samples import record, result

from pytest_moeperf.bench.late_delivery import mean_ms, one_token, server_tpot_ms, without_late_delivery
from pytest_moeperf.delivery import UNSHOWN
from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.run import Metrics
from pytest_moeperf.model.workload import Workload

WORKLOAD = Workload(concurrency=2, input_len=8, output_len=64, num_prompts=2)


def metrics(*, ttft: float, step: float) -> Metrics:
    load = result(
        *(record(index=n, slot=n, send=0, events=[ttft + step * token for token in range(64)]) for n in range(2))
    )
    return compute_metrics(load, WORKLOAD)


def judge(
    seen: Metrics, answer_ms: float | None, workload: Workload = WORKLOAD, *, server_ms: float | None = None
) -> tuple[Metrics, list[Workload]]:
    asked_for: list[Workload] = []

    def ask(short: Workload) -> float | None:
        asked_for.append(short)
        return answer_ms

    return without_late_delivery(seen, workload, server_ms=server_ms, first_token_ms=ask), asked_for


def test_an_answer_that_waited_for_its_last_token() -> None:
    seen, asked_for = judge(metrics(ttft=200, step=1.1), 9.0)
    assert [(short.output_len, short.num_prompts) for short in asked_for] == [(1, 2)]
    assert set(seen.undefined) == set(UNSHOWN)
    assert (seen.ttft_ms.n, seen.tpot_ms.n, seen.itl_ms.n) == (0, 0, 0)
    assert seen.e2el_ms.n == 2
    assert seen.undefined["tpot"].startswith(
        "the first tokens came 200 ms after the requests, of 269 ms in all, but answers of one token take 9 ms: "
    )


@pytest.mark.parametrize("answer_ms", [200.0, 150.0, None])
def test_a_long_prefill(answer_ms: float | None) -> None:
    before = metrics(ttft=200, step=1.1)
    assert judge(before, answer_ms)[0] == before


def test_nobody_asks_where_nothing_looks_odd() -> None:
    assert judge(metrics(ttft=20, step=3), 9.0)[1] == []
    assert judge(metrics(ttft=200, step=1.1), 9.0, Workload(concurrency=2, output_len=64, queueing=True))[1] == []


def test_what_would_say_nothing_is_not_asked() -> None:
    assert one_token(Workload(concurrency=2, output_len=4)) is None
    assert one_token(Workload(concurrency=2, output_len=64, request_rate=3.0)) is None
    assert mean_ms(None) is None
    assert mean_ms(result(record(events=[5.0], error="connection: gone"))) is None
    assert mean_ms(result(record(events=[5.0]), record(events=[15.0]))) == pytest.approx(10)


@pytest.mark.parametrize("server_ms", [1.1, 0.9, 1.6])
def test_the_servers_own_clock_settles_it(server_ms: float) -> None:
    before = metrics(ttft=200, step=1.1)
    assert judge(before, 9.0, server_ms=server_ms) == (before, [])


@pytest.mark.parametrize(("step", "server_ms"), [(1.1, 3.0), (9.0, 3.0), (0.3, 3.0)])
def test_the_servers_own_clock_contradicts(step: float, server_ms: float) -> None:
    seen, asked_for = judge(metrics(ttft=20, step=step), 9.0, server_ms=server_ms)
    assert asked_for == []
    assert set(seen.undefined) == set(UNSHOWN)
    assert seen.undefined["itl"].startswith(
        f"tokens arrived {step:.2f} ms apart, but by its own /metrics the server generated one in 3.00 ms: "
    )


@pytest.mark.parametrize("engine", ["sglang:", "sglang_", "vllm:"])
def test_the_servers_own_clock(engine: str) -> None:
    def totals(requests: float, whole_s: float, first_s: float) -> dict[str, float]:
        names = f"{engine}e2e_request_latency_seconds", f"{engine}time_to_first_token_seconds"
        return {
            f"{names[0]}_sum": whole_s,
            f"{names[0]}_count": requests,
            f"{names[1]}_sum": first_s,
            f"{names[1]}_count": requests,
        }

    def tpot_ms(before: dict[str, float] | None, after: dict[str, float] | None, requests: int = 2) -> float | None:
        return server_tpot_ms(before, after, requests=requests, output_len=64)

    before, after = totals(1, 1.0, 0.5), totals(3, 3.0, 0.7)
    assert tpot_ms(before, after) == pytest.approx(1800 / 126)
    assert tpot_ms({}, after, 3) == pytest.approx(2300 / 189)
    for pair in ((None, after), (before, None), (before, before), ({}, after), (before, {})):
        assert tpot_ms(*pair) is None
