"""The outcomes of all workers as one result."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.load.clock import KERNEL, USER, DelayHistogram
from pytest_moeperf.load.job import Outcome, from_wire
from pytest_moeperf.model.records import ClientReport, LoadResult, RequestRecord


def merge_outcomes(outcomes: Sequence[Outcome], *, start_ns: int, started_at: str) -> LoadResult:
    """Records in the order of the requests; the client's error over all workers, the worst where they don't add."""
    records = sorted(
        (from_wire(wire) for outcome in outcomes for wire in outcome.records), key=lambda record: record.index
    )
    return LoadResult(
        records=tuple(records),
        client=_client_report(outcomes, records),
        start_ns=start_ns,
        end_ns=max(outcome.end_ns for outcome in outcomes),
        started_at=started_at,
    )


def _client_report(outcomes: Sequence[Outcome], records: Sequence[RequestRecord]) -> ClientReport:
    delays = DelayHistogram()
    for outcome in outcomes:
        delays.merge(DelayHistogram(outcome.delay_counts, outcome.delay_max_ns))
    events = sum(outcome.events for outcome in outcomes)
    cpu_ns = sum(outcome.window_cpu_ns + outcome.parse_cpu_ns for outcome in outcomes)
    return ClientReport(
        clock=KERNEL if all(outcome.clock == KERNEL for outcome in outcomes) else USER,
        workers=len(outcomes),
        events=events,
        reads=sum(outcome.reads for outcome in outcomes),
        coalesced_reads=sum(outcome.coalesced_reads for outcome in outcomes),
        stamp_delay_ms_p50=delays.percentile_ms(0.50),
        stamp_delay_ms_p99=delays.percentile_ms(0.99),
        stamp_delay_ms_max=delays.maximum_ms,
        unstamped_reads=sum(outcome.unstamped_reads for outcome in outcomes),
        worker_cpu=max((o.window_cpu_ns / o.window_ns for o in outcomes if o.window_ns > 0), default=None),
        cpu_us_per_event=cpu_ns / events / 1e3 if events else None,
        loop_stall_ms_max=max(outcome.loop_stall_ns for outcome in outcomes) / 1e6,
        schedule_lag_ms_p99=_schedule_lag_ms_p99(records),
        clock_step_ms=max((outcome.clock_step_ns for outcome in outcomes), key=abs) / 1e6,
        notes=_notes(outcomes),
    )


def _schedule_lag_ms_p99(records: Sequence[RequestRecord]) -> float | None:
    lags = sorted(record.send_ns - record.scheduled_ns for record in records if record.scheduled_ns is not None)
    return max(0, lags[min(len(lags) - 1, int(0.99 * len(lags)))]) / 1e6 if lags else None


def _notes(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    notes = []
    cpus = [str(outcome.cpu) for outcome in outcomes if outcome.cpu is not None]
    if cpus:
        notes.append(f"workers were pinned to core {', '.join(cpus)}")
    reconnects = sum(outcome.reconnects for outcome in outcomes)
    if reconnects:
        notes.append(f"the server closed connections between requests: {reconnects} were opened anew")
    parses = sum(outcome.parsed_in_window for outcome in outcomes)
    if parses:
        notes.append(f"{parses} reads were parsed inside the window to keep memory bounded")
    if any(outcome.stopped_early for outcome in outcomes):
        notes.append("no new request was sent after the first failure or the time-out")
    return tuple(notes)
