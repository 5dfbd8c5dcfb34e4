"""Load results made by hand, in milliseconds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from pytest_moeperf.model.records import ClientReport, LoadResult, RequestRecord

MS = 1_000_000


def record(
    *,
    index: int = 0,
    slot: int = 0,
    send: float = 0.0,
    events: Sequence[float] = (),
    tokens: Sequence[int] | None = None,
    end: float | None = None,
    **more: Any,
) -> RequestRecord:
    """A request that ended well; times in ms."""
    counts = list(tokens or [1] * len(events))
    fields: dict[str, Any] = {
        "requested_tokens": sum(counts),
        "completion_tokens": sum(counts),
        "prompt_len": 10,
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "finish_reason": "length",
        "status": 200,
        "done": True,
    }
    return RequestRecord(
        index=index,
        slot=slot,
        send_ns=round(send * MS),
        event_ns=array("q", [round(at * MS) for at in events]),
        event_tokens=array("i", counts),
        end_ns=round((end if end is not None else events[-1] if events else send) * MS),
        **{**fields, **more},
    )


def result(*records: RequestRecord, **client: Any) -> LoadResult:
    report = ClientReport(**{"clock": "kernel", "events": 100, "reads": 100, "worker_cpu": 0.2, **client})
    end_ns = max([10**10, *(one.end_ns or 0 for one in records), *(max(one.event_ns, default=0) for one in records)])
    return LoadResult(records=records, client=report, start_ns=0, end_ns=end_ns, started_at="2026-11-29T00:00:00+00:00")


def steady_run(
    *,
    concurrency: int = 4,
    waves: int = 4,
    tokens: int = 60,
    step: float = 10.0,
    ttft: float = 50.0,
    stalls: Sequence[tuple[int, int, float]] = (),
    wave_ttft: Sequence[float] | None = None,
    gap: float = 0.2,
) -> LoadResult:
    """A closed loop in which all streams tick together. ``stalls``: (wave, token, extra ms) that all streams share."""
    records = []
    now = 0.0
    for wave in range(waves):
        at = now + (wave_ttft[wave] if wave_ttft is not None else ttft)
        events = []
        for token in range(tokens):
            at += sum(extra for w, t, extra in stalls if (w, t) == (wave, token))
            events.append(at)
            at += step
        for slot in range(concurrency):
            jitter = slot * 0.01
            records.append(
                record(
                    index=wave * concurrency + slot,
                    slot=slot,
                    send=now + jitter,
                    events=[event + jitter for event in events],
                )
            )
        now = events[-1] + gap
    return result(*records)
