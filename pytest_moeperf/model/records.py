"""What the load client saw: one record a request, one report about the client itself."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRecord:
    """One request. All times are nanoseconds of one monotonic clock, shared by all workers of the run."""

    index: int
    """Of the request in the run."""
    slot: int
    send_ns: int
    """Just before the first byte was written, on an open connection."""
    scheduled_ns: int | None = None
    """Open loop: when it should have been sent."""
    event_ns: array[int] = field(default_factory=lambda: array("q"))
    """Arrival of each event that carried tokens, in order."""
    event_tokens: array[int] = field(default_factory=lambda: array("q"))
    """New tokens in each of those events."""
    end_ns: int | None = None
    """End of the stream (trailer and [DONE] included); None: never."""
    requested_tokens: int = 0
    prompt_len: int = 0
    """Prompt tokens that were sent."""
    prompt_tokens: int | None = None
    """Prompt tokens that the server counted."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    """``length``, ``stop``, ``abort`` ... as the server said; None: it never said."""
    status: int | None = None
    """HTTP status; None: no answer."""
    done: bool = False
    """The stream ended as the protocol says ([DONE] seen, body complete)."""
    error: str | None = None
    """``kind: detail`` of what went wrong; kinds: in_band_error, timeout, connection, http, protocol."""
    retractions: int | None = None
    verify_steps: int | None = None
    """Steps that verified drafted tokens, where the server speculates and says so."""
    assumed_tokens: int = 0
    """Tokens of which only the total told; ``event_tokens`` spreads them by the length of the text."""
    output_ids: tuple[int, ...] | None = None
    """Only where asked for (output sanity)."""
    output_text: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.done


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientReport:
    """The instrument's own error. Anything unknown is None, never 0."""

    clock: str
    """``kernel`` (SO_TIMESTAMPNS) or ``user``."""
    workers: int = 1
    events: int = 0
    reads: int = 0
    coalesced_reads: int = 0
    """Reads that returned more than one event: only the last of them has an exact kernel stamp."""
    stamp_delay_ms_p50: float | None = None
    """Delay between the kernel's stamp and the moment that this process saw the bytes."""
    stamp_delay_ms_p99: float | None = None
    stamp_delay_ms_max: float | None = None
    unstamped_reads: int = 0
    """Reads without a kernel stamp although the clock is ``kernel``; user time was taken."""
    worker_cpu: float | None = None
    """Highest share of one core that a worker used in the window, 0..1."""
    cpu_us_per_event: float | None = None
    loop_stall_ms_max: float | None = None
    """Longest time that a worker did not look at its sockets although something was ready."""
    schedule_lag_ms_p99: float | None = None
    """Open loop: actual minus planned send."""
    clock_step_ms: float | None = None
    """Change of (realtime - monotonic) over the run; kernel stamps are realtime."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadResult:
    """Everything of one load run, before any metric."""

    records: tuple[RequestRecord, ...]
    client: ClientReport
    start_ns: int
    end_ns: int
    started_at: str
    """UTC, ISO 8601."""
