"""What the launches of a cell say about each of its bounds, now: intervals against the store, in pairs,
against a limit."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

from pytest_moeperf.gate.state import (
    CONFIRM,
    CONFIRM_ALPHA,
    GROSS_ALPHA,
    GROSS_PAIRS,
    SCREEN_ALPHA,
    STORED_CLAIM_SHARE,
    VERIFY,
    CellState,
    planned_look,
)
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import CANDIDATE, REFERENCE
from pytest_moeperf.model.verdict import Interval, Verdict
from pytest_moeperf.stats.boundaries import increments
from pytest_moeperf.stats.components import SD_FLOOR, components
from pytest_moeperf.stats.effects import LaunchMean
from pytest_moeperf.stats.paired import (
    UNLIKE_STORED,
    Pairs,
    block_interval,
    pairs,
    pairs_to_decide,
    sequential_interval,
)
from pytest_moeperf.stats.quantiles import f_quantile, t_quantile
from pytest_moeperf.stats.stored import Prediction, predict
from pytest_moeperf.verdicts import Margins, margins

LOSS, GAIN = "loss", "gain"
SHORT_RUNS_SD = 0.01
"""Below this, runs of one launch agree well enough."""
SHORT_RUNS_DF = 4
"""Degrees of freedom that runs, and half as many that launches, need before they tell anything of their noise."""
ENOUGH_DF = 2
"""Below these degrees of freedom a stored launch sd is no better than an assumed one."""
ENOUGH_BLOCK_DF = 4
"""Below these a stored launch sd is nothing that one block of pairs can lean on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is known of one bound; ``verdict`` None: undecided."""

    bound: Bound
    verdict: Verdict | None
    interval: Interval | None = None
    detail: str = ""


def limits(state: CellState, bound: Bound) -> Margins:
    return margins(bound, proven=state.settings.proven)


def candidate_means(state: CellState, key: str) -> tuple[LaunchMean, ...]:
    return tuple(item.means[key] for item in state.of(CANDIDATE))


def prediction(state: CellState, bound: Bound) -> Prediction | None:
    """All candidate launches so far against the stored runs; None where the store has nothing."""
    stored = state.stored.get(bound.key)
    new = candidate_means(state, bound.key)
    if stored is None or not new:
        return None
    return predict(
        stored,
        new,
        assumed_session_sd=state.settings.assumed_session_sd,
        assumed_launch_sd=state.settings.assumed_launch_sd,
        provisional=state.provisional,
    )


def full_margin(state: CellState, bound: Bound) -> bool:
    """Against stored runs of too few sessions, and after one block of pairs, a regression must be proven by the whole
    margin."""
    if state.phase in {CONFIRM, VERIFY} and state.paired:
        return state.phase == CONFIRM and planned_look(state) is None
    found = prediction(state, bound)
    return found is not None and found.assumed


def pair_data(state: CellState, bound: Bound, phase: str = CONFIRM) -> Pairs | None:
    differences = state.differences(bound.key, phase)
    return pairs(differences) if differences else None


def stored_pair_sd(state: CellState, bound: Bound) -> tuple[float, float] | None:
    """Sd of a difference of two launches and its degrees of freedom, from the store; None where it can't tell.

    Launches of another backend tell nothing of the candidate's: at c=1 on one H200 TPOT of two backends' launches
    differed by 0.1 % and by 6.8 %. Nor do stored ones whose spread the candidate's own launches contradict.
    """
    stored = state.stored.get(bound.key)
    same_backend = state.plan.reference in {"", state.plan.cell.backend}
    if stored is None or not same_backend or stored.launch_df < ENOUGH_BLOCK_DF:
        return None
    variance, own = max(stored.launch_ms, SD_FLOOR**2), [item.mean for item in candidate_means(state, bound.key)]
    if len(own) > 1 and statistics.variance(own) > variance * f_quantile(
        1 - UNLIKE_STORED, len(own) - 1, stored.launch_df
    ):
        return None
    return math.sqrt(2 * variance), float(stored.launch_df)


def nothing_to_claim(state: CellState, bound: Bound) -> bool:
    """After one block of pairs, where no stored launch tells what pairs differ by: which bound two pairs alone would
    prove something of is luck."""
    return state.paired and planned_look(state) is None and stored_pair_sd(state, bound) is None


def confirm_interval(state: CellState, bound: Bound, share: float = 1.0) -> Interval | None:
    """The interval of this checkpoint. ``share``: of the family's error, as Holm's step-down grants it."""
    look = planned_look(state)
    if state.paired:
        data = pair_data(state, bound)
        if data is None or data.n < GROSS_PAIRS:
            return None
        if look is not None:
            return sequential_interval(data, look=look, alpha=CONFIRM_ALPHA * share, looks=state.settings.looks)
        return block_interval(data, stored=stored_pair_sd(state, bound), alpha=GROSS_ALPHA * share)
    found = prediction(state, bound)
    if found is None:
        return None
    if not state.capabilities.relaunch:
        alpha = CONFIRM_ALPHA
    elif look is not None:
        alpha = increments(CONFIRM_ALPHA, state.settings.looks)[look]
    else:
        alpha = GROSS_ALPHA
    return found.interval(alpha * share)


def claim_interval(state: CellState, bound: Bound, share: float) -> Interval | None:
    """The interval that a regression or a win is read from; ``share`` as Holm's step-down grants it."""
    return confirm_interval(state, bound, share if state.paired else STORED_CLAIM_SHARE * share)


def p_value(state: CellState, bound: Bound, side: str) -> float:
    """Of no change at all; only to put the hypotheses of a family in order."""
    source: Pairs | Prediction | None = pair_data(state, bound) if state.paired else prediction(state, bound)
    if source is None:
        return 1.0
    return source.p_below(0.0) if side == LOSS else source.p_above(0.0)


def with_outlook(state: CellState, bound: Bound, interval: Interval) -> Interval:
    """The interval with "about how many launches would decide"."""
    margin = limits(state, bound)
    away = max(interval.estimate + margin.loss, -margin.proven_loss - interval.estimate)
    if interval.estimate > margin.win:
        away = max(-margin.loss - interval.estimate, interval.estimate - margin.proven_win)
    if state.phase == CONFIRM and state.paired:
        data = pair_data(state, bound)
        count = pairs_to_decide(data, alpha=CONFIRM_ALPHA, distance=away) if data is not None and data.n > 1 else None
    else:
        found = prediction(state, bound)
        alpha = SCREEN_ALPHA if state.phase != CONFIRM else CONFIRM_ALPHA / 2
        count = found.launches_for_width(alpha, away) if found is not None else None
    return replace(interval, launches_to_decide=max(count, interval.n + 1) if count is not None else None)


def short_runs(state: CellState, bound: Bound) -> float | None:
    """Sd of the runs of one launch where it makes at least half of the variance of the launches' means, so that longer
    runs would narrow every interval; None where it does not, or where too few were made to tell."""
    # Launches of one arm are repetitions of one another, as those of a session are in a store.
    launches = [replace(item.means[bound.key], session=item.arm) for item in state.launches]
    if not launches:
        return None
    parts = components(launches)
    if parts.run_df < SHORT_RUNS_DF or parts.launch_df < SHORT_RUNS_DF / 2:
        return None
    sd = math.sqrt(parts.run_var)
    return sd if sd >= SHORT_RUNS_SD and parts.inverse_runs * parts.run_var >= parts.launch_ms / 2 else None


def hopeless(state: CellState, bound: Bound) -> bool:
    """No number of further launches against the stored runs can decide: the session variance alone is too wide."""
    found = prediction(state, bound)
    if found is None:
        return True
    margin = limits(state, bound)
    half = t_quantile(1 - increments(CONFIRM_ALPHA, state.settings.looks)[-1], found.df) * found.se_limit
    swing = 2 * found.launch_sd / math.sqrt(found.launches)
    worse = margin.loss if found.assumed else margin.proven_loss
    cannot_pass = found.estimate + swing - half <= -margin.loss
    cannot_fail = found.estimate - swing + half >= -worse
    return cannot_pass and cannot_fail


def absolute_interval(state: CellState, bound: Bound, alpha: float) -> Interval:
    """Of the candidate's mean effect over launches, not relative to anything. Launch variance: own and stored,
    else assumed."""
    new = candidate_means(state, bound.key)
    count = len(new)
    centre = math.fsum(item.mean for item in new) / count
    squares = math.fsum((item.mean - centre) ** 2 for item in new)
    stored = state.stored.get(bound.key)
    df = count - 1
    if stored is not None:
        squares, df = squares + stored.launch_ms * stored.launch_df, df + stored.launch_df
    warnings: tuple[str, ...] = ()
    if df >= ENOUGH_DF:
        variance, freedom = squares / df, float(df)
    else:
        run_df = sum(item.runs - 1 for item in new)
        run_part = math.fsum(item.squares for item in new) / run_df / new[0].runs if run_df else 0.0
        variance, freedom = state.settings.assumed_launch_sd**2 + run_part, math.inf
        warnings = (f"launch sd assumed {state.settings.assumed_launch_sd * 100:.3g} %",)
    half = t_quantile(1 - alpha, freedom) * math.sqrt(max(variance, SD_FLOOR**2) / count)
    return Interval(
        estimate=centre,
        lower=centre - half,
        upper=centre + half,
        level=1 - 2 * alpha,
        n=count,
        method="over launches",
        df=None if math.isinf(freedom) else freedom,
        warnings=warnings,
    )


def measured_value(state: CellState, bound: Bound, phases: tuple[str, ...]) -> float | None:
    """Geometric mean over the candidate's launches of these phases, in the bound's unit."""
    return _geometric(state, bound, CANDIDATE, phases)


def reference_value(state: CellState, bound: Bound, phases: tuple[str, ...]) -> float | None:
    """The same of the reference arm; the stored level where no reference was launched."""
    launched = _geometric(state, bound, REFERENCE, phases)
    if launched is not None:
        return launched
    stored = state.stored.get(bound.key)
    return _value(bound, stored.centre) if stored is not None else None


def _geometric(state: CellState, bound: Bound, arm: str, phases: tuple[str, ...]) -> float | None:
    means = [item.means[bound.key].mean for item in state.of(arm) if item.phase in phases]
    return _value(bound, math.fsum(means) / len(means)) if means else None


def _value(bound: Bound, effect: float) -> float:
    return math.exp(effect if bound.higher_is_better else -effect)
