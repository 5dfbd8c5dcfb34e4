"""Two levels of latency among the requests of one run, and what looks like them and is sound."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from load_samples import record, steady_run

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.validity.replicas import one_level


def requests(steps: Sequence[float], *, slots: int, tokens: int = 40, jitter: float = 0.0) -> list[RequestRecord]:
    """One a step time, in slots that send one after the other."""
    rng = random.Random(1)
    free = [0.0] * slots
    made = []
    for index, step in enumerate(steps):
        slot = min(range(slots), key=lambda each: free[each])
        begin = free[slot]
        at, events = begin + 30.0, []
        for _ in range(tokens):
            events.append(at)
            at += step * (1 + jitter * rng.uniform(-1, 1))
        made.append(record(index=index, slot=slot, send=begin, events=events))
        free[slot] = events[-1] + 1.0
    return made


@pytest.mark.parametrize("slots", [4, 8])
def test_replicas_of_two_speeds(slots: int) -> None:
    check = one_level(requests([8.0, 12.0] * 12, slots=slots, jitter=0.2))
    assert check.status == "fail"
    assert not check.repeatable
    assert "12 requests got a token every 8" in check.message
    assert "ms and 12 every 12" in check.message


@pytest.mark.parametrize(
    "sound",
    [
        requests([8.0] * 24, slots=4, jitter=0.4),
        # A GPU that is slower in the second half.
        requests([8.0] * 12 + [12.0] * 12, slots=4),
        # Fewer at the end.
        requests([12.0] * 20 + [8.0] * 4, slots=4),
        # Each its own number of accepted tokens a step.
        requests([random.Random(n).uniform(6.0, 14.0) for n in range(24)], slots=4),
        # Nearly alike.
        requests([8.0, 9.0] * 12, slots=4),
        # Prefills of others between the first tokens.
        list(steady_run(stalls=((0, 3, 400.0), (2, 4, 700.0))).records),
    ],
)
def test_one_server(sound: list[RequestRecord]) -> None:
    assert one_level(sound).status == "pass"


def test_too_little_to_see_it_is_unknown() -> None:
    assert one_level(requests([8.0, 12.0], slots=2)).status == "unknown"
    assert one_level(requests([8.0, 12.0] * 8, slots=2, tokens=5)).status == "unknown"
