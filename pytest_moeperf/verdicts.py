"""Margins and intervals in, a verdict and its reason out. Pure; knows nothing of launches, servers or budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.verdict import SEVERITY, BoundResult, Interval, Verdict
from pytest_moeperf.units import format_change, format_level, format_percent, format_quantity

WIDEST = 50.0
"""Effects beyond it (a factor of 1e21) are all the same to a reader."""
INDIFFERENT_SHARE = 0.3
"""The proven margin d0 is at most this share of the regression margin d: between the two either verdict is right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Margins:
    """Of one bound, as positive log ratios."""

    loss: float
    """``d``: a loss beyond it must not pass."""
    win: float
    """``dw``: a gain beyond it must not pass unverified."""
    proven_loss: float
    """``d0``: a loss is proven when the whole interval is beyond it."""
    proven_win: float


def margins(bound: Bound, *, proven: float) -> Margins:
    """Relative margins of the metric itself, on the scale of effects: 5 % of a rate is ln(0.95), of a latency
    ln(1.05)."""
    loss_proven = min(proven, INDIFFERENT_SHARE * bound.regression)
    win_proven = min(proven, bound.win / 2)
    if bound.higher_is_better:
        return Margins(
            loss=-math.log1p(-bound.regression),
            win=math.log1p(bound.win),
            proven_loss=-math.log1p(-loss_proven),
            proven_win=math.log1p(win_proven),
        )
    return Margins(
        loss=math.log1p(bound.regression),
        win=-math.log1p(-bound.win),
        proven_loss=math.log1p(loss_proven),
        proven_win=-math.log1p(-win_proven),
    )


def shown_not_worse(interval: Interval, limits: Margins) -> Verdict | None:
    """EQUIVALENT or NON_INFERIOR if the interval shows "not worse" and no win is claimed, else None."""
    if interval.lower > -limits.loss and interval.estimate <= limits.win:
        return Verdict.EQUIVALENT if interval.upper < limits.win else Verdict.NON_INFERIOR
    return None


def proven_worse(interval: Interval, limits: Margins, *, full_margin: bool = False) -> bool:
    """``full_margin``: ask for the whole margin d instead of d0, where a part of the interval is assumed."""
    return interval.upper < -(limits.loss if full_margin else limits.proven_loss)


def proven_better(interval: Interval, limits: Margins, *, full_margin: bool = False) -> bool:
    return interval.lower > (limits.win if full_margin else limits.proven_win) and interval.estimate > limits.win


def overall(verdicts: tuple[Verdict, ...]) -> Verdict:
    """Of a cell with several bounds: the first of them in order of severity.

    :raises ValueError: without a verdict: nothing is ever green by omission.
    """
    if not verdicts:
        raise ValueError("a cell without a bound has no verdict")
    return min(verdicts, key=SEVERITY.index)


def format_interval(bound: Bound, interval: Interval) -> str:
    """``+1.6 % [-1.1 %, +4.2 %]``: of the metric itself, so a slower TPOT has a plus."""
    ends = sorted((_ratio(bound, interval.lower), _ratio(bound, interval.upper)))
    return f"{format_change(_ratio(bound, interval.estimate))} [{format_change(ends[0])}, {format_change(ends[1])}]"


def _ratio(bound: Bound, effect: float) -> float:
    """A change that can be printed: wild launches can give an interval that spans hundreds of orders of magnitude."""
    return bound.ratio(max(-WIDEST, min(WIDEST, effect)))


def figures(result: BoundResult) -> str:
    """``throughput 731 against 361 tok/s, +102 % [+96 %, +109 %] (paired, look 1 of 3, n = 4, 92 % interval)``."""
    bound = result.bound
    parts = [bound.key]
    if result.measured is not None and result.baseline is not None:
        parts.append(f"{format_quantity(result.measured)} against {format_quantity(result.baseline)} {bound.unit}")
    elif result.measured is not None:
        parts.append(f"{format_quantity(result.measured)} {bound.unit}")
    text = " ".join(parts)
    if result.interval is not None:
        interval = result.interval
        text += f", {format_interval(bound, interval)}"
        text += f" ({interval.method}, n = {interval.n}, {format_level(interval.level)} interval)"
    return text


def explain(verdict: Verdict, bound: Bound, *, detail: str = "") -> str:
    """The sentence behind the figures: what the verdict means for this bound's own margins."""
    loss, win = format_percent(bound.regression), format_percent(bound.win)
    texts = {
        Verdict.EQUIVALENT: f"the whole interval lies inside -{loss} and +{win}",
        Verdict.NON_INFERIOR: f"not worse by {loss} or more; a gain is neither claimed nor excluded",
        Verdict.NO_CHANGE_SEEN: "inside the noise of one launch",
        Verdict.VERIFIED_WIN: f"better by more than the win margin ({win}), and verified",
        Verdict.REGRESSION: "proven worse",
        Verdict.UNVERIFIED_WIN: (
            f"better than the baseline by more than the win margin ({win}), and nobody has shown why: "
            "it fails until it is verified"
        ),
        Verdict.INCONCLUSIVE: f"neither a loss of {loss} nor its absence is proven",
        Verdict.INVALID: "the runs can't be trusted",
        Verdict.INCOMPARABLE: "the baseline was measured under other conditions",
        Verdict.NO_BASELINE: "there is nothing to hold it against",
    }
    if verdict is Verdict.REGRESSION and detail:
        return f"worse than its {detail}"
    return f"{texts[verdict]}{'; ' + detail if detail else ''}"


def bound_result(
    bound: Bound,
    verdict: Verdict,
    *,
    measured: float | None = None,
    baseline: float | None = None,
    interval: Interval | None = None,
    detail: str = "",
) -> BoundResult:
    """A result whose reason is one sentence with the figures."""
    bare = BoundResult(bound=bound, verdict=verdict, measured=measured, baseline=baseline, interval=interval)
    return BoundResult(
        bound=bound,
        verdict=verdict,
        measured=measured,
        baseline=baseline,
        interval=interval,
        reason=f"{figures(bare)}: {explain(verdict, bound, detail=detail)}",
    )
