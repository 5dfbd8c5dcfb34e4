"""The ten verdicts, and what a test's outcome carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence, Run
from pytest_moeperf.model.workload import Cell


class Verdict(StrEnum):
    EQUIVALENT = "EQUIVALENT"
    NO_CHANGE_SEEN = "NO_CHANGE_SEEN"
    NON_INFERIOR = "NON_INFERIOR"
    VERIFIED_WIN = "VERIFIED_WIN"
    REGRESSION = "REGRESSION"
    UNVERIFIED_WIN = "UNVERIFIED_WIN"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    INCOMPARABLE = "INCOMPARABLE"
    NO_BASELINE = "NO_BASELINE"

    @property
    def passes(self) -> bool:
        return self in PASSING


PASSING = frozenset({Verdict.EQUIVALENT, Verdict.NO_CHANGE_SEEN, Verdict.NON_INFERIOR, Verdict.VERIFIED_WIN})

SEVERITY: tuple[Verdict, ...] = (
    Verdict.INVALID,
    Verdict.INCOMPARABLE,
    Verdict.NO_BASELINE,
    Verdict.REGRESSION,
    Verdict.UNVERIFIED_WIN,
    Verdict.INCONCLUSIVE,
    Verdict.NO_CHANGE_SEEN,
    Verdict.NON_INFERIOR,
    Verdict.VERIFIED_WIN,
    Verdict.EQUIVALENT,
)
"""Of a cell with several bounds the first of these wins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate of a log-ratio effect (> 0 is better), with all that is needed to judge it."""

    estimate: float
    lower: float
    upper: float
    level: float
    """Two-sided coverage, 0..1; each side errs with (1 - level) / 2."""
    n: int
    """Replicates it stands on: launches for a screen, pairs for a confirmation."""
    method: str
    """``prediction interval, 4 sessions x 2 launches stored``, ``paired, look 2 of 3`` ..."""
    df: float | None = None
    warnings: tuple[str, ...] = ()
    launches_to_decide: int | None = None
    """About how many launches (pairs for a confirmation) in all would decide; None: not known or decided."""

    @property
    def inside_noise(self) -> bool:
        """It holds "no change"."""
        return self.lower <= 0 <= self.upper


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One fingerprint field with two values."""

    field: str
    """``workload.num_prompts``."""
    baseline: str
    here: str
    blocking: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundResult:
    """The verdict on one bound of a cell."""

    bound: Bound
    verdict: Verdict
    measured: float | None = None
    """Geometric mean over the candidate's launches, in the bound's unit."""
    baseline: float | None = None
    interval: Interval | None = None
    reason: str = ""
    """One sentence with the figures: why this verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What the gate says about one cell. Pure facts; texts for people are made by the reporters."""

    cell: Cell
    verdict: Verdict
    results: tuple[BoundResult, ...] = ()
    reasons: tuple[str, ...] = ()
    """What happened, how sure, in order of importance; each a full sentence."""
    odd: tuple[str, ...] = ()
    """What doesn't fit the claim: a neighbour that did not move, a bimodal launch, ..."""
    next_steps: tuple[str, ...] = ()
    """What to do, most useful first: templates, see ``gate/steps.py``."""
    differences: tuple[Difference, ...] = ()
    candidate_launches: int = 0
    reference_launches: int = 0
    pairs: int = 0
    """Confirmation pairs, for the ``launches`` column: ``1 + 4x2``."""
    phase: str = "screen"
    """``screen``, ``confirm``, ``verify`` or ``record``."""
    verification_launches: tuple[str, ...] = ()
    """Ids of the candidate's launches that verified a win: what is recorded of it, not the runs that discovered it."""
    provisional: bool = False
    """The baseline has fewer than 4 launches in 2 sessions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What ``moeperf.measure()`` returns and what rides on the test's report."""

    decision: Decision
    runs: tuple[Run, ...] = ()
    node_id: str = ""
    recorded: str | None = None
    """Path of the baseline that this invocation wrote; the test then passes."""
    refused: str | None = None
    """Why ``--update-baselines`` did not write."""
    evidence: Evidence = Evidence()
    ceiling_tok_s: float | None = None
    efficiency: float | None = None
    session: dict[str, str] = field(default_factory=dict)
    """Facts of the invocation: engine, model, hardware, and the commands that go on from its report."""

    @property
    def verdict(self) -> Verdict:
        return self.decision.verdict
