"""The server's own counters agree with what the client saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_moeperf.model.records import LoadResult
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.cache import MAX_ACCIDENTAL_CACHE_SHARE
from pytest_moeperf.validity.result import failed, passed, unknown

Snapshot = Mapping[str, Any]
"""Of one moment: the counters ``requests``, ``generated_tokens``, ``prompt_tokens``, ``cached_tokens``, ``aborted``,
``retracted``. A key that is missing or None makes its check ``unknown``; but one that is there after the run, and was
not before it, began at 0 if ``counting`` is one exporter both times: some list a counter only once it has counted."""


def server_checks(
    before: Snapshot, after: Snapshot, result: LoadResult, workload: Workload, *, token_tolerance: float = 0.0
) -> tuple[Check, ...]:
    """
    :param token_tolerance: relative, for the three token counters.
    """
    records = result.records
    generated = _total(record.completion_tokens for record in records)
    prompt = _total(record.prompt_tokens for record in records)
    cached = _total(record.cached_tokens for record in records)
    if prompt is None:
        prompt = len(records) * workload.input_len

    def agrees(name: str, key: str, expected: int | None, what: str, tolerance: float = 0.0) -> Check:
        counted = counted_between(before, after, key)
        if counted is None and key == "retracted":
            counted = _total(record.retractions for record in records)
        if counted is None:
            return unknown(name, f"the server does not count its {what}")
        if expected is None:
            return unknown(name, f"the answers don't say how many {what} there were")
        if abs(counted - expected) <= tolerance * expected:
            return passed(name)
        why = _why(key, counted, expected)
        message = f"the server counted {counted:g} {what} in the run, the client {expected}: {why}"
        return failed(name, message, repeatable=True)

    return (
        agrees("server_requests_agree", "requests", len(records), "requests"),
        agrees("server_generated_tokens_agree", "generated_tokens", generated, "generated tokens", token_tolerance),
        agrees("server_prompt_tokens_agree", "prompt_tokens", prompt, "prompt tokens", token_tolerance),
        _accidental_hits(counted_between(before, after, "cached_tokens"), prompt, workload)
        if cached is None
        else agrees("server_cached_tokens_agree", "cached_tokens", cached, "cached tokens", token_tolerance),
        agrees("server_no_aborts", "aborted", 0, "aborted requests"),
        agrees("server_no_retractions", "retracted", 0, "retracted requests"),
    )


def counted_between(before: Snapshot, after: Snapshot, key: str) -> float | None:
    """None: the server does not count it.

    One that does not count requests, and whose other counters stand still while it answers, counts nothing.
    """
    earlier, later = before.get(key), after.get(key)
    if earlier is None and before.get("counting") and before["counting"] == after.get("counting"):
        earlier = 0.0
    if earlier is None or later is None:
        return None
    stands_still = later == earlier and key in ("generated_tokens", "prompt_tokens")
    return None if stands_still and after.get("requests") is None else float(later - earlier)


def _accidental_hits(counted: float | None, prompt: int, workload: Workload) -> Check:
    """Where no answer says how much of its prompt was cached, the server's own count does."""
    name = "server_cached_tokens_agree"
    if counted is None:
        return unknown(name, "the server does not count its cached tokens")
    declared = workload.shared_prefix_len / workload.input_len
    most = (declared + MAX_ACCIDENTAL_CACHE_SHARE) * prompt
    if counted <= most:
        return passed(name)
    return failed(
        name,
        f"the server took {counted:g} of {prompt} prompt tokens from its prefix cache, at most {most:.0f} were "
        "declared: flush the cache before the run, or switch it off",
        repeatable=True,
    )


def _why(key: str, counted: float, expected: int) -> str:
    if counted < 0:
        return "its counters fell, so it was restarted, or another server answered"
    if key == "retracted":
        return "its KV cache is too small for this load"
    if key == "aborted":
        return "it gave up requests, of this run or of somebody else"
    return "somebody else uses it too" if counted > expected else "some of what was answered never ran there"


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)
