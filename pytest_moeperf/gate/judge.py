"""The state machine: after each round of launches, decide a cell or say which phase it is in next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_moeperf.gate.decide import decide, unmeasured_bound
from pytest_moeperf.gate.evidence import (
    GAIN,
    LOSS,
    Finding,
    absolute_interval,
    claim_interval,
    confirm_interval,
    full_margin,
    hopeless,
    limits,
    nothing_to_claim,
    p_value,
    prediction,
    with_outlook,
)
from pytest_moeperf.gate.state import (
    CONFIRM,
    RECORD,
    SCREEN,
    SCREEN_ALPHA,
    VERIFY,
    CellState,
    last_look,
    planned_look,
)
from pytest_moeperf.gate.steps import next_steps
from pytest_moeperf.gate.verify import judge_verification
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.verdict import Interval, Verdict
from pytest_moeperf.stats.stored import Prediction
from pytest_moeperf.units import format_change, format_percent
from pytest_moeperf.verdicts import proven_better, proven_worse, shown_not_worse

OK, VIOLATED, UNCLEAR = "ok", "violated", "unclear"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A hypothesis of a family: this bound of this cell is worse (or better)."""

    key: str
    side: str
    p: float


def claims(state: CellState) -> tuple[Claim, ...]:
    """The hypotheses that this cell puts to the test at this checkpoint of its confirmation."""
    if state.phase != CONFIRM or state.decision is not None:
        return ()
    return tuple(
        Claim(key=bound.key, side=side, p=p_value(state, bound, side))
        for bound in state.bounds
        for side in (LOSS, GAIN)
        if confirm_interval(state, bound) is not None and not nothing_to_claim(state, bound)
    )


def rejects(state: CellState, key: str, side: str, share: float) -> bool:
    """Whether there is a change to this side when the claim gets this share of its family's error.

    That there is one at all is what many cells could show by chance; how large it is, is asked of each alone.
    """
    bound = next(item for item in state.bounds if item.key == key)
    interval = claim_interval(state, bound, share)
    if interval is None:
        return False
    return interval.upper < 0 if side == LOSS else interval.lower > 0


def judge(state: CellState, *, shares: Mapping[tuple[str, str], float] | None = None) -> CellState:
    """Look at a state to which the launches it needed have been added.

    :param shares: by (bound key, side): the part of the family's error that Holm's step-down grants; missing:
    all of it.
    """
    if state.decision is not None:
        return state
    if state.phase == SCREEN:
        return _screen(state)
    if state.phase == RECORD:
        return _record(state)
    if state.phase == VERIFY:
        return judge_verification(state)
    return _confirm(state, shares or {})


def _absolute(state: CellState, bound: Bound) -> tuple[str, str]:
    """Whether an absolute limit is kept, and the words for it."""
    limit = bound.at_least if bound.at_least is not None else bound.at_most_ms
    if limit is None:
        return OK, ""
    interval = absolute_interval(state, bound, SCREEN_ALPHA)
    threshold = bound.effect(limit)
    word = "at least" if bound.at_least is not None else "at most"
    text = f"absolute limit: {word} {limit:g} {bound.unit}"
    if interval.lower > threshold:
        return OK, text
    if interval.upper < threshold:
        return (
            VIOLATED,
            f"{text}, missed by {format_change(abs(bound.ratio(interval.estimate - threshold))).lstrip('+')}",
        )
    return UNCLEAR, f"{text}, which lies inside the noise of {interval.n} launches"


def _screen(state: CellState) -> CellState:
    absolute = {bound.key: _absolute(state, bound) for bound in state.bounds}
    violated = any(status == VIOLATED for status, _ in absolute.values())
    missing = not state.comparable or any(bound.key not in state.stored for bound in state.bounds)
    may_confirm = state.settings.mode == CONFIRM
    if missing and not violated and may_confirm and state.paired:
        return replace(state, phase=CONFIRM)
    findings = [_screen_bound(state, bound, absolute[bound.key]) for bound in state.bounds]
    if missing or violated or all(item.verdict is not None and item.verdict.passes for item in findings):
        return decide(state, findings)
    if may_confirm:
        return _beyond_the_screen(state, findings)
    return decide(state, [_screen_mode(state, item) for item in findings])


def _beyond_the_screen(state: CellState, findings: list[Finding]) -> CellState:
    """An undecided cell: confirm it, verify its win straight away, or say that nothing would help."""
    if state.settings.verify_wins and state.paired and _claims_win(state):
        return replace(state, phase=VERIFY, discovery=decide(state, _screen_claims(state)).decision)
    if state.paired or not all(_settled_or_hopeless(state, item) for item in findings):
        return replace(state, phase=CONFIRM)
    return decide(state, [_at_the_end(state, item) for item in findings])


def _screen_bound(state: CellState, bound: Bound, absolute: tuple[str, str]) -> Finding:
    status, text = absolute
    found = prediction(state, bound)
    interval = found.interval(SCREEN_ALPHA) if found is not None else None
    if status == VIOLATED:
        return Finding(bound=bound, verdict=Verdict.REGRESSION, interval=interval, detail=text)
    if interval is None:
        return unmeasured_bound(state, bound)
    verdict = shown_not_worse(interval, limits(state, bound))
    if verdict is not None and status == UNCLEAR:
        return Finding(bound=bound, verdict=None, interval=interval, detail=text)
    return Finding(bound=bound, verdict=verdict, interval=interval)


def _claims_win(state: CellState) -> bool:
    """The screen alone proves a win on some bound and a loss on none: worth a verification straight away."""
    seen = [(limits(state, bound), found.interval(SCREEN_ALPHA), found.assumed) for bound, found in _predictions(state)]
    return any(proven_better(interval, margin, full_margin=assumed) for margin, interval, assumed in seen) and not any(
        proven_worse(interval, margin) for margin, interval, _ in seen
    )


def _predictions(state: CellState) -> list[tuple[Bound, Prediction]]:
    pairs = ((bound, prediction(state, bound)) for bound in state.bounds)
    return [(bound, found) for bound, found in pairs if found is not None]


def _screen_claims(state: CellState) -> list[Finding]:
    findings = []
    for bound, found in _predictions(state):
        interval = found.interval(SCREEN_ALPHA)
        margin = limits(state, bound)
        better = proven_better(interval, margin, full_margin=found.assumed)
        verdict = Verdict.UNVERIFIED_WIN if better else shown_not_worse(interval, margin) or Verdict.INCONCLUSIVE
        findings.append(Finding(bound=bound, verdict=verdict, interval=interval))
    return findings


def _screen_mode(state: CellState, item: Finding) -> Finding:
    """What an undecided bound ends as where the user asked for one launch only."""
    found = prediction(state, item.bound)
    if item.verdict is not None or found is None or item.interval is None:
        return item
    interval = with_outlook(state, item.bound, item.interval)
    caught = format_percent(round(abs(item.bound.ratio(-found.caught(SCREEN_ALPHA))), 3))
    if interval.inside_noise and not item.detail:
        detail = f"a regression of {caught} would have been caught with 95 %, a smaller one may be there"
        return replace(item, verdict=Verdict.NO_CHANGE_SEEN, interval=interval, detail=detail)
    detail = item.detail or "outside the noise of one launch, which alone fails nothing: --perf-mode=confirm decides"
    return replace(item, verdict=Verdict.INCONCLUSIVE, interval=interval, detail=detail)


def _settled_or_hopeless(state: CellState, item: Finding) -> bool:
    return item.verdict is not None or hopeless(state, item.bound)


def _confirm(state: CellState, shares: Mapping[tuple[str, str], float]) -> CellState:
    findings = [_confirm_bound(state, bound, shares) for bound in state.bounds]
    verdicts = [item.verdict for item in findings]
    if Verdict.REGRESSION in verdicts:
        return decide(state, [_left_open(item) for item in findings])
    if Verdict.UNVERIFIED_WIN in verdicts:
        decided = decide(state, [_left_open(item) for item in findings])
        if state.settings.verify_wins and state.paired:
            return replace(state, phase=VERIFY, discovery=decided.decision)
        return decided
    if all(verdict is not None for verdict in verdicts):
        return decide(state, findings)
    if last_look(state):
        return decide(state, [_at_the_end(state, item) for item in findings])
    judged = {item.bound.key: item.interval for item in findings if item.interval is not None}
    return _unless_hopeless(replace(state, look=state.look + 1, judged=judged), findings)


def _unless_hopeless(state: CellState, findings: list[Finding]) -> CellState:
    if state.paired or not all(_settled_or_hopeless(state, item) for item in findings):
        return state
    return decide(state, [_at_the_end(state, item) for item in findings])


def _confirm_bound(state: CellState, bound: Bound, shares: Mapping[tuple[str, str], float]) -> Finding:
    margin = limits(state, bound)
    status, text = _absolute(state, bound)
    plain = confirm_interval(state, bound)
    if plain is None:
        return unmeasured_bound(state, bound) if not state.paired else Finding(bound=bound, verdict=None)
    if status == VIOLATED:
        return Finding(bound=bound, verdict=Verdict.REGRESSION, interval=plain, detail=text)
    alone = claim_interval(state, bound, 1.0) or plain
    whole = full_margin(state, bound)
    larger = proven_worse(alone, margin, full_margin=whole), proven_better(alone, margin, full_margin=whole)
    if nothing_to_claim(state, bound):
        return Finding(bound=bound, verdict=None, interval=alone)
    share_worse, share_better = (shares.get((bound.key, side), 1.0) for side in (LOSS, GAIN))
    if larger[0] and rejects(state, bound.key, LOSS, share_worse):
        return Finding(bound=bound, verdict=Verdict.REGRESSION, interval=alone)
    if larger[1] and rejects(state, bound.key, GAIN, share_better):
        return Finding(bound=bound, verdict=Verdict.UNVERIFIED_WIN, interval=alone)
    verdict = shown_not_worse(plain, margin) if planned_look(state) is not None and status == OK else None
    shown = alone if verdict is None else plain
    if any(larger):  # what keeps the claim open is the interval that shares its error with the other cells
        shown = claim_interval(state, bound, share_worse if larger[0] else share_better) or plain
    return Finding(bound=bound, verdict=verdict, interval=shown, detail=text if status == UNCLEAR else "")


def _left_open(item: Finding) -> Finding:
    """A bound that was still open when another one decided the cell."""
    if item.verdict is not None:
        return item
    return replace(item, verdict=Verdict.INCONCLUSIVE, detail="still open when another bound decided the cell")


def _at_the_end(state: CellState, item: Finding) -> Finding:
    """A bound that is still open when the cap is reached."""
    if item.verdict is not None or item.interval is None:
        return item if item.verdict is not None else replace(item, verdict=Verdict.INCONCLUSIVE)
    margin = limits(state, item.bound)
    plain = confirm_interval(state, item.bound) if state.phase == CONFIRM else None
    # A gain that this cell alone would show, but that chance among so many cells may be, is neither shown nor excluded.
    if plain is not None and -margin.loss < plain.lower <= margin.win and not item.detail:
        detail = f"the estimate is beyond the win margin ({format_percent(item.bound.win)}), but no win is shown"
        return replace(item, verdict=Verdict.NON_INFERIOR, interval=plain, detail=detail)
    return replace(item, verdict=Verdict.INCONCLUSIVE, interval=with_outlook(state, item.bound, item.interval))


def _record(state: CellState) -> CellState:
    """Recorded runs are held against the comparable baseline, if there is one, so that the store knows what it
    replaces."""
    return decide(state, [_record_bound(state, bound) for bound in state.bounds])


def _record_bound(state: CellState, bound: Bound) -> Finding:
    found = prediction(state, bound)
    interval = found.interval(SCREEN_ALPHA) if found is not None else None
    status, text = _absolute(state, bound)
    if status == VIOLATED:
        return Finding(bound=bound, verdict=Verdict.REGRESSION, interval=interval, detail=text)
    if found is None or interval is None:
        return unmeasured_bound(state, bound)
    margin = limits(state, bound)
    if proven_worse(interval, margin, full_margin=found.assumed):
        verdict = Verdict.REGRESSION
    elif proven_better(interval, margin, full_margin=found.assumed):
        verdict = Verdict.UNVERIFIED_WIN
    else:
        verdict = shown_not_worse(interval, margin) or Verdict.INCONCLUSIVE
    return Finding(bound=bound, verdict=verdict, interval=interval)


def conclude(state: CellState, why: str) -> CellState:
    """Close a cell that can't get what it needs (the budget is used up, ...): with what is proven, never green
    by accident."""
    if state.decision is not None:
        return state
    if not state.launches:
        return decide(state, [Finding(bound=bound, verdict=Verdict.INCONCLUSIVE) for bound in state.bounds], why=why)
    if state.phase == RECORD:
        return _with_reason(_record(state), why)
    findings = []
    for bound in state.bounds:
        interval = _last_interval(state, bound)
        outlook = with_outlook(state, bound, interval) if interval is not None else None
        findings.append(Finding(bound=bound, verdict=Verdict.INCONCLUSIVE, interval=outlook))
    if state.discovery is not None:
        found = state.discovery
        steps = tuple(next_steps(state, found.verdict, ()))
        reasons = (*found.reasons, f"Not verified: {why}")
        return replace(state, decision=replace(found, reasons=reasons, next_steps=steps))
    return decide(state, findings, why=why)


def _last_interval(state: CellState, bound: Bound) -> Interval | None:
    """What an undecided bound was last read from; launches that came after that look are shown as the next would."""
    if state.phase == CONFIRM:
        seen, now = state.judged.get(bound.key), claim_interval(state, bound, 1.0)
        shown = seen if seen is not None and (now is None or seen.n == now.n) else now
        if shown is not None:
            return shown
    found = prediction(state, bound)
    return found.interval(SCREEN_ALPHA) if found is not None else None


def _with_reason(state: CellState, why: str) -> CellState:
    if state.decision is None:
        return state
    return replace(state, decision=replace(state.decision, reasons=(*state.decision.reasons, why)))
