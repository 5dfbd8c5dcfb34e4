"""Findings on the bounds of a cell -> its Decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_moeperf.gate.evidence import Finding, measured_value, reference_value
from pytest_moeperf.gate.state import CONFIRM, CONFIRM_ALPHA, SCREEN, VERIFY, CellState
from pytest_moeperf.gate.steps import invalid_steps, next_steps
from pytest_moeperf.gate.words import reasons
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import ARMS, CANDIDATE, REFERENCE
from pytest_moeperf.model.verdict import BoundResult, Decision, Verdict
from pytest_moeperf.stats.effects import mean
from pytest_moeperf.stats.shape import two_groups
from pytest_moeperf.stats.signflip import sign_flip_p, smallest_p
from pytest_moeperf.units import format_percent
from pytest_moeperf.verdicts import bound_result, margins, overall


def unmeasured_bound(state: CellState, bound: Bound) -> Finding:
    """A bound without anything to be held against."""
    if state.match is None or state.match.baseline is None:
        return Finding(bound=bound, verdict=Verdict.NO_BASELINE)
    if not state.comparable:
        return Finding(bound=bound, verdict=Verdict.INCOMPARABLE)
    held = sorted({key for run in state.match.baseline.runs for key in run.values})
    detail = f"the baseline holds no usable {bound.key}, only {', '.join(held) or 'nothing'}"
    return Finding(bound=bound, verdict=Verdict.NO_BASELINE, detail=detail)


def decide(state: CellState, findings: Sequence[Finding], *, why: str = "") -> CellState:
    """Close the cell; an undecided finding counts as INCONCLUSIVE.

    :param why: what kept an undecided cell from the launches that it needed.
    """
    phases = _phases(state)
    results = tuple(
        bound_result(
            item.bound,
            item.verdict or Verdict.INCONCLUSIVE,
            measured=measured_value(state, item.bound, phases),
            baseline=reference_value(state, item.bound, phases),
            interval=item.interval,
            detail=item.detail,
        )
        for item in findings
    )
    verdict = overall(tuple(result.verdict for result in results))
    judged = list(zip(findings, results, strict=True))
    told, steps = reasons(state, verdict, judged, why), next_steps(state, verdict, judged)
    return _close(state, verdict, results, told, odd=(*state.odd, *_odd(state)), steps=steps)


def invalid(state: CellState, problems: Sequence[str]) -> CellState:
    """Close the cell: its runs can't be trusted."""
    results = tuple(
        BoundResult(bound=bound, verdict=Verdict.INVALID, reason=f"{bound.key}: {problems[0]}")
        for bound in state.bounds
    )
    told = [f"The runs can't be trusted: {problem}." for problem in problems]
    return _close(state, Verdict.INVALID, results, told, odd=state.odd, steps=invalid_steps())


def _close(
    state: CellState,
    verdict: Verdict,
    results: tuple[BoundResult, ...],
    told: Sequence[str],
    *,
    odd: tuple[str, ...],
    steps: Sequence[str],
) -> CellState:
    found = state.match is not None and state.match.baseline is not None
    decision = Decision(
        cell=state.plan.cell,
        verdict=verdict,
        results=results,
        reasons=tuple(told),
        odd=odd,
        next_steps=tuple(steps),
        differences=state.match.differences if state.match is not None and found else (),
        candidate_launches=len({item.launch for item in state.of(CANDIDATE)}),
        reference_launches=len({item.launch for item in state.of(REFERENCE)}),
        pairs=len(state.pair_numbers(CONFIRM)) + len(state.pair_numbers(VERIFY)),
        phase=state.phase,
        provisional=state.provisional,
        verification_launches=tuple(dict.fromkeys(item.launch for item in state.of(CANDIDATE, phase=VERIFY))),
    )
    return replace(state, decision=decision)


def _phases(state: CellState) -> tuple[str, ...]:
    """Whose launches the shown values come from: those that the interval stands on."""
    if state.phase == CONFIRM and not state.paired:
        return SCREEN, CONFIRM
    if state.phase in {CONFIRM, VERIFY} and not state.pair_numbers(state.phase):
        return (SCREEN,)
    return (state.phase,)


def _odd(state: CellState) -> list[str]:
    odd = []
    for bound in state.bounds:
        for arm in ARMS:
            groups = two_groups([item.means[bound.key].mean for item in state.of(arm)])
            if groups is not None:
                low, high = groups
                apart = format_percent(round(mean(high) - mean(low), 3))
                odd.append(
                    f"{bound.label} of the {arm}'s launches falls into two groups ({len(low)} and {len(high)}, "
                    f"{apart} apart): something is chosen at start (autotuning, placement), so no interval "
                    "holds to its last digit."
                )
        odd.extend(_sign_flip(state, bound))
    return odd


def _sign_flip(state: CellState, bound: Bound) -> list[str]:
    """Where what the t-interval says has no support from the signs alone."""
    differences = state.differences(bound.key, CONFIRM)
    if not differences or smallest_p(len(differences)) > CONFIRM_ALPHA:
        return []
    margin = margins(bound, proven=state.settings.proven)
    centre = mean(differences)
    if centre < -margin.loss:
        p = sign_flip_p([-item for item in differences], margin.proven_loss)
    elif centre > margin.win:
        p = sign_flip_p(differences, margin.proven_win)
    else:
        p = sign_flip_p(differences, -margin.loss)
    if p <= CONFIRM_ALPHA:
        return []
    text = (
        f"{bound.label}: the sign-flip cross-check over {len(differences)} pairs gives p = {p:.2g}, weaker than the "
        "t-interval: a few pairs carry the result."
    )
    return [text]
