"""Whether the figures of a run that was written down can be those of one run: a report may have been edited.

Each rule is an identity of docs/metrics.md between figures that are computed from the same requests. Whoever edits all
of them to match is not found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_moeperf.model.run import Run

_TOLERANCE = 0.05
"""Means are over requests that may differ a little in length."""


def contradiction(run: Run) -> str:
    """The first two figures of ``run`` that can't both be true, in words; empty if there are none."""
    return next(_contradictions(run), "")


def _contradictions(run: Run) -> Iterator[str]:
    metrics, workload = run.metrics, run.cell.workload
    gated = (metrics.out_tps, metrics.out_tps_steady, metrics.tpot_ms.mean, metrics.ttft_ms.mean, metrics.e2el_ms.mean)
    if all(figure is None for figure in gated):
        return  # its times mean nothing, and it shows none
    if not metrics.duration_s > 0 or metrics.out_tps is None:
        yield f"times, but no duration or no tok/s ({metrics.output_tokens} tokens in {metrics.duration_s:.4g} s)"
        return
    per_s = metrics.output_tokens / metrics.duration_s
    if _differ(metrics.out_tps, per_s):
        yield (
            f"{metrics.out_tps:.4g} tok/s, but {metrics.output_tokens} tokens in {metrics.duration_s:.4g} s are "
            f"{per_s:.4g} tok/s"
        )
    if metrics.output_tokens > metrics.completed * workload.output_len * (1 + _TOLERANCE):
        yield f"{metrics.output_tokens} tokens of {metrics.completed} requests for {workload.output_len} each"
    if metrics.out_tps_steady is not None and not metrics.failed:
        # Without its window's length it can be held against nothing: a run has both or none.
        tokens = metrics.out_tps_steady * (math.inf if metrics.steady_window_s is None else metrics.steady_window_s)
        if tokens > metrics.output_tokens * (1 + _TOLERANCE):
            yield (
                f"{metrics.out_tps_steady:.4g} tok/s in a steady window of {metrics.steady_window_s} s are "
                f"{tokens:.0f} tokens, but the run has {metrics.output_tokens}"
            )
    yield from _of_latencies(run)
    if run.ceiling_tok_s is not None and per_s > run.ceiling_tok_s:
        yield f"{per_s:.4g} tok/s, above its ceiling of {run.ceiling_tok_s:.4g} tok/s"


def _of_latencies(run: Run) -> Iterator[str]:
    metrics, workload = run.metrics, run.cell.workload
    ttft, tpot, e2el = (one.mean for one in (metrics.ttft_ms, metrics.tpot_ms, metrics.e2el_ms))
    whole = metrics.output_tokens == metrics.completed * workload.output_len
    if e2el is not None and tpot is not None and whole:
        parts_ms = (ttft or 0.0) + tpot * (workload.output_len - 1)
        if parts_ms > e2el * (1 + _TOLERANCE) or (ttft is not None and _differ(parts_ms, e2el)):
            yield (
                f"TTFT {ttft or 0.0:.4g} ms and {workload.output_len - 1} x TPOT {tpot:.4g} ms are "
                f"{parts_ms:.4g} ms, but requests took {e2el:.4g} ms"
            )
    if e2el is not None:
        most_s = workload.concurrency * metrics.duration_s
        taken_s = metrics.completed * e2el / 1000
        if workload.request_rate is None and taken_s > most_s * (1 + _TOLERANCE):
            yield (
                f"{metrics.completed} requests of {e2el:.4g} ms each take {taken_s:.4g} s, but "
                f"{workload.concurrency} at once in {metrics.duration_s:.4g} s have {most_s:.4g} s"
            )


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > _TOLERANCE * max(abs(one), abs(other))
