"""The server ran as many requests at once as the cell says. The client sees them all in flight, those that wait too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.server_info import workers
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.result import failed, passed, unknown

SHARE = 0.95
"""Of the concurrency that must have run at one time."""
ROOM = 1.1
"""Free places in the KV cache for each token of all requests, so that none has to wait for one."""
UNEVEN = 1.25
"""The fullest rank against the mean of all."""
LOOKS = 3
_WAY_OUT = "or say queueing=True in the perf marker if its queue is part of the load"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What /server_info says can run at once in the whole server. None: it does not say."""

    least: int | None = None
    """So many can run for certain, as far as the number of requests limits it."""
    most: int | None = None
    tokens: int | None = None
    """Room in the KV cache."""
    ranks: int = 1
    """That hold requests of their own (data parallel)."""

    def allow(self, workload: Workload) -> bool:
        """All requests of this load can run at once, whatever they are."""
        tokens = workload.concurrency * (workload.input_len + workload.output_len)
        return (
            self.least is not None
            and self.least >= workload.concurrency
            and self.tokens is not None
            and self.tokens >= ROOM * tokens
        )


def running_limits(info: Mapping[str, Any] | None, *, direct: bool = True) -> Limits:
    """Of SGLang's /server_info; of a router's, that of the servers behind it which decode.

    :param direct: nothing stands in front of the server that could hold requests back; known of launched ones only.
    """
    servers = workers(info).get("decode") or [info] if info else []
    each = [_limits_of_one(one) for one in servers]
    return Limits(
        least=_sum(one.least for one in each) if direct else None,
        most=_sum(one.most for one in each),
        tokens=_sum(one.tokens for one in each),
        ranks=sum(one.ranks for one in each) or 1,
    )


def _limits_of_one(info: Mapping[str, Any]) -> Limits:
    states = info.get("internal_states")
    states = [one for one in states if isinstance(one, Mapping)] if isinstance(states, list) else []
    ranks = _whole(info.get("dp_size")) or max(1, len(states))
    room = _whole(info.get("max_total_num_tokens"))
    resolved = [_whole(state.get("effective_max_running_requests_per_dp")) for state in states]
    each = [cap for cap in resolved if cap is not None]
    least = most = None
    if each:
        least = most = sum(each) if len(each) == ranks else min(each) * ranks
    elif (stated := _whole(info.get("max_running_requests"))) is not None:
        most = stated * ranks  # of each rank or of all: the larger
    return Limits(least=least, most=most, tokens=room * ranks if room is not None else None, ranks=ranks)


def server_ran_as_asked(
    records: Iterable[RequestRecord], workload: Workload, limits: Limits, seen: Mapping[str, Any]
) -> Check:
    """Any one source is enough: streams that ran side by side, the server's gauges, its resolved limits.

    With a ``request_rate`` the queue is what is measured, and ``queueing=True`` says that it may be.

    :param seen: ``QueueSampler.summary()``; empty: nobody looked.
    """
    name, asked = "server_ran_as_asked", workload.concurrency
    if workload.request_rate is not None or workload.queueing:
        return passed(name)
    needed = math.ceil(SHARE * asked - 1e-9)
    streams = most_at_once(records)
    running, queued = seen.get("running_max"), seen.get("queued_max")
    if streams >= needed or (running or 0) >= needed:
        return passed(name)
    if limits.most is not None and limits.most < needed:
        return failed(
            name,
            f"the server runs at most {limits.most} requests at once (its max_running_requests), {asked} were asked "
            f"for: the others waited in its queue. Raise --max-running-requests, {_WAY_OUT}",
        )
    if limits.allow(workload):
        return passed(name)
    if running is not None and queued:
        return failed(
            name,
            f"the server ran at most {running:g} of {asked} requests at once, and up to {queued:g} waited in its queue "
            f"(seen in {seen['samples']} looks at its gauges). Give it more room, {_WAY_OUT}",
            repeatable=True,
        )
    said = f"its gauges show at most {running:g}" if running is not None else "it shows no gauges of its requests"
    return failed(
        name,
        f"not shown: whether the server ran {asked} requests at once. At most {streams} streams overlapped, and "
        f"{said}. Let it serve /metrics (SGLang: --enable-metrics), {_WAY_OUT}",
        repeatable=True,
    )


def ranks_balanced(seen: Mapping[str, Any]) -> Check | None:
    """None: there is one rank, or nobody looked often enough. Told, since the fullest rank sets the pace of all."""
    ranks: Mapping[str, float] = seen.get("running_by_rank") or {}
    if len(ranks) < 2 or seen["samples"] < LOOKS:
        return None
    name, mean = "ranks_evenly_loaded", sum(ranks.values()) / len(ranks)
    fullest, emptiest = max(ranks, key=lambda rank: ranks[rank]), min(ranks, key=lambda rank: ranks[rank])
    if ranks[fullest] <= max(UNEVEN * mean, mean + 1):
        return passed(name)
    return unknown(
        name,
        f"not shown: what evenly loaded ranks give; {ranks[fullest]:.1f} requests ran on {fullest} and "
        f"{ranks[emptiest]:.1f} on {emptiest} "
        f"on average (in {seen['samples']} looks)",
    )


def most_at_once(records: Iterable[RequestRecord]) -> int:
    """The most streams that were between their first and their last token at one time."""
    moments: list[tuple[int, int]] = []
    for record in records:
        if record.event_ns:
            moments += [(record.event_ns[0], -1), (record.event_ns[-1], 1)]
    most = now = 0
    for _, step in sorted(moments):  # at one moment those that begin come first: both were there
        now -= step
        most = max(most, now)
    return most


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _sum(values: Iterable[int | None]) -> int | None:
    """None for none at all, and as soon as one is unknown."""
    known = list(values)
    return sum(value for value in known if value is not None) if known and None not in known else None
