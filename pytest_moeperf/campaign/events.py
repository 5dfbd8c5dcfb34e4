"""What a campaign tells while it runs, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.run import Run
from pytest_moeperf.model.verdict import Decision
from pytest_moeperf.model.workload import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignEvent:
    """One step, for progress lines and for the journal."""

    kind: str
    """``launch`` (about to), ``ready``, ``run`` (one finished), ``resumed`` (one of an earlier invocation),
    ``decided`` (one cell), ``phase``, ``note``."""
    text: str
    """A line for people."""
    elapsed_s: float
    phase: str = ""
    arm: str = ""
    cell: Cell | None = None
    run: Run | None = None
    decision: Decision | None = None
    launches: int = 0
    """Launches so far, this one included."""
    left_s: float | None = None
    """Until the launches that are decided on are over; a later stage may follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    decision: Decision
    runs: tuple[Run, ...]
    """Every run of this cell: warm-up, void and reference ones included."""
    match: BaselineMatch
