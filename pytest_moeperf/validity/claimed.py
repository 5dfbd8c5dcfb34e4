"""Several tokens in one event are told by the event alone, unless the server counts them, or says that it sends so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_moeperf.model.records import RequestRecord
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.server_info import workers
from pytest_moeperf.validity.result import failed, passed

NAME = "claimed_tokens_confirmed"
MOST_ON_ITS_WORD = 0.05
"""Of the tokens: a server that catches up after a hiccup sends two together now and then."""


def claimed_tokens_check(
    records: Sequence[RequestRecord], *, counted: bool, info: Mapping[str, Any] | None = None
) -> Check:
    """
    :param counted: the server's counters say how many tokens it generated, and are compared elsewhere.
    :param info: its /server_info.
    """
    own = [record for record in records if record.event_ns]
    tokens, events = sum(sum(record.event_tokens) for record in own), sum(len(record.event_ns) for record in own)
    if counted or tokens - events <= MOST_ON_ITS_WORD * tokens or all(record.verify_steps for record in own):
        return passed(NAME)
    if tokens <= events * _announced(info or {}):
        return passed(NAME)
    return failed(
        NAME,
        f"{tokens} tokens are claimed of {events} events, and nothing but the answers themselves says that there were "
        "more than one in each: neither counters of the server nor a stream interval or speculation in its "
        "/server_info. Let the client reach its /metrics (SGLang: --enable-metrics), or have it send each token alone",
    )


def _announced(info: Mapping[str, Any]) -> float:
    """The most tokens that an event may hold, as the server's arguments say."""
    servers = [info, *(worker for listed in workers(info).values() for worker in listed)]
    return max(_whole(one.get("stream_interval")) * _speculated(one) for one in servers)


def _speculated(info: Mapping[str, Any]) -> int:
    return _whole(info.get("speculative_num_draft_tokens")) if info.get("speculative_algorithm") else 1


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 1
