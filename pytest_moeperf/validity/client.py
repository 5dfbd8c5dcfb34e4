"""What the client alone can tell about a run."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pytest_moeperf.model.records import LoadResult, RequestRecord
from pytest_moeperf.model.run import Check, Metrics
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.validity.cache import Reuse, cached_tokens_check
from pytest_moeperf.validity.result import failed, none_of, passed, unknown
from pytest_moeperf.validity.stall import compile_stall_check

MIN_WINDOW_S = 1.0
"""Shorter, and one hiccup of 50 ms is worth 5 %."""
MIN_STEPS = 50
"""Tokens of each stream inside the window."""
MAX_CONCURRENCY_ERROR = 0.05
MAX_WORKER_CPU = 0.80
MAX_COALESCED_SHARE = 0.05
MAX_USER_DELAY_OF_TPOT = 0.10
"""Without kernel stamps every delay of the client is an error of a time."""
MAX_KERNEL_DELAY_OF_TPOT = 0.50
"""With them only the earlier events of a read that holds several are wrong, by less than this delay."""
MAX_KERNEL_DELAY_OF_ANSWER = 0.05
"""Where the answers came in so few pieces that nothing but their end is believed anyway."""
MAX_CLOCK_STEP_MS = 1.0
_EVENTS_OF_A_RHYTHM = 6
_LATE_CLAIM = 3
"""Times the largest of the earlier events."""
_LATE_CLAIM_SHARE = 0.05
"""Of the answer: a server that catches up after a hiccup sends a few tokens together too."""
_REPEATS_ANSWERS = (
    "; each event repeats the whole answer so far: start the server with --incremental-streaming-output, "
    "and an event holds only what is new"
)
MAX_SCHEDULE_LAG_SHARE = 0.5
"""Of the mean time between two sends, for the p99 of the lag; but 10 ms are always allowed."""


def client_checks(
    result: LoadResult,
    metrics: Metrics,
    workload: Workload,
    *,
    reuse: Reuse | None = None,
    repeats_answers: bool = False,
    min_window_s: float = MIN_WINDOW_S,
    min_steps: int = MIN_STEPS,
) -> tuple[Check, ...]:
    """Every check that the client alone can make, ``window_check`` and ``compile_stall_check`` included.

    :param reuse: what its prompts have in common; None: the declared prefix, and nothing else.
    :param repeats_answers: each event holds the whole answer so far, and the server has a flag that ends it.
    """
    reuse = reuse or Reuse(most_tokens=workload.shared_prefix_len * len(result.records), page_size=1)
    bottleneck = _client_not_bottleneck(result, metrics)
    clocks = _clocks_monotonic(result, metrics)
    concurrency = _effective_concurrency(metrics, workload)
    stall = compile_stall_check(result)
    window = window_check(result, metrics, workload, min_window_s=min_window_s, min_steps=min_steps)
    if bottleneck.status == "fail":
        # A client that came late may have cut the window short; a run in time will tell.
        window = replace(window, repeatable=True)
        if repeats_answers:
            bottleneck = replace(bottleneck, message=f"{bottleneck.message}{_REPEATS_ANSWERS}")
    if "throughput" in metrics.undefined:
        # No time of this run means anything; one whose clock is left alone will tell.
        window, concurrency, stall = (
            unknown(check.name, metrics.undefined["throughput"]) for check in (window, concurrency, stall)
        )
    return (
        _all_sent(result, workload),
        _no_failures(result.records),
        _no_in_band_errors(result.records),
        _streams_complete(result.records),
        _tokens_as_requested(result.records),
        _tokens_of_each_event(result.records),
        _finish_reason_length(result.records),
        _prompt_tokens_as_sent(result.records),
        cached_tokens_check(result.records, workload, reuse),
        concurrency,
        window,
        bottleneck,
        clocks,
        _schedule_kept(result, workload),
        stall,
    )


def window_check(
    result: LoadResult,
    metrics: Metrics,
    workload: Workload,
    *,
    min_window_s: float = MIN_WINDOW_S,
    min_steps: int = MIN_STEPS,
) -> Check:
    """The steady window is long enough, in time and in decode steps, for its throughput to mean something.

    Steps, not events: a stream interval of 50 sends what 50 steps made, and was no reason to doubt them.
    """
    name = "window_long_enough"
    length_s = metrics.steady_window_s
    if length_s is None:
        return failed(name, f"there was no steady window: {workload.concurrency} requests were never in flight at once")
    tokens = (metrics.out_tps_steady or 0.0) * length_s
    steps = tokens / workload.concurrency / (metrics.tokens_per_step or 1.0)
    if length_s >= min_window_s and steps >= min_steps:
        return passed(name)
    factor = max(min_window_s / length_s, min_steps / steps if steps else 1.0)
    wanted = -(-round(len(result.records) * factor * 1.1) // workload.concurrency) * workload.concurrency
    return failed(
        name,
        f"the steady window is {length_s:.2f} s and {steps:.0f} steps long; at least {min_window_s:g} s and "
        f"{min_steps} steps are needed (num_prompts={wanted} would do, it was {workload.num_prompts})",
    )


def _all_sent(result: LoadResult, workload: Workload) -> Check:
    name, sent = "all_requests_sent", len(result.records)
    if sent == workload.num_prompts:
        return passed(name)
    return failed(
        name, f"{sent} of {workload.num_prompts} requests were sent: sending ends at the first failure or time-out"
    )


def _no_failures(records: Sequence[RequestRecord]) -> Check:
    kinds = ("http", "connection", "timeout")
    return none_of(
        "no_failed_requests",
        records,
        wrong=lambda one: _kind(one.error) in kinds,
        what="failed",
        detail=lambda one: str(one.error),
    )


def _no_in_band_errors(records: Sequence[RequestRecord]) -> Check:
    return none_of(
        "no_in_band_errors",
        records,
        wrong=lambda one: _kind(one.error) == "in_band_error",
        what="got an error inside a stream with status 200",
        detail=lambda one: str(one.error or one.finish_reason),
    )


def _streams_complete(records: Sequence[RequestRecord]) -> Check:
    return none_of(
        "streams_complete",
        records,
        wrong=lambda one: (
            _kind(one.error) == "protocol" or (one.error is None and (not one.done or one.finish_reason is None))
        ),
        what="did not end as the protocol says",
        detail=lambda one: one.error or ("no finish reason" if one.done else "no [DONE]"),
    )


def _tokens_as_requested(records: Sequence[RequestRecord]) -> Check:
    def wrong(record: RequestRecord) -> bool:
        counted = record.completion_tokens
        odd = counted != record.requested_tokens or counted != sum(record.event_tokens)
        return record.error is None and (odd or _late_claim(record) is not None)

    return none_of(
        "tokens_as_requested",
        records,
        wrong=wrong,
        what="did not get the tokens that were asked for",
        detail=_tokens_told,
    )


def _tokens_told(record: RequestRecord) -> str:
    asked, counted, arrived = record.requested_tokens, record.completion_tokens, sum(record.event_tokens)
    if counted is None:
        return (
            f"not shown: the server sends no usage, so how many tokens were generated nobody knows (asked {asked}, "
            f"{len(record.event_ns)} events with text arrived); let it answer stream_options.include_usage"
        )
    claim = _late_claim(record)
    if claim is not None and counted == asked:
        return (
            f"asked {asked}, the server counted {counted}, but {claim} of them in the last event, where the events "
            f"before it brought {max(record.event_tokens[:-1])} at most: they were counted, not delivered"
        )
    told = f"asked {asked}, the server counted {counted}, {arrived} arrived, finish reason {record.finish_reason}"
    if counted > asked:
        told += ": more than asked for, as when speculation runs past the end of an answer"
    return told


def _tokens_of_each_event(records: Sequence[RequestRecord]) -> Check:
    name = "tokens_of_each_event"
    assumed = [record for record in records if record.assumed_tokens]
    if not assumed:
        return passed(name)
    first = assumed[0]
    return unknown(
        name,
        f"in {len(assumed)} of {len(records)} answers only the total is told (request {first.index}: "
        f"{first.completion_tokens} tokens in {len(first.event_ns)} events); the length of the text spread them",
    )


def _late_claim(record: RequestRecord) -> int | None:
    """The tokens of a last event that no rhythm of the stream explains: far more than any before, in no more time."""
    tokens, times = record.event_tokens, record.event_ns
    if record.assumed_tokens or len(tokens) < _EVENTS_OF_A_RHYTHM:
        return None
    usual, last = max(tokens[:-1]), tokens[-1]
    if last <= max(_LATE_CLAIM * usual, _LATE_CLAIM_SHARE * sum(tokens)):
        return None
    step_ns = (times[-2] - times[0]) / max(1, sum(tokens[1:-1]))
    return last if times[-1] - times[-2] < last * step_ns / 2 else None


def _finish_reason_length(records: Sequence[RequestRecord]) -> Check:
    reasons = Counter(record.finish_reason for record in records if record.finish_reason and record.ok)
    odd = {reason: count for reason, count in reasons.items() if reason != "length"}
    if not odd:
        return passed("finish_reason_length")
    seen = ", ".join(f"{count} x {reason!r}" for reason, count in sorted(odd.items()))
    return failed("finish_reason_length", f"requests ended otherwise than by their length: {seen}")


def _prompt_tokens_as_sent(records: Sequence[RequestRecord]) -> Check:
    name = "prompt_tokens_as_sent"
    known = [one for one in records if one.prompt_tokens is not None and one.prompt_len]
    if not known:
        return unknown(name, "no answer says how many prompt tokens it was for")
    return none_of(
        name,
        known,
        wrong=lambda one: one.prompt_tokens != one.prompt_len,
        what="were processed with another prompt length",
        detail=lambda one: f"sent {one.prompt_len} tokens, the server counted {one.prompt_tokens}",
    )


def _effective_concurrency(metrics: Metrics, workload: Workload) -> Check:
    name = "effective_concurrency"
    if workload.request_rate is not None:
        return passed(name)
    effective = metrics.effective_concurrency
    if effective is None:
        return failed(name, f"{workload.concurrency} requests were never in flight at once")
    error = effective / workload.concurrency - 1
    if abs(error) <= MAX_CONCURRENCY_ERROR:
        return passed(name)
    return failed(
        name,
        f"{effective:.2f} requests were in flight on average, {workload.concurrency} were asked for "
        f"({error:+.1%}, at most {MAX_CONCURRENCY_ERROR:.0%} off is allowed)",
        repeatable=True,
    )


def _client_not_bottleneck(result: LoadResult, metrics: Metrics) -> Check:
    name, client = "client_not_bottleneck", result.client
    if client.worker_cpu is not None and client.worker_cpu > MAX_WORKER_CPU:
        return failed(
            name,
            f"a load worker used {client.worker_cpu:.0%} of its core (at most {MAX_WORKER_CPU:.0%}): "
            f"{client.workers} workers are too few for {client.events} events",
        )
    tpot_ms = metrics.tpot_ms.mean or 0.0
    coalesced = client.coalesced_reads / client.reads if client.reads else 0.0
    delay_ms, stall_ms = client.stamp_delay_ms_p99, client.loop_stall_ms_max
    # Events that the server itself sends together have one time; only a late reader makes them lose theirs.
    most_ms = max(1.0, MAX_KERNEL_DELAY_OF_TPOT * tpot_ms)
    if "tpot" in metrics.undefined:
        # Answers were held back before they reached this host; so little more or less is not what hides their rhythm.
        most_ms = max(most_ms, MAX_KERNEL_DELAY_OF_ANSWER * (metrics.e2el_ms.mean or 0.0))
    if coalesced > MAX_COALESCED_SHARE and delay_ms is not None and delay_ms > most_ms:
        return failed(
            name,
            f"{coalesced:.1%} of the reads held more than one event (at most {MAX_COALESCED_SHARE:.0%}), and the "
            f"client was up to {delay_ms:.1f} ms late (p99; at most {most_ms:.1f} ms): the earlier ones lost theirs",
            repeatable=True,
        )
    most_ms = max(1.0, MAX_USER_DELAY_OF_TPOT * tpot_ms)
    if client.clock != "kernel" and stall_ms is not None and stall_ms > most_ms:
        return failed(
            name,
            f"there are no kernel stamps here, and the client looked away for {stall_ms:.1f} ms "
            f"(at most {most_ms:.1f} ms, {MAX_USER_DELAY_OF_TPOT:.0%} of the TPOT)",
            repeatable=True,
        )
    return passed(name)


def _clocks_monotonic(result: LoadResult, metrics: Metrics) -> Check:
    name = "clocks_monotonic"
    step_ms = result.client.clock_step_ms
    if result.client.clock == "kernel" and step_ms is not None and abs(step_ms) > MAX_CLOCK_STEP_MS:
        return failed(name, f"the wall clock was stepped by {step_ms:+.2f} ms inside the run", repeatable=True)
    if "throughput" in metrics.undefined:
        return failed(name, metrics.undefined["throughput"], repeatable=True)
    for record in result.records:
        times = [record.send_ns, *record.event_ns]
        if record.end_ns is not None:
            times.append(record.end_ns)
        for earlier, later in itertools.pairwise(times):
            if later < earlier:
                return failed(
                    name,
                    f"request {record.index} has an event {(earlier - later) / 1e6:.3f} ms before the one it follows",
                    repeatable=True,
                )
    return passed(name)


def _schedule_kept(result: LoadResult, workload: Workload) -> Check:
    name, lag_ms = "schedule_kept", result.client.schedule_lag_ms_p99
    if workload.request_rate is None or lag_ms is None:
        return passed(name)
    most_ms = max(10.0, MAX_SCHEDULE_LAG_SHARE * 1e3 / workload.request_rate)
    if lag_ms <= most_ms:
        return passed(name)
    return failed(
        name,
        f"the p99 of the delay between planned and actual send is {lag_ms:.1f} ms (at most {most_ms:.1f} ms): with "
        f"{workload.concurrency} requests in flight the server is slower than {workload.request_rate:g} requests/s",
    )


def _kind(error: str | None) -> str | None:
    """``timeout`` of ``timeout: not finished after ...``."""
    return None if error is None else error.split(":", 1)[0]
