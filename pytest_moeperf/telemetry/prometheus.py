"""A server's own counters: /metrics, the Prometheus text format, and the numbers that must agree with the client's."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>\{(?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*\})?[ \t]+(?P<value>\S+)"
    r"(?:[ \t]+-?\d+)?[ \t]*$",
    re.MULTILINE,
)
_CUMULATIVE = re.compile(r"[{,]\s*(?:le|quantile)=")
"""Buckets and quantiles of one series: their sum over labels would mean nothing."""

COUNTERS = {
    "requests": "sglang:num_requests_total",
    "generated_tokens": "sglang:generation_tokens_total",
    "prompt_tokens": "sglang:prompt_tokens_total",
    "cached_tokens": "sglang:cached_tokens_total",
    "aborted": "sglang:num_aborted_requests_total",
    "retracted": "sglang:num_retracted_requests_total",
}
"""Of SGLang 0.5.14 to 0.5.23 and of the simulated engine."""

_MOMENTARY = frozenset({"internal_states", "startup_time", "status", "simulated", "kv_events", "last_gen_throughput"})
"""State in /server_info, not an argument: changes while the server stays the same."""


def parse_prometheus(text: str) -> dict[str, float]:
    """Metric -> its value summed over all label sets. Leaves out buckets, quantiles, NaN and what is no sample."""
    totals: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        labels = match["labels"]
        if labels and _CUMULATIVE.search(labels):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if not math.isnan(value):
            totals[match["name"]] = totals.get(match["name"], 0.0) + value
    return totals


def server_counters(metrics_text: str | None, server_info: Mapping[str, Any] | None) -> dict[str, float | str | None]:
    """The server's totals since its start, its pid and a digest of its resolved arguments; None: it doesn't say.

    SGLang lists a counter only once it has counted something, so beside others of its own an absent one is 0. Requests
    are counted when they end, and /metrics can lag behind the last stream by some 100 ms: read it until it has settled.
    """
    totals = parse_prometheus(metrics_text) if metrics_text else {}
    counting = any(name.startswith("sglang:") for name in totals)
    counters: dict[str, float | str | None] = {
        key: totals.get(name, 0.0) if counting else None for key, name in COUNTERS.items()
    }
    info = server_info if isinstance(server_info, Mapping) else {}
    simulated = info.get("simulated")
    pid = info.get("pid", simulated.get("pid") if isinstance(simulated, Mapping) else None)
    counters["pid"] = float(pid) if isinstance(pid, int) else None
    counters["resolved_args_digest"] = _digest(info) if info else None
    return counters


def _digest(info: Mapping[str, Any]) -> str:
    arguments = {name: value for name, value in info.items() if name not in _MOMENTARY}
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()[:16]
