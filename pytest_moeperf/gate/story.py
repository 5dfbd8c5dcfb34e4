"""What the other cells say about a win: does it fit the claim's own story?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_moeperf.gate.evidence import pair_data
from pytest_moeperf.gate.state import VERIFY, CellState
from pytest_moeperf.model.verdict import BoundResult, Decision, Verdict
from pytest_moeperf.stats.effects import mean
from pytest_moeperf.units import format_change

WINS = frozenset({Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN})
MOVED_SHARE = 0.25
"""A neighbour moved along if it moved by at least this share of the claim."""


def tell_stories(decisions: Mapping[str, Decision], controls: Mapping[str, CellState]) -> dict[str, Decision]:
    """Add to every win what its neighbours and control cells did."""
    told = {}
    for key, decision in decisions.items():
        notes: list[str] = []
        if decision.verdict in WINS:
            claim = next(result for result in decision.results if result.verdict is decision.verdict)
            notes.extend(_neighbours(decision, claim, list(decisions.values())))
            notes.extend(_controls(decision, claim, controls))
        told[key] = replace(decision, odd=(*decision.odd, *notes)) if notes else decision
    return told


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


def _neighbours(decision: Decision, claim: BoundResult, others: Sequence[Decision]) -> list[str]:
    kin = _family(decision, others)
    place = next(index for index, other in enumerate(kin) if other.cell == decision.cell)
    notes = []
    for other in kin[max(0, place - 1) : place] + kin[place + 1 : place + 2]:
        moved = next((result.interval for result in other.results if result.bound.key == claim.bound.key), None)
        if moved is None or claim.interval is None:
            notes.append(f"The neighbour c={other.cell.workload.concurrency} says nothing: {other.verdict}.")
            continue
        change = format_change(claim.bound.ratio(moved.estimate))
        if moved.upper < 0:
            notes.append(f"The neighbour c={other.cell.workload.concurrency} moved the other way ({change}).")
        elif moved.estimate < MOVED_SHARE * claim.interval.estimate:
            notes.append(f"The neighbour c={other.cell.workload.concurrency} did not move ({change}).")
    return notes


def _controls(decision: Decision, claim: BoundResult, controls: Mapping[str, CellState]) -> list[str]:
    notes = []
    for control in controls.values():
        if control.plan.cell.backend != decision.cell.backend or claim.bound not in control.bounds:
            continue
        label = f"Control cell c={control.plan.cell.workload.concurrency}, measured in the same launches"
        data = pair_data(control, claim.bound, VERIFY)
        if control.odd or data is None or data.n < 2:
            notes.append(f"{label}: no valid comparison ({control.odd[0] if control.odd else 'too few pairs'}).")
            continue
        change = format_change(claim.bound.ratio(mean(data.differences)))
        spread = 2 * data.se
        if data.mean < -spread:
            notes.append(f"{label}: got worse ({change}) while the claim is a gain.")
        else:
            notes.append(f"{label}: {change}{' (no change seen)' if abs(data.mean) <= spread else ''}.")
    return notes
