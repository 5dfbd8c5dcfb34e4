"""What a workload and the bounds on it must be to each other, so that a run of it can answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.described import PERF
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.workload import Workload

FEWEST = {"mean": 1, "p50": 2, "p99": 100}
"""Values that a percentile needs; of fewer it is undefined. Below 100, a p99 is the slowest one, whatever it was."""


def check_workload(item: pytest.Item, workload: Workload) -> None:
    """:raises UsageProblem: its fields contradict each other."""
    waves = workload.num_prompts / workload.concurrency
    if workload.request_rate is None and waves < 1:
        raise _problem(
            item,
            PERF,
            f"num_prompts={workload.num_prompts} is below concurrency={workload.concurrency}: "
            "so many requests would never be in flight at once",
            f"at least {workload.concurrency}; without num_prompts it is 4 x concurrency",
        )
    if workload.shared_prefix_len >= workload.input_len:
        raise _problem(
            item,
            PERF,
            f"shared_prefix_len={workload.shared_prefix_len} leaves nothing of input_len={workload.input_len} to a "
            "prompt of its own",
            f"at most {workload.input_len - 1}, or a longer input_len",
        )
    if workload.shared_prefix_len and waves < 2:
        raise _problem(
            item,
            PERF,
            f"shared_prefix_len={workload.shared_prefix_len} with num_prompts={workload.num_prompts} at "
            f"concurrency={workload.concurrency}: the first requests of a run find an empty cache, and there are no "
            "others",
            f"num_prompts of at least {2 * workload.concurrency}",
        )


def check_bounds(item: pytest.Item, workload: Workload, bounds: Sequence[Bound]) -> None:
    """:raises UsageProblem: a bound is on what a run of this workload doesn't have."""
    marked = any(item.get_closest_marker(bound.metric) for bound in bounds)
    for bound in bounds:
        limits = dict(bound.slo_ms)
        if workload.output_len == 1 and (bound.metric in ("tpot", "itl") or "tpot" in limits):
            raise _problem(
                item,
                bound.metric if marked else PERF,
                "output_len=1 has no time between tokens, so no "
                + ("ITL" if bound.metric == "itl" else "TPOT")
                + ("" if marked else " (a test without bounds is judged by throughput and TPOT)"),
                "output_len of at least 2, or bounds on what one token has: "
                "@pytest.mark.throughput(), @pytest.mark.ttft()",
            )
        each = workload.output_len - 1 if bound.metric == "itl" else 1
        fewest, values = FEWEST[bound.percentile], workload.num_prompts * each
        if values < fewest:
            wanted = -(-fewest // each)
            wanted = -(-wanted // workload.concurrency) * workload.concurrency
            raise _problem(
                item,
                bound.metric,
                f"percentile={bound.percentile!r} needs {fewest} values, and a run with "
                f"num_prompts={workload.num_prompts} has {values}",
                f"num_prompts={wanted} in the perf marker, or "
                + ("percentile='mean'" if bound.percentile == "p50" else "percentile='p50' or 'mean'"),
            )


def _problem(item: pytest.Item, marker: str, problem: str, allowed: str) -> UsageProblem:
    return UsageProblem(where=f"{item.nodeid}: marker {marker!r}", problem=problem, allowed=allowed)
