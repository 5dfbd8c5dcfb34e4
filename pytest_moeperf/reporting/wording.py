"""What an outcome means, in words: what happened, how sure, why, what to do. The same words for every reporter."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_moeperf.fingerprint import describe
from pytest_moeperf.model.run import Evidence, Run
from pytest_moeperf.model.verdict import BoundResult, Outcome, Verdict
from pytest_moeperf.reporting.conditions import conditions_text, engine_lines, note_lines
from pytest_moeperf.reporting.figures import (
    THROUGHPUT,
    at_text,
    count,
    deciding_result,
    figures_sentence,
    measured_throughput,
)
from pytest_moeperf.reporting.steps import NextStep, next_steps
from pytest_moeperf.reporting.text import safe, shorten
from pytest_moeperf.units import format_percent, format_quantity
from pytest_moeperf.verdicts import explain, figures

_QUOTE_LIMIT = 160
EVIDENCE_CHECK = "backend_evidence"
_COMPARED = frozenset({Verdict.REGRESSION, Verdict.UNVERIFIED_WIN, Verdict.INCONCLUSIVE})
"""Failures that rest on a comparison of figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One outcome for a person."""

    verdict: Verdict
    node_id: str
    headline: str
    """What happened, with the figures and how sure they are."""
    why: str
    """Why that is this verdict."""
    details: tuple[str, ...] = ()
    """Reasons, checks, differences, what ran; each a sentence."""
    odd: tuple[str, ...] = ()
    next_steps: tuple[NextStep, ...] = ()


def find(outcome: Outcome, *, pytest_command: str) -> Finding:
    """Words for one outcome.

    :param pytest_command: stands for ``{pytest}`` in the next steps, e.g. ``pytest -m perf --backend=triton``.
    """
    result = deciding_result(outcome)
    headline = _headline(outcome, result)
    why, *details = _gate_reasons(outcome) or [_why(outcome, result), *_detail(result)]
    details += [*_failed_checks(outcome), *_blocking(outcome)]
    if not outcome.verdict.passes:
        details += [
            *_cautions(result),
            *_ran(outcome),
            *note_lines(outcome),
            *engine_lines(outcome),
            *_ceiling(outcome),
            *_other_bounds(outcome, result),
        ]
    if outcome.refused:
        details.append(f"Not recorded: {outcome.refused}")
    return Finding(
        verdict=outcome.verdict,
        node_id=outcome.node_id,
        headline=safe(headline),
        why=safe(why),
        details=tuple(safe(detail) for detail in details),
        odd=tuple(safe(odd) for odd in outcome.decision.odd),
        next_steps=tuple(next_steps(outcome, pytest_command=pytest_command)),
    )


def _headline(outcome: Outcome, result: BoundResult | None) -> str:
    at = at_text(outcome.decision.cell.workload)
    match outcome.verdict:
        case Verdict.INVALID:
            return f"{at}: {_invalid_headline(outcome)}"
        case Verdict.INCOMPARABLE:
            return f"{at}: {_incomparable_headline(outcome)}"
        case Verdict.NO_BASELINE:
            return f"{at}: {_no_baseline_headline(outcome, result)}"
        case _:
            return figures_sentence(outcome, result) if result else f"{at}: no bound was judged."


def _invalid_headline(outcome: Outcome) -> str:
    if outcome.evidence.status == "contradicted":
        return f"asked for {outcome.evidence.requested}, but {outcome.evidence.runner or 'another backend'} ran."
    failed = sorted({check.name for run in _judged(outcome) for check in run.failures})
    if not failed:
        return "the runs cannot be trusted."
    void = sum(not run.valid for run in _judged(outcome))
    return f"{' and '.join(failed)} failed in {void} of {count(len(_judged(outcome)), 'run')}."


def _incomparable_headline(outcome: Outcome) -> str:
    blocking = [difference for difference in outcome.decision.differences if difference.blocking]
    if not blocking:
        return "the stored runs were made under other conditions."
    fields = count(len(blocking), "field")
    return f"the baseline differs in {fields} that must be equal."


def _no_baseline_headline(outcome: Outcome, result: BoundResult | None) -> str:
    measured, unit = measured_throughput(outcome), THROUGHPUT.unit
    if result and result.measured is not None:
        measured, unit = result.measured, result.bound.unit
    figure = f"measured {format_quantity(measured)} {unit}, and " if measured is not None else ""
    if outcome.recorded:
        return f"{figure}recorded as the first baseline: {outcome.recorded}."
    return f"{figure}nothing is stored to hold it against."


_WHY = {
    Verdict.EQUIVALENT: "The whole interval lies inside the margins (loss {regression}, gain {win}).",
    Verdict.NO_CHANGE_SEEN: "Inside the noise of one launch; that is no proof of no change.",
    Verdict.NON_INFERIOR: "Shown not worse than the margin ({regression}); no win is claimed or shown.",
    Verdict.VERIFIED_WIN: "Held up in fresh launches, with equal work and output.",
    Verdict.UNVERIFIED_WIN: (
        "Better than the baseline by more than the win margin ({win}), and nobody has shown why: "
        "it fails until it is verified."
    ),
    Verdict.INVALID: "A number that cannot be trusted is neither a pass nor a regression.",
    Verdict.INCOMPARABLE: ("A change between different conditions says nothing about the backend, so none is stated."),
    Verdict.NO_BASELINE: "Without a baseline nothing is shown, so the test does not pass.",
}


def _why(outcome: Outcome, result: BoundResult | None) -> str:
    bound = result.bound if result else THROUGHPUT
    regression, win = format_percent(bound.regression), format_percent(bound.win)
    if outcome.recorded:
        return ""
    if outcome.verdict is Verdict.REGRESSION:
        return _regression_why(result, regression=regression)
    if outcome.verdict is Verdict.INCONCLUSIVE:
        return _inconclusive_why(outcome, result, regression=regression)
    return _WHY[outcome.verdict].format(regression=regression, win=win)


def _regression_why(result: BoundResult | None, *, regression: str) -> str:
    if result is not None and result.measured is not None:
        bound = result.bound
        if bound.at_least is not None and result.measured < bound.at_least:
            return f"Below the limit that the test sets (at least {bound.at_least:g} {bound.unit})."
        if bound.at_most_ms is not None and result.measured > bound.at_most_ms:
            return f"Above the limit that the test sets (at most {bound.at_most_ms:g} ms)."
    return f"Proven worse than the baseline: no value of the interval is harmless. The margin is {regression}."


def _inconclusive_why(outcome: Outcome, result: BoundResult | None, *, regression: str) -> str:
    text = f"All launches that were allowed are used, and neither a loss beyond {regression} nor its absence is shown"
    needed = result.interval.launches_to_decide if result and result.interval else None
    if needed is None:
        return f"{text}."
    unit = count(needed, "pair") if outcome.decision.pairs else count(needed, "launch", "launches")
    return f"{text}. About {unit} in all would decide."


def _gate_reasons(outcome: Outcome) -> list[str]:
    """What the gate says beyond figures: each bound's figures have their own sentence here."""
    decision = outcome.decision
    if outcome.recorded:
        return []
    told = {f"{result.reason}{stop}" for result in decision.results for stop in ("", ".")}
    starts = tuple(f"{result.bound.key} at {decision.cell.workload.label}:" for result in decision.results)
    reasons = [
        reason for reason in decision.reasons if reason not in told and not (starts and reason.startswith(starts))
    ]
    return list(dict.fromkeys(reasons))


def _detail(result: BoundResult | None) -> list[str]:
    """The reason without the figures and the explanation that every result of its kind starts with."""
    if result is None or not result.reason:
        return []
    rest = result.reason.removeprefix(f"{figures(result)}: {explain(result.verdict, result.bound)}").removeprefix("; ")
    return [f"{rest[:1].upper()}{rest[1:]}"] if rest else []


def _judged(outcome: Outcome) -> list[Run]:
    return [run for run in outcome.runs if not run.warmup]


def _failed_checks(outcome: Outcome) -> list[str]:
    if outcome.verdict is not Verdict.INVALID:
        return []
    runs = _judged(outcome)
    messages: dict[str, list[str]] = {}
    for run in runs:
        for check in run.failures:
            messages.setdefault(check.name, []).append(check.message)
    told = " ".join(outcome.decision.reasons)
    return [
        f"Check {name}: {found[0]}" + (f" ({len(found)} of {count(len(runs), 'run')})" if len(runs) > 1 else "")
        for name, found in messages.items()
        if not found[0] or found[0] not in told
    ]


def _blocking(outcome: Outcome) -> list[str]:
    if outcome.verdict is not Verdict.INCOMPARABLE:
        return []
    told = " ".join(outcome.decision.reasons)
    blocking = [difference for difference in outcome.decision.differences if difference.blocking]
    return [f"{line}." for line in describe(blocking) if line not in told]


def _cautions(result: BoundResult | None) -> list[str]:
    return [f"Caution: {warning}" for warning in result.interval.warnings] if result and result.interval else []


def _ran(outcome: Outcome) -> list[str]:
    failed = {check.name for run in _judged(outcome) for check in run.failures}
    if outcome.verdict is Verdict.INVALID and outcome.evidence.status == "unknown" and EVIDENCE_CHECK not in failed:
        # A server that died says nothing of its backend either; where was looked is no help with that.
        return []
    text = ran_text(outcome.evidence)
    if outcome.verdict in _COMPARED:
        text = f"{text} {conditions_text(outcome)}".strip()
    return [text] if text else []


def ran_text(evidence: Evidence) -> str:
    """``Ran: triton (confirmed, server log line 32: "...").``"""
    if not evidence.requested and not evidence.items and evidence.status == "unknown":
        return "Ran: unknown; no evidence was collected."
    items = [item for item in evidence.items if item.says == evidence.status]
    seen = f', {items[0].source}: "{shorten(items[0].text, _QUOTE_LIMIT)}"' if items else ""
    if evidence.status == "confirmed":
        return f"Ran: {evidence.runner or evidence.requested} (confirmed{seen})."
    if evidence.status == "contradicted":
        return f"Ran: {evidence.runner or 'another backend'}, not {evidence.requested} (contradicted{seen})."
    looked = f"; looked at {', '.join(evidence.looked_for)}" if evidence.looked_for else ""
    return f"Ran: unknown whether {evidence.requested} (nothing shows which backend executed{looked})."


def _ceiling(outcome: Outcome) -> list[str]:
    if outcome.efficiency is None or outcome.ceiling_tok_s is None:
        return []
    ceiling, share = format_quantity(outcome.ceiling_tok_s), format_percent(outcome.efficiency)
    return [f"Ceiling: {ceiling} tok/s on this hardware; this is {share} of it."]


def _other_bounds(outcome: Outcome, result: BoundResult | None) -> list[str]:
    if outcome.verdict not in _COMPARED:
        return []
    return [
        f"Also {other.verdict}: {figures_sentence(outcome, other)}"
        for other in outcome.decision.results
        if other is not result and not other.verdict.passes
    ]
