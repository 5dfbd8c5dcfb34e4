"""Answers that come smoothly, but late, or at another pace: the server's own clock tells, or an answer of one token."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_moeperf.delivery import UNSHOWN
from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Distribution, Metrics
from pytest_moeperf.model.workload import Workload

SUSPECT_SHARE = 0.5
"""Of an answer's time before its first token: a long prefill, or something that holds the answer back."""
HELD_SHARE = 0.5
"""Of the time that is left for decoding; as much of it before the first token is no prefill's noise."""
MIN_TOKENS = 8
_ENGINES = ("sglang:", "sglang_", "vllm:", "vllm_")
_HISTOGRAMS = ("e2e_request_latency_seconds", "time_to_first_token_seconds")
SAME_PACE = 1.5
"""Times, between a token's time here and at the server ..."""
SAME_PACE_MS = 0.5
"""... or less than this apart."""
_NOTHING = Distribution(n=0)


def one_token(workload: Workload) -> Workload | None:
    """As many prompts at once, each for one token; None where its answer would say nothing."""
    if workload.output_len < MIN_TOKENS or workload.request_rate is not None or workload.queueing:
        return None
    return replace(workload, output_len=1, num_prompts=workload.concurrency)


def server_tpot_ms(
    before: Mapping[str, float] | None, after: Mapping[str, float] | None, *, requests: int, output_len: int
) -> float | None:
    """Mean time a token after the first, by the server's own clock: its histograms of whole answers and first tokens.

    :return: None where it doesn't tell, or not of exactly these requests.
    """
    if before is None or after is None or output_len < 2 or not requests:
        return None
    for engine in _ENGINES:
        names = [f"{engine}{histogram}" for histogram in _HISTOGRAMS]
        counts = [after.get(f"{name}_count", 0.0) - before.get(f"{name}_count", 0.0) for name in names]
        if counts == [requests, requests]:
            whole_s, first_s = (after.get(f"{name}_sum", 0.0) - before.get(f"{name}_sum", 0.0) for name in names)
            return (whole_s - first_s) * 1e3 / (requests * (output_len - 1))
    return None


def without_late_delivery(
    metrics: Metrics,
    workload: Workload,
    *,
    server_ms: float | None,
    first_token_ms: Callable[[Workload], float | None],
) -> Metrics:
    """The metrics, without the latencies that something between server and client made.

    :param server_ms: time a token by the server's own clock; where that is known nothing else is asked.
    :param first_token_ms: measures the mean time of answers of one token; asked only where the run looks odd.
    """
    tpot_ms = metrics.tpot_ms.mean
    if server_ms is not None and tpot_ms is not None:
        if abs(tpot_ms - server_ms) <= SAME_PACE_MS or 1 / SAME_PACE <= tpot_ms / max(server_ms, 1e-9) <= SAME_PACE:
            return metrics
        return _without(
            metrics,
            f"tokens arrived {tpot_ms:.2f} ms apart, but by its own /metrics the server generated one in "
            f"{server_ms:.2f} ms: answers are held back or paced on their way (a proxy, a gateway); measure the "
            "server itself",
        )
    ttft_ms, e2el_ms = metrics.ttft_ms.mean, metrics.e2el_ms.mean
    short = one_token(workload)
    if short is None or ttft_ms is None or e2el_ms is None or ttft_ms < SUSPECT_SHARE * e2el_ms:
        return metrics
    alone_ms = first_token_ms(short)
    if alone_ms is None:
        return metrics
    held_ms = ttft_ms - alone_ms
    if held_ms < max(alone_ms, HELD_SHARE * (e2el_ms - alone_ms)):
        return metrics
    return _without(
        metrics,
        f"the first tokens came {ttft_ms:.0f} ms after the requests, of {e2el_ms:.0f} ms in all, but answers of one "
        f"token take {alone_ms:.0f} ms: answers are held back on their way (a proxy that buffers, a gateway), so when "
        "each token was generated is not shown; switch its buffering off, or measure the server itself",
    )


def _without(metrics: Metrics, why: str) -> Metrics:
    undefined = {**metrics.undefined, **dict.fromkeys(UNSHOWN, why)}
    return replace(metrics, ttft_ms=_NOTHING, tpot_ms=_NOTHING, itl_ms=_NOTHING, icl_ms=_NOTHING, undefined=undefined)


def mean_ms(result: LoadResult | None) -> float | None:
    """From request to answer; None: they did not all end well."""
    if result is None or not result.records or not all(record.ok and record.event_ns for record in result.records):
        return None
    return statistics.fmean(record.event_ns[-1] - record.send_ns for record in result.records) / 1e6
