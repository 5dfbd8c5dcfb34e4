"""Answers that come smoothly, but late: one for a single token shows when the first can be there."""

from __future__ import annotations

import statistics
from collections.abc import Callable
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
_NOTHING = Distribution(n=0)


def one_token(workload: Workload) -> Workload | None:
    """As many prompts at once, each for one token; None where its answer would say nothing."""
    if workload.output_len < MIN_TOKENS or workload.request_rate is not None or workload.queueing:
        return None
    return replace(workload, output_len=1, num_prompts=workload.concurrency)


def without_late_delivery(
    metrics: Metrics, workload: Workload, first_token_ms: Callable[[Workload], float | None]
) -> Metrics:
    """The metrics, without the latencies that a whole answer held back would fake.

    :param first_token_ms: measures the mean time of answers of one token; asked only where the run looks odd.
    """
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
    why = (
        f"the first tokens came {ttft_ms:.0f} ms after the requests, of {e2el_ms:.0f} ms in all, but answers of one "
        f"token take {alone_ms:.0f} ms: answers are held back on their way (a proxy that buffers, a gateway), so when "
        "each token was generated is not shown; switch its buffering off, or measure the server itself"
    )
    undefined = {**metrics.undefined, **dict.fromkeys(UNSHOWN, why)}
    return replace(metrics, ttft_ms=_NOTHING, tpot_ms=_NOTHING, itl_ms=_NOTHING, icl_ms=_NOTHING, undefined=undefined)


def mean_ms(result: LoadResult | None) -> float | None:
    """From request to answer; None: they did not all end well."""
    if result is None or not result.records or not all(record.ok and record.event_ns for record in result.records):
        return None
    return statistics.fmean(record.event_ns[-1] - record.send_ns for record in result.records) / 1e6
