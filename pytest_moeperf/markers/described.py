"""What ``pytest --markers`` shows, and the cheapest question about a test. Imported at every start of pytest: no more
here than that."""

from __future__ import annotations

import pytest

PERF = "perf"

DESCRIPTIONS = (
    (
        "perf(**workload): a serving benchmark; selected by -m perf. Workload defaults: concurrency, input_len, "
        "output_len, num_prompts, dataset, seed, request_rate, shared_prefix_len, "
        "queueing"
    ),
    "throughput(regression='5%', win='3%', at_least=TOK_S): bound on steady output throughput",
    *(
        f"{metric}(regression='5%', win='3%', at_most_ms=MS, percentile='mean'|'p50'|'p99'): bound on {metric.upper()}"
        for metric in ("tpot", "ttft", "itl", "e2el")
    ),
    "goodput(ttft=MS, tpot=MS, e2el=MS, regression='5%', win='3%', at_least=REQ_S): bound on requests within limits",
)


def is_perf(item: pytest.Item) -> bool:
    return item.get_closest_marker(PERF) is not None


def uses_moeperf(item: pytest.Item) -> bool:
    """It asks for the ``moeperf`` fixture by name. Another suite may have a marker ``perf`` of its own."""
    return "moeperf" in getattr(item, "fixturenames", ())
