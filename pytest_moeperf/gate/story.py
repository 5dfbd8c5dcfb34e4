"""What the other cells say about a win: does it fit the claim's own story?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_moeperf.gate.evidence import pair_data
from pytest_moeperf.gate.state import VERIFY, CellState
from pytest_moeperf.model.verdict import BoundResult, Decision, Verdict
from pytest_moeperf.stats.effects import mean
from pytest_moeperf.units import format_change
from pytest_moeperf.verdicts import bound_result, overall

WINS = frozenset({Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN})
MOVED_SHARE = 0.25
"""A neighbour moved along if it moved by at least this share of the claim."""

_ALONE = "it showed again, but in this cell alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """Another cell beside a win."""

    moved: bool
    """Along with it."""
    text: str = ""


def tell_stories(
    decisions: Mapping[str, Decision], controls: Mapping[str, CellState], *, reason: str = ""
) -> dict[str, Decision]:
    """Add to every win what its neighbours and control cells did. A win that none of them shares is not verified: a
    tuned shape, a graph of one batch size or a baseline that was wrong there looks the same.

    :param reason: why a win may stand alone, from ``--perf-reason``.
    """
    told = {}
    for key, decision in decisions.items():
        found = decision
        if decision.verdict in WINS:
            claim = next(result for result in decision.results if result.verdict is decision.verdict)
            seen = [*_neighbours(decision, claim, list(decisions.values())), *_controls(decision, claim, controls)]
            found = replace(decision, odd=(*decision.odd, *(item.text for item in seen if item.text)))
            if decision.verdict is Verdict.VERIFIED_WIN and not any(item.moved for item in seen):
                found = _alone(found, measured=bool(seen), reason=reason)
        told[key] = found
    return told


def _alone(decision: Decision, *, measured: bool, reason: str) -> Decision:
    if not measured:
        text = "No neighbour or control cell was measured beside it, so whether this cell alone gained is not shown."
        return replace(decision, odd=(*decision.odd, text))
    if reason:
        return replace(decision, odd=(*decision.odd, f"No other cell moved along; the reason that was given: {reason}"))
    results = tuple(
        bound_result(
            result.bound,
            Verdict.UNVERIFIED_WIN,
            measured=result.measured,
            baseline=result.baseline,
            interval=result.interval,
            detail=_ALONE,
        )
        if result.verdict is Verdict.VERIFIED_WIN
        else result
        for result in decision.results
    )
    failed = (
        "Verification failed: it showed again in fresh launches, but in this cell alone; no neighbour or control moved"
    )
    return replace(
        decision,
        verdict=overall(tuple(result.verdict for result in results)),
        results=results,
        reasons=(*(text for text in decision.reasons if "and verified" not in text), f"{failed} along."),
        next_steps=(
            "{measure} --perf-verify-wins --perf-continue --perf-reason='why here' -k {node}    (if you know why)",
            "or measure this cell and its neighbours again: a baseline that was recorded wrong looks the same",
        ),
    )


def _family(decision: Decision, others: Sequence[Decision]) -> list[Decision]:
    """Cells that differ in concurrency only, in its order."""
    workload = decision.cell.workload
    kin = [
        other
        for other in others
        if other.cell.backend == decision.cell.backend
        and (other.cell.workload.input_len, other.cell.workload.output_len) == (workload.input_len, workload.output_len)
        and other.cell.workload.request_rate == workload.request_rate
    ]
    return sorted(kin, key=lambda other: other.cell.workload.concurrency)


def _neighbours(decision: Decision, claim: BoundResult, others: Sequence[Decision]) -> list[_Seen]:
    kin = _family(decision, others)
    place = next(index for index, other in enumerate(kin) if other.cell == decision.cell)
    return [_neighbour(other, claim) for other in kin[max(0, place - 1) : place] + kin[place + 1 : place + 2]]


def _neighbour(other: Decision, claim: BoundResult) -> _Seen:
    name = f"The neighbour c={other.cell.workload.concurrency}"
    moved = next((result.interval for result in other.results if result.bound.key == claim.bound.key), None)
    if moved is None or claim.interval is None:
        return _Seen(moved=False, text=f"{name} says nothing: {other.verdict}.")
    change = format_change(claim.bound.ratio(moved.estimate))
    if moved.upper < 0:
        return _Seen(moved=False, text=f"{name} moved the other way ({change}).")
    if moved.estimate < MOVED_SHARE * claim.interval.estimate:
        return _Seen(moved=False, text=f"{name} did not move ({change}).")
    if moved.lower <= 0:
        return _Seen(moved=False, text=f"{name} moved along, but within its noise ({change}).")
    return _Seen(moved=True)


def _controls(decision: Decision, claim: BoundResult, controls: Mapping[str, CellState]) -> list[_Seen]:
    return [
        _control(control, claim)
        for control in controls.values()
        if control.plan.cell.backend == decision.cell.backend and claim.bound in control.bounds
    ]


def _control(control: CellState, claim: BoundResult) -> _Seen:
    label = f"Control cell c={control.plan.cell.workload.concurrency}, measured in the same launches"
    data = pair_data(control, claim.bound, VERIFY)
    if control.odd or data is None or data.n < 2:
        why = control.odd[0] if control.odd else "too few pairs"
        return _Seen(moved=False, text=f"{label}: no valid comparison ({why}).")
    change = format_change(claim.bound.ratio(mean(data.differences)))
    spread = 2 * data.se
    if data.mean < -spread:
        return _Seen(moved=False, text=f"{label}: got worse ({change}) while the claim is a gain.")
    still = abs(data.mean) <= spread
    shared = claim.interval is not None and data.mean >= MOVED_SHARE * claim.interval.estimate
    return _Seen(moved=shared and not still, text=f"{label}: {change}{' (no change seen)' if still else ''}.")
