"""What the gate knows of one cell, and how a launch's runs enter it. Immutable: every step gives a new state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Decision, Interval
from pytest_moeperf.stats.components import Components, components
from pytest_moeperf.stats.effects import LaunchMean, launch_mean, launch_means, usable

SCREEN, CONFIRM, VERIFY, RECORD = "screen", "confirm", "verify", "record"

SCREEN_ALPHA = 0.01
"""One-sided error of the screen; with the two below a pass by mistake at the margin happens in at most 5 % of
cells."""
GROSS_ALPHA = 0.001
"""One-sided error of the look after one ABBA block (or two launches against the store)."""
CONFIRM_ALPHA = 0.039
"""One-sided error of all planned looks of a confirmation together."""
STORED_CLAIM_SHARE = 0.5
"""Of that error for claims against stored runs alone: all launches of an invocation share one session, for
better or worse."""
VERIFY_ALPHA = 0.05
"""One-sided error of the fixed-n interval of a verification."""
GROSS_PAIRS = 2
VERIFY_PAIRS = 4
ATTACHED_FACTOR = 3
"""A server that can't be relaunched gets this many times the usual runs before the gate gives up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What the bench can do for this cell."""

    reference: bool
    """A reference arm can be launched."""
    relaunch: bool
    """The candidate can be launched afresh."""
    reference_problem: str = ""
    """Why a reference arm that should have been there is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedLaunch:
    """The valid runs of one cell in one launch."""

    launch: str
    session: str
    arm: str
    phase: str
    pair: int | None
    """Number of the pair in its phase that this launch belongs to; None: unpaired."""
    runs: tuple[Run, ...]
    means: dict[str, LaunchMean]
    """By bound key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a cell needs next."""

    phase: str
    paired: bool
    count: int
    """Pairs, or candidate launches, still missing before the gate can look again."""
    runs: int
    """Valid runs of this cell in each launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellState:
    plan: CellPlan
    settings: GateSettings
    capabilities: Capabilities
    record: bool = False
    phase: str = SCREEN
    match: BaselineMatch | None = None
    stored: dict[str, Components] = field(default_factory=dict)
    """Variance components of the comparable baseline, by bound key; bounds that it does not hold are missing."""
    launches: tuple[ObservedLaunch, ...] = ()
    look: int = 0
    """Index of the next look of a confirmation, among all its checkpoints."""
    judged: dict[str, Interval] = field(default_factory=dict)
    """What the last look read each bound from, by bound key."""
    rejected: frozenset[tuple[str, str]] = frozenset()
    """Hypotheses (bound key, side) rejected so far."""
    discovery: Decision | None = None
    """What a verification has to reproduce."""
    budget_wanted_s: float | None = None
    """A budget that would have been enough. None: the look, not the budget, is why the cell ends here."""
    odd: tuple[str, ...] = ()
    decision: Decision | None = None

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return self.plan.bounds

    @property
    def comparable(self) -> bool:
        return self.match is not None and self.match.comparable

    @property
    def provisional(self) -> bool:
        return self.match is not None and self.match.baseline is not None and self.match.baseline.provisional

    @property
    def paired(self) -> bool:
        """Confirmations launch a reference arm beside the candidate."""
        return self.capabilities.reference and self.capabilities.relaunch

    def of(self, arm: str, *, phase: str | None = None, pairs_only: bool = False) -> tuple[ObservedLaunch, ...]:
        return tuple(
            item
            for item in self.launches
            if item.arm == arm and (phase is None or item.phase == phase) and not (pairs_only and item.pair is None)
        )

    def pair_numbers(self, phase: str) -> tuple[int, ...]:
        """Pairs of which both arms are there."""
        arms: dict[int, set[str]] = {}
        for item in self.launches:
            if item.phase == phase and item.pair is not None:
                arms.setdefault(item.pair, set()).add(item.arm)
        return tuple(number for number, seen in arms.items() if len(seen) == 2)

    def differences(self, key: str, phase: str) -> tuple[float, ...]:
        """Candidate - reference of every complete pair of a phase."""
        means: dict[int, dict[str, float]] = {}
        for item in self.launches:
            if item.phase == phase and item.pair is not None:
                means.setdefault(item.pair, {})[item.arm] = item.means[key].mean
        return tuple(arms[CANDIDATE] - arms[REFERENCE] for arms in means.values() if len(arms) == 2)


def start(plan: CellPlan, *, settings: GateSettings, capabilities: Capabilities, record: bool = False) -> CellState:
    return CellState(
        plan=plan, settings=settings, capabilities=capabilities, record=record, phase=RECORD if record else SCREEN
    )


def with_match(state: CellState, match: BaselineMatch) -> CellState:
    """Set what the store has; reduces the stored runs to variance components once."""
    stored: dict[str, Components] = {}
    odd: list[str] = []
    if match.comparable and match.baseline is not None:
        for bound in state.bounds:
            values = [(run, run.values.get(bound.key)) for run in match.baseline.runs]
            kept = [(run.session, run.launch, bound.effect(value)) for run, value in values if usable(value) and value]
            unusable = sum(value is not None and not usable(value) for _, value in values)
            if unusable:
                odd.append(
                    f"{unusable} stored runs hold no usable {bound.label} (zero, negative or not a number): left out."
                )
            if kept:
                stored[bound.key] = components(launch_means(kept))
    return replace(state, match=match, stored=stored, odd=state.odd + tuple(odd))


def need(state: CellState) -> Need | None:
    """What to measure next; None: the cell is decided. A count of 0 or less: nothing, the gate can look."""
    if state.decision is not None:
        return None
    runs = state.settings.runs_per_launch
    candidates = len(state.of(CANDIDATE))
    relaunch = state.capabilities.relaunch
    if state.phase == RECORD:
        all_in_one = 1 if relaunch else max(1, state.settings.record_launches)
        return Need(phase=RECORD, paired=False, count=recorded_launches(state) - candidates, runs=runs * all_in_one)
    if state.phase == SCREEN:
        return Need(phase=SCREEN, paired=False, count=1 - candidates, runs=runs)
    if state.phase == VERIFY or state.paired:
        wanted = VERIFY_PAIRS if state.phase == VERIFY else next_checkpoint(state)
        return Need(phase=state.phase, paired=True, count=wanted - len(state.pair_numbers(state.phase)), runs=runs)
    if relaunch:
        return Need(phase=CONFIRM, paired=False, count=next_checkpoint(state) - candidates, runs=runs)
    return Need(phase=CONFIRM, paired=False, count=1, runs=runs * (ATTACHED_FACTOR - 1))


def checkpoints(state: CellState) -> tuple[int, ...]:
    """Pairs, or candidate launches, at which a confirmation looks: one block first, then the planned looks."""
    looks = state.settings.looks
    return (GROSS_PAIRS, *looks) if looks[0] > GROSS_PAIRS else looks


def next_checkpoint(state: CellState) -> int:
    return checkpoints(state)[state.look]


def planned_look(state: CellState) -> int | None:
    """Index of the current look among the planned ones; None: the early look for a gross change."""
    if not state.capabilities.relaunch:
        return len(state.settings.looks) - 1
    early = len(checkpoints(state)) - len(state.settings.looks)
    return state.look - early if state.look >= early else None


def last_look(state: CellState) -> bool:
    return not state.capabilities.relaunch or state.look + 1 == len(checkpoints(state))


def enough(state: CellState) -> bool:
    """Whether the launches that the last look asked for are there."""
    if state.phase == SCREEN:
        return len(state.of(CANDIDATE)) >= 1
    if state.phase == RECORD:
        return len(state.of(CANDIDATE)) >= (recorded_launches(state))
    if state.phase == VERIFY:
        return len(state.pair_numbers(VERIFY)) >= VERIFY_PAIRS
    if state.paired:
        return len(state.pair_numbers(CONFIRM)) >= next_checkpoint(state)
    return not state.capabilities.relaunch or len(state.of(CANDIDATE)) >= next_checkpoint(state)


def recorded_launches(state: CellState) -> int:
    return max(1, state.settings.record_launches) if state.capabilities.relaunch else 1


def opening(state: CellState) -> Launch | None:
    """The launch of the screen where nothing was read off it, so that it may be one half of the first pair.

    Nothing comparable that is stored, no absolute limit: nothing to hold it against. A launch that has been looked at
    stays out, for its value is why the confirmation takes place.
    """
    limited = any(bound.at_least is not None or bound.at_most_ms is not None for bound in state.bounds)
    if state.phase != CONFIRM or state.stored or limited or len(state.launches) != 1:
        return None
    (only,) = state.launches
    return only.runs[0].launch


def with_opening(state: CellState) -> CellState:
    """Make the launch of the screen the candidate of the first pair."""
    (only,) = state.launches
    return replace(state, launches=(replace(only, phase=CONFIRM, pair=0),))


def add_launch(state: CellState, *, launch: Launch, runs: Sequence[Run], pair: int | None = None) -> CellState:
    """Add the valid runs of one launch. More runs of a launch that is already there join it.

    :param runs: valid ones only, each with a usable value for every bound; see
    :func:`pytest_moeperf.gate.validity.problems`.
    """
    phase = state.phase
    known = next(
        (item for item in state.launches if item.launch == launch.id and item.arm == launch.arm and item.pair == pair),
        None,
    )
    kept = (*known.runs, *runs) if known is not None else tuple(runs)
    means = {
        bound.key: launch_mean(
            (bound.effect(run.metrics.value(bound) or math.nan) for run in kept),
            session=launch.session,
            launch=launch.id,
        )
        for bound in state.bounds
    }
    item = ObservedLaunch(
        launch=launch.id,
        session=launch.session,
        arm=launch.arm,
        phase=known.phase if known is not None else phase,
        pair=pair,
        runs=kept,
        means=means,
    )
    if known is None:
        return replace(state, launches=(*state.launches, item))
    return replace(state, launches=tuple(item if other is known else other for other in state.launches))
