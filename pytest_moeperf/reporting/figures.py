"""The figures of an outcome: the change of each metric, and the sentence that states it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import CANDIDATE
from pytest_moeperf.model.verdict import BoundResult, Outcome
from pytest_moeperf.model.workload import Workload
from pytest_moeperf.units import format_change, format_level, format_quantity

THROUGHPUT = Bound(metric="throughput")
_LARGEST_CHANGE = 1000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The change of the metric itself (not of its effect): a TPOT that grew is positive. Infinite where unknown."""

    estimate: float
    lower: float
    upper: float
    level: float
    n: int

    @property
    def level_text(self) -> str:
        return format_level(self.level)


def change_of(result: BoundResult) -> Change | None:
    interval = result.interval
    if interval is None:
        return None
    lower, upper = sorted((_ratio(result.bound, interval.lower), _ratio(result.bound, interval.upper)))
    estimate = _ratio(result.bound, interval.estimate)
    return Change(estimate=estimate, lower=lower, upper=upper, level=interval.level, n=interval.n)


def _ratio(bound: Bound, effect: float) -> float:
    try:
        ratio = bound.ratio(effect)
    except OverflowError:
        return math.inf
    # Wild launches can give an interval over hundreds of orders of magnitude; nobody reads its end.
    return ratio if ratio < _LARGEST_CHANGE else math.inf


def deciding_result(outcome: Outcome) -> BoundResult | None:
    """The bound that gave the cell its verdict; None where no bound was judged."""
    for result in outcome.decision.results:
        if result.verdict is outcome.verdict:
            return result
    return outcome.decision.results[0] if outcome.decision.results else None


def measured_throughput(outcome: Outcome) -> float | None:
    """Geometric mean over the valid runs of the candidate, for verdicts that judged no bound."""
    values = [
        value
        for run in outcome.runs
        if run.launch.arm == CANDIDATE and not run.warmup and run.valid and (value := run.metrics.value(THROUGHPUT))
    ]
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def at_text(workload: Workload) -> str:
    return f"{workload.request_rate:g}/s" if workload.request_rate is not None else f"c={workload.concurrency}"


def figures_sentence(outcome: Outcome, result: BoundResult) -> str:
    bound = result.bound
    text = f"{bound.label} at {at_text(outcome.decision.cell.workload)}: "
    if result.measured is None:
        return text + "not defined in these runs."
    text += format_quantity(result.measured)
    if result.baseline is not None:
        text += f" against {format_quantity(result.baseline)}"
    text += f" {bound.unit}"
    change = change_of(result)
    if change is None:
        return f"{text}."
    direction = "" if bound.higher_is_better else (" (slower)" if change.estimate > 0 else " (faster)")
    text += (
        f", {format_change(change.estimate)}{direction} [{format_change(change.lower)}, {format_change(change.upper)}]"
    )
    if change.level != 0.95:
        text += f" at {change.level_text}"
    return f"{text}, {_replicates(outcome, change)}."


def _replicates(outcome: Outcome, change: Change) -> str:
    decision = outcome.decision
    if decision.pairs:
        order = " in a new order" if decision.phase == "verify" else ""
        return f"{count(change.n, 'pair')} of fresh launches{order}"
    return f"{count(change.n, 'launch', 'launches')} against the stored runs"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
