"""One load run of one cell in one launch, and the launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.workload import Cell

CANDIDATE = "candidate"
REFERENCE = "reference"
ARMS = (CANDIDATE, REFERENCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Over the requests (or events) of a run, in ms. A percentile that the sample can't carry is None."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """The metrics of one run; definitions in docs/metrics.md. Undefined is None: never NaN, never 0."""

    completed: int
    failed: int
    output_tokens: int
    duration_s: float
    """First send to last token."""
    out_tps: float | None
    """Output tok/s over the full window."""
    out_tps_steady: float | None
    """Output tok/s over the steady window: the longest span with in-flight >= 0.95 x concurrency."""
    steady_window_s: float | None
    steady_share: float | None
    """Steady window / duration, 0..1."""
    request_rate: float | None
    """Completed requests/s over the full window."""
    effective_concurrency: float | None
    """Time integral of in-flight requests over the steady window / its length."""
    ttft_ms: Distribution
    tpot_ms: Distribution
    ntpot_ms: Distribution
    itl_ms: Distribution
    """Gap between events / tokens of the event, spread over its tokens (amortised)."""
    icl_ms: Distribution
    """Gap between events."""
    e2el_ms: Distribution
    tokens_per_event: float | None = None
    tokens_per_step: float | None = None
    """Of one stream: more than 1 where the server speculates. Tokens that a stream interval collects are steps each."""
    accepted_per_step: float | None = None
    """Tokens of one stream for each step that verified a draft, as the server counted; None: it did not say."""
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    goodput_rps: float | None = None
    undefined: dict[str, str] = field(default_factory=dict)
    """Metric -> why it is None, where that is another reason than too few requests or tokens."""

    def value(self, bound: Bound) -> float | None:
        """The number that ``bound`` gates on; None where it is undefined."""
        if bound.metric == "throughput":
            return self.out_tps_steady if self.out_tps_steady is not None else self.out_tps
        if bound.metric == "goodput":
            return self.goodput_rps
        distribution: Distribution = getattr(self, f"{bound.metric}_ms")
        value: float | None = getattr(distribution, bound.percentile)
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One validity check of a run."""

    name: str
    """``no_failed_requests``, ``tokens_as_requested``, ..."""
    status: str
    """``pass``, ``fail`` or ``unknown`` (could not be looked at; ``message`` says why)."""
    message: str = ""
    """For ``fail``: what was seen, what was expected, with the figures."""
    repeatable: bool = False
    """A failure that another run may not show (a compile stall, throttling): the run is void, not the cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceItem:
    """One thing seen, and what it says about the backend that ran."""

    source: str
    """``server log line 32``, ``/server_info moe_runner_backend``, ``kernel profile`` ..."""
    text: str
    """The line or value itself."""
    runner: str | None = None
    """The runner that it shows, if it shows one."""
    says: str = "unknown"
    """``confirmed``, ``contradicted`` or ``unknown`` for the requested backend."""
    rule: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Which backend really ran."""

    status: str = "unknown"
    """``confirmed``, ``contradicted`` or ``unknown``."""
    requested: str = ""
    runner: str | None = None
    """What really ran, if known."""
    items: tuple[EvidenceItem, ...] = ()
    looked_for: tuple[str, ...] = ()
    """Where ``unknown``: what would have decided."""


Plain = str | int | float | bool | None
"""A JSON scalar. None means unknown, which is equal to nothing, itself included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """What must be equal for two runs to be comparable, by group. Values are JSON scalars; None: unknown."""

    workload: dict[str, Plain] = field(default_factory=dict)
    server: dict[str, Plain] = field(default_factory=dict)
    software: dict[str, Plain] = field(default_factory=dict)
    hardware: dict[str, Plain] = field(default_factory=dict)
    environment: dict[str, Plain] = field(default_factory=dict)


FINGERPRINT_GROUPS = ("workload", "server", "software", "hardware", "environment")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One life of one server process tree."""

    id: str
    session: str
    """All launches of one invocation share it: the unit of between-session variance."""
    arm: str = CANDIDATE
    engine: str = ""
    backend: str = ""
    command: tuple[str, ...] = ()
    started_at: str = ""
    start_s: float | None = None
    """Time until ready; None for a server that was already up."""
    log_path: str = ""
    reused: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One load run of one cell in one launch."""

    id: str
    cell: Cell
    launch: Launch
    index: int
    """Of the run among the runs of this cell in this launch."""
    started_at: str
    metrics: Metrics
    client: ClientReport
    checks: tuple[Check, ...] = ()
    evidence: Evidence = Evidence()
    fingerprint: Fingerprint = Fingerprint()
    warmup: bool = False
    """Thrown away by the warm-up rule; kept for the record."""
    telemetry: dict[str, Any] = field(default_factory=dict)
    ceiling_tok_s: float | None = None

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status == "fail")

    @property
    def valid(self) -> bool:
        return not self.failures
