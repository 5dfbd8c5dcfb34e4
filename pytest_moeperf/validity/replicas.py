"""Two servers behind one address show in one run: its requests have two separate speeds at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from statistics import median
from typing import NamedTuple

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check
from pytest_moeperf.validity.result import failed, passed, unknown

NAME = "one_level_of_latency"
FEWEST_REQUESTS = 8
FEWEST_GAPS = 8
"""Of a request: its median gap is then one of its decode steps, whatever a prefill or a stall did to a few others."""
SMALLEST_STEP = log(1.2)
"""Between the two levels, and"""
SEPARATION = 2.0
"""times as wide as either level is in itself."""
SMALLEST_SHARE = 0.2
"""Of all requests, in the smaller of the two."""
TOGETHER = 0.8
"""Share of a request's time in which one of the other level was served too. A server that was slower for a while (a
throttled GPU, fewer requests at the end) served the two one after the other."""


class _Speed(NamedTuple):
    level: float
    """ln of its median time between tokens."""
    begin_ns: int
    end_ns: int


def one_level(records: Sequence[RequestRecord]) -> Check:
    """Requests that one server decodes at the same time take the same steps, so their usual gaps are alike."""
    speeds = sorted(speed for record in records if (speed := _speed(record)) is not None)
    if len(speeds) < FEWEST_REQUESTS:
        return unknown(NAME, "the answers are too few, or too short, to show whether one server gave them all")
    step, cut = max((later.level - earlier.level, at) for at, (earlier, later) in enumerate(pairwise(speeds), 1))
    fast, slow = speeds[:cut], speeds[cut:]
    wide = max(_width(fast), _width(slow))
    separate = step >= SMALLEST_STEP and step >= SEPARATION * wide
    if not separate or min(len(fast), len(slow)) < SMALLEST_SHARE * len(speeds):
        return passed(NAME)
    if min(_together(fast, slow), _together(slow, fast)) < TOGETHER:
        return passed(NAME)
    return failed(
        NAME,
        f"{len(fast)} requests got a token every {_ms(fast):.3g} ms and {len(slow)} every {_ms(slow):.3g} ms, at the "
        "same time: several servers share the address, or ranks of one that are unevenly loaded; attach to one of them",
    )


def _speed(record: RequestRecord) -> _Speed | None:
    times, tokens = record.event_ns, record.event_tokens
    if not record.ok or len(times) <= FEWEST_GAPS:
        return None
    gaps = [(times[at] - times[at - 1]) / max(1, tokens[at]) for at in range(1, len(times))]
    usual = median(gaps)
    return _Speed(log(usual), times[0], times[-1]) if usual > 0 else None


def _width(level: Sequence[_Speed]) -> float:
    return level[-1].level - level[0].level


def _together(some: Sequence[_Speed], others: Sequence[_Speed]) -> float:
    """Of the usual one of ``some``: the share of its time in which one of ``others`` was served."""
    spans = sorted((other.begin_ns, other.end_ns) for other in others)
    return median(_covered(each, spans) / max(1, each.end_ns - each.begin_ns) for each in some)


def _covered(one: _Speed, spans: Sequence[tuple[int, int]]) -> int:
    covered, reached = 0, one.begin_ns
    for begin, end in spans:
        first, last = max(begin, reached), min(end, one.end_ns)
        if last > first:
            covered, reached = covered + last - first, last
    return covered


def _ms(level: Sequence[_Speed]) -> float:
    return exp(median(each.level for each in level)) / 1e6
