"""Verification of a win (design 4.4): fresh launches A B B A B A A B, fixed n, and everything that could fake
a win."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from pytest_moeperf.gate.decide import decide
from pytest_moeperf.gate.evidence import Finding, limits, pair_data
from pytest_moeperf.gate.state import CONFIRM, VERIFY, VERIFY_ALPHA, CellState
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import ARMS, CANDIDATE, REFERENCE, Run
from pytest_moeperf.model.verdict import Interval, Verdict
from pytest_moeperf.stats.components import SD_FLOOR, components
from pytest_moeperf.stats.effects import LaunchMean
from pytest_moeperf.stats.paired import fixed_interval
from pytest_moeperf.stats.quantiles import t_quantile
from pytest_moeperf.units import format_change, format_percent, format_quantity
from pytest_moeperf.verdicts import format_interval, proven_better, proven_worse, shown_not_worse

EQUAL_WORK = 0.01
"""Largest relative difference between the arms' mean token counts."""
EQUAL_ACCEPTANCE = 0.03
"""Largest relative difference between the arms' accepted tokens a step: they had the same prompts."""
SPECULATION = "speculative_algorithm"
SANITY_CHECK = "output_sanity"


def judge_verification(state: CellState) -> CellState:
    """Close the cell with VERIFIED_WIN, or say what the win failed on."""
    claimed = {
        result.bound.key: result.interval
        for result in (state.discovery.results if state.discovery is not None else ())
        if result.verdict is Verdict.UNVERIFIED_WIN
    }
    doubts = [*unequal_work(state), *unequal_acceptance(state), *unsound_output(state), *above_ceiling(state)]
    findings = []
    for bound in state.bounds:
        data = pair_data(state, bound, VERIFY)
        if data is None or data.n < 2:
            findings.append(Finding(bound=bound, verdict=Verdict.INCONCLUSIVE))
            continue
        interval = fixed_interval(data, alpha=VERIFY_ALPHA, method=f"verification, {data.n} fresh pairs, fixed n")
        margin = limits(state, bound)
        if proven_worse(interval, margin):
            findings.append(Finding(bound=bound, verdict=Verdict.REGRESSION, interval=interval))
        elif bound.key in claimed or proven_better(interval, margin):
            found = claimed.get(bound.key)
            reasons = [*doubts, *moved_reference(state, bound, interval)]
            if not (interval.lower > 0 and interval.estimate > margin.proven_win):
                reasons.append("the win did not show again in fresh launches")
            before = f"found as {format_interval(bound, found)}" if found is not None else ""
            verdict = Verdict.UNVERIFIED_WIN if reasons else Verdict.VERIFIED_WIN
            findings.append(
                Finding(bound=bound, verdict=verdict, interval=interval, detail=", and ".join(reasons) or before)
            )
        else:
            passed = shown_not_worse(interval, margin) or (
                Verdict.NON_INFERIOR if interval.lower > -margin.loss else Verdict.INCONCLUSIVE
            )
            findings.append(Finding(bound=bound, verdict=passed, interval=interval))
    closed = decide(state, findings)
    failed = [item.detail for item in findings if item.verdict is Verdict.UNVERIFIED_WIN and item.detail]
    if failed and closed.decision is not None:
        told = tuple(f"Verification failed: {text}." for text in dict.fromkeys(failed))
        return replace(closed, decision=replace(closed.decision, reasons=(*closed.decision.reasons, *told)))
    return closed


def _runs(state: CellState, arm: str) -> tuple[Run, ...]:
    return tuple(run for item in state.of(arm, phase=VERIFY) for run in item.runs)


def unequal_work(state: CellState) -> list[str]:
    """Both arms must have done the same: requests, tokens out, tokens in, tokens from the cache."""
    reads: tuple[tuple[str, Callable[[Run], float | None]], ...] = (
        ("completed requests", lambda run: run.metrics.completed),
        ("output tokens", lambda run: run.metrics.output_tokens),
        ("prompt tokens", lambda run: run.metrics.prompt_tokens),
        ("cached tokens", lambda run: run.metrics.cached_tokens),
        ("tokens per event", lambda run: run.metrics.tokens_per_event),
    )
    problems = []
    for name, read in reads:
        ours = _mean([read(run) for run in _runs(state, CANDIDATE)])
        theirs = _mean([read(run) for run in _runs(state, REFERENCE)])
        if (ours is None) != (theirs is None):
            problems.append(f"{name} are known of one arm only")
        elif ours is not None and theirs is not None and abs(ours - theirs) > EQUAL_WORK * max(ours, theirs):
            if name == "tokens per event":
                continue  # how the server packs tokens into events is not work
            problems.append(f"the arms did unequal work: {ours:g} {name} a run against {theirs:g}")
    return problems


def unequal_acceptance(state: CellState) -> list[str]:
    """With speculative decoding the tokens of a step are work that was saved: more of them by other text is no faster
    kernel. What a server that speculates does not tell is not shown."""
    rates: dict[str, float] = {}
    for arm in ARMS:
        runs = _runs(state, arm)
        values = [run.metrics.accepted_per_step for run in runs]
        speculates = any(run.fingerprint.server.get(SPECULATION) for run in runs)
        if speculates and any(value is None for value in values):
            return [f"the {arm} speculates, and how many tokens its drafts gave a step is not shown by the server"]
        if speculates and (rate := _mean(values)) is not None:
            rates[arm] = rate
    if len(rates) < len(ARMS):
        return []
    ours, theirs = rates[CANDIDATE], rates[REFERENCE]
    if abs(ours - theirs) <= EQUAL_ACCEPTANCE * max(ours, theirs):
        return []
    return [f"speculative decoding gave {ours:.3g} tokens a step against {theirs:.3g}, so the steps did unequal work"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def unsound_output(state: CellState) -> list[str]:
    """The greedy text of both arms must have been compared and found sound. Not looked at is not sound."""
    checks = [check for run in _runs(state, CANDIDATE) for check in run.checks if check.name == SANITY_CHECK]
    if not checks:
        return ["the output was not compared with the reference's"]
    unknown = [check.message for check in checks if check.status != "pass"]
    return (
        [f"the output could not be compared with the reference's: {unknown[0] or 'no reason given'}"] if unknown else []
    )


def above_ceiling(state: CellState) -> list[str]:
    """A run beyond what the hardware can do is no win. (Plainly impossible ones are INVALID before they get here.)"""
    for run in _runs(state, CANDIDATE):
        rate = run.metrics.out_tps_steady or run.metrics.out_tps
        if run.ceiling_tok_s is not None and rate is not None and rate > run.ceiling_tok_s:
            seen, limit = format_quantity(rate), format_quantity(run.ceiling_tok_s)
            return [f"run {run.id} measured {seen} tok/s, above the ceiling of this hardware, {limit} tok/s"]
    return []


def moved_reference(state: CellState, bound: Bound, interval: Interval) -> list[str]:
    """A host that moved must not be taken for the candidate's win.

    Of a movement that stays, the order A B B A B A A B puts at most a quarter into the estimate, and half of it or more
    between the halves of one of the arms; one that comes back meets both arms alike. So the reference's halves must
    agree within the margin of a loss (a candidate may have noise of its own), and the win must remain when half of the
    largest difference that the halves allow is taken off it. Equivalence of the halves within 5 % would ask for more
    than that, of launches too few to give it: with launches that differ by 2 % a win of any size failed two times in
    three (``tests/quality/test_verification.py``).
    """
    halves = {arm: _halves(state, bound, arm) for arm in ARMS}
    if not all(first and second for first, second in halves.values()):
        return ["the reference was not launched again after the candidate"]
    first, second = halves[REFERENCE]
    sd, df = _reference_sd(state, bound, (first, second))
    shift = _shift(first, second)
    if abs(shift) >= limits(state, bound).loss:
        told = f"{format_change(bound.ratio(shift))} (margin {format_percent(bound.regression)})"
        return [f"the reference's second half differs from its first by {told}: the host may have moved"]
    arm, moved = max(((arm, _shift(*both)) for arm, both in halves.items()), key=lambda item: abs(item[1]))
    change = format_change(bound.ratio(moved))
    reach = t_quantile(1 - VERIFY_ALPHA, df) * sd * math.sqrt(1 / len(first) + 1 / len(second)) if df else math.inf
    most = abs(moved) + reach
    if interval.lower > most / 2 or interval.lower <= 0:  # what didn't show again needs no host to explain it
        return []
    within = f"up to {format_percent(math.expm1(most))}" if df else "anything"
    text = f"the {arm}'s second half differs from its first by {change}, and by {within} within its noise"
    return [f"{text}: a host that moved so far could have made this win"]


def _halves(state: CellState, bound: Bound, arm: str) -> tuple[list[LaunchMean], list[LaunchMean]]:
    """An arm's launches of the verification, the first pairs and the last ones."""
    launches = sorted(state.of(arm, phase=VERIFY), key=lambda item: item.pair or 0)
    means = [item.means[bound.key] for item in launches]
    return means[: len(means) // 2], means[len(means) // 2 :]


def _shift(first: Sequence[LaunchMean], second: Sequence[LaunchMean]) -> float:
    return fmean(item.mean for item in second) - fmean(item.mean for item in first)


def _reference_sd(state: CellState, bound: Bound, blocks: Sequence[Sequence[LaunchMean]]) -> tuple[float, int]:
    """Sd of the mean of one launch of the reference and its degrees of freedom: from all its launches, the discovery's
    and the stored ones too. The candidate's tell nothing here: another backend has a noise of its own."""
    discovery = [item.means[bound.key] for item in state.of(REFERENCE, phase=CONFIRM)]
    # Between the blocks the host may have moved, which is not the noise within them.
    here = components(
        [replace(item, session=str(block)) for block, group in enumerate((*blocks, discovery)) for item in group]
    )
    stored = state.stored.get(bound.key)
    parts = [here] if stored is None else [here, stored]
    df = sum(part.launch_df for part in parts)
    squares = math.fsum(part.launch_ms * part.launch_df for part in parts)
    return (max(SD_FLOOR, math.sqrt(squares / df)) if df else SD_FLOOR), df
