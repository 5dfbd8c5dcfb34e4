"""The words of a Decision: what happened, how sure, why. What to do is in ``steps.py``."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.fingerprint import describe
from pytest_moeperf.gate.evidence import Finding, full_margin, limits, prediction
from pytest_moeperf.gate.state import CONFIRM, SCREEN, VERIFY, CellState
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.verdict import BoundResult, Interval, Verdict
from pytest_moeperf.units import format_level, format_percent, format_quantity
from pytest_moeperf.verdicts import explain, format_interval


def headline(state: CellState, result: BoundResult) -> str:
    """``throughput at c=1 512/128: 731 against 361 tok/s, +102 % [+96 %, +109 %], 4 pairs of fresh launches.``"""
    bound, interval = result.bound, result.interval
    text = f"{bound.key} at {state.plan.cell.workload.label}:"
    if result.measured is not None:
        text += f" {format_quantity(result.measured)}"
        text += f" against {format_quantity(result.baseline)}" if result.baseline is not None else ""
        text += f" {bound.unit}"
    if interval is not None:
        text += f", {format_interval(bound, interval)}, {_stands_on(state, interval)}"
    return text + "."


def _stands_on(state: CellState, interval: Interval) -> str:
    if state.paired and state.phase in {CONFIRM, VERIFY} and state.pair_numbers(state.phase):
        return f"{interval.n} pairs of fresh launches"
    return f"{interval.n} launch{'es' * (interval.n > 1)} against stored runs ({interval.method})"


def reasons(state: CellState, verdict: Verdict, judged: Sequence[tuple[Finding, BoundResult]], why: str) -> list[str]:
    """In order of importance; the deciding bounds first, then what else failed."""
    deciding = [(finding, result) for finding, result in judged if result.verdict is verdict]
    lines = [headline(state, result) for _, result in deciding if result.measured is not None]
    lines.extend(_meaning(state, verdict, *deciding[0]))
    if why:
        lines.append(why)
    if state.capabilities.reference_problem:
        lines.append(state.capabilities.reference_problem)
    lines.extend(
        result.reason + "." for _, result in judged if result.verdict is not verdict and not result.verdict.passes
    )
    return lines


def _meaning(state: CellState, verdict: Verdict, finding: Finding, result: BoundResult) -> list[str]:
    if verdict in {Verdict.NO_BASELINE, Verdict.INCOMPARABLE}:
        return _nothing_to_compare(state, verdict, finding)
    if verdict is Verdict.REGRESSION:
        text = _regression(state, finding, result)
    elif verdict is Verdict.INCONCLUSIVE:
        text = _inconclusive(state, finding, result)
    else:
        text = explain(verdict, result.bound, detail=finding.detail)
        text = f"{text[0].upper()}{text[1:]}."
    return [text, *_provisional(state, verdict)]


def _nothing_to_compare(state: CellState, verdict: Verdict, finding: Finding) -> list[str]:
    if verdict is Verdict.NO_BASELINE:
        # That nothing is stored is the verdict itself.
        return [f"Nothing is stored that this could be held against: {finding.detail}."] if finding.detail else []
    blocking = [item for item in state.match.differences if item.blocking] if state.match is not None else []
    return [
        "The stored baseline was measured under other conditions, so nothing is compared.",
        *(f"{line}." for line in describe(blocking)),
    ]


def _regression(state: CellState, finding: Finding, result: BoundResult) -> str:
    if finding.detail:
        return f"Its {finding.detail}. That compares nothing, so no baseline lifts it."
    level = format_level(result.interval.level) if result.interval is not None else ""
    return f"Proven worse: the whole {level} interval lies beyond a loss of {_worse_beyond(state, result.bound)}."


def _worse_beyond(state: CellState, bound: Bound) -> str:
    """What a whole interval has to lie beyond: ``1.5 %``."""
    margin = limits(state, bound)
    loss = margin.loss if full_margin(state, bound) else margin.proven_loss
    return format_percent(round(abs(bound.ratio(-loss)), 4))


def _inconclusive(state: CellState, finding: Finding, result: BoundResult) -> str:
    if result.interval is None:
        return f"Nothing was measured that could decide{': ' + finding.detail if finding.detail else ''}."
    if finding.detail:
        return f"Not decided: {finding.detail}."
    count = result.interval.launches_to_decide
    open_text = _open(state, result.bound)
    if count is not None:
        unit = "pairs" if state.paired and state.phase == CONFIRM else "launches"
        return f"{open_text}; about {count} {unit} in all would decide."
    found = prediction(state, result.bound)
    if found is not None and not state.paired:
        return (
            f"{open_text}, and more launches against the stored runs would not decide: the sessions alone leave an "
            f"uncertainty (sd) of {format_percent(round(found.se_limit, 4))}."
        )
    return f"{open_text}."


def _open(state: CellState, bound: Bound) -> str:
    loss = format_percent(bound.regression)
    if full_margin(state, bound) or state.phase == SCREEN:
        return f"Neither a loss of {loss} nor its absence is proven"
    beyond = _worse_beyond(state, bound)
    return f"Neither a loss (interval beyond {beyond}) nor its absence (interval within {loss}) is proven"


def _provisional(state: CellState, verdict: Verdict) -> list[str]:
    if not state.provisional or state.match is None or state.match.baseline is None:
        return []
    if state.paired and state.phase in {CONFIRM, VERIFY}:
        return []
    baseline = state.match.baseline
    assumed = format_percent(state.settings.assumed_session_sd)
    held = f"{baseline.launches} launch{'es' * (baseline.launches > 1)} in {baseline.sessions} session"
    held += "s" * (baseline.sessions > 1)
    text = f"The baseline is provisional ({held}; 4 in 2 are needed): a session sd of {assumed}"
    if verdict.passes:
        return [f"{text} is assumed."]
    return [f"{text} is assumed, so a regression or a win must be proven by its whole margin."]
