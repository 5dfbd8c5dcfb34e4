"""Stored runs of one cell: all of them, never a mean."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_moeperf.model import SCHEMA_VERSION
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.workload import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """One valid run, as much of it as decisions need."""

    id: str
    session: str
    launch: str
    started_at: str
    values: dict[str, float]
    """By bound key, in the metric's own unit: ``{"throughput": 731.2, "tpot": 1.28, "ttft.p99": 41.0}``."""
    start_s: float | None = None
    """Launch time of its server, for the planner."""
    run_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineEvent:
    """One change of a baseline."""

    at: str
    kind: str
    """``recorded`` (first), ``extended`` (more runs of the same level), ``moved`` (a new level), ``imported``."""
    reason: str
    runs: int
    change: dict[str, float]
    """Log-ratio effect of each bound key against the level before (> 0 is better); empty for the first."""
    by: str = ""
    """``--update-baselines``, ``moeperf accept``, ``moeperf import``."""
    drift: dict[str, float] = field(default_factory=dict)
    """Log-ratio effect of each bound key between the frozen anchor and the level after this event."""
    accepted: bool = False
    """Somebody gave ``reason`` and answers for it; otherwise it was composed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The unit of the store: one cell under one fingerprint."""

    schema: int = SCHEMA_VERSION
    engine: str
    model: str
    cell: Cell
    fingerprint: Fingerprint
    evidence: Evidence
    runs: tuple[StoredRun, ...]
    """Of the current level: what candidates are held against."""
    anchor: tuple[StoredRun, ...] = ()
    """Runs of the first level ever recorded; never change. Cumulative drift is measured from them."""
    retired: tuple[StoredRun, ...] = ()
    """Runs of earlier levels, kept."""
    history: tuple[BaselineEvent, ...] = ()
    provenance: str = ""
    """Where imported numbers come from; empty for own measurements."""

    @property
    def sessions(self) -> int:
        return len({run.session for run in self.runs})

    @property
    def launches(self) -> int:
        return len({run.launch for run in self.runs})

    @property
    def provisional(self) -> bool:
        """Fewer than 4 launches in 2 sessions: the variance between sessions is assumed, not known."""
        return self.launches < 4 or self.sessions < 2


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineMatch:
    """What the store has for a run."""

    baseline: Baseline | None
    """The comparable one, else the nearest; None: nothing of this shape."""
    path: str = ""
    differences: tuple[Difference, ...] = ()
    """Comparable if none is blocking."""

    @property
    def comparable(self) -> bool:
        return self.baseline is not None and not any(difference.blocking for difference in self.differences)
