"""Levels of stored runs, how far they spread, and how two of them differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.baselines.levels import cumulative_drift, level
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bounds import METRICS, PERCENTILES, Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Interval
from pytest_moeperf.stats.components import SD_FLOOR, Components, components
from pytest_moeperf.stats.effects import launch_means
from pytest_moeperf.stats.quantiles import t_quantile
from pytest_moeperf.stats.stored import predict

ALPHA = 0.025
"""One-sided; intervals cover 95 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricLevel:
    """One metric of a set of stored runs. Standard deviations are of its logarithm; None: the runs can't show it."""

    key: str
    unit: str
    level: float
    session_sd: float | None
    launch_sd: float | None
    run_sd: float | None
    drift: float | None
    """Relative change of the metric from the frozen anchor."""


def bound_of(key: str) -> Bound:
    """``tpot.p99`` -> its bound, with default margins."""
    metric, _, percentile = key.partition(".")
    return Bound(metric=metric, percentile=percentile or PERCENTILES[0])


def metric_levels(baseline: Baseline) -> tuple[MetricLevel, ...]:
    """Of every metric that the baseline holds, throughput first."""
    drifts = cumulative_drift(baseline)
    found = []
    for key, effect in sorted(level(baseline.runs).items(), key=lambda item: _order(item[0])):
        bound, parts = bound_of(key), parts_of(baseline.runs, key)
        found.append(
            MetricLevel(
                key=key,
                unit=bound.unit,
                level=_value(key, effect),
                session_sd=math.sqrt(parts.session_var) if parts.session_df else None,
                launch_sd=math.sqrt(parts.launch_var) if parts.launch_df else None,
                run_sd=math.sqrt(parts.run_var) if parts.run_df else None,
                drift=bound.ratio(drifts[key]) if key in drifts else None,
            )
        )
    return tuple(found)


def _order(key: str) -> tuple[int, int]:
    metric, _, percentile = key.partition(".")
    return METRICS.index(metric), PERCENTILES.index(percentile) if percentile else 0


def level_of(runs: Sequence[StoredRun], key: str) -> float:
    """Mean over sessions of launches of runs, on the log scale, in the metric's unit."""
    return _value(key, level(runs)[key])


def _value(key: str, effect: float) -> float:
    return math.exp(effect if bound_of(key).higher_is_better else -effect)


def parts_of(runs: Sequence[StoredRun], key: str) -> Components:
    """Mean and variance components of one metric.

    :raises ValueError: if no run has it.
    """
    bound = bound_of(key)
    return components(
        launch_means(
            (run.session, run.launch, bound.effect(value)) for run in runs if (value := run.values.get(key)) is not None
        )
    )


def change_between(before: Sequence[StoredRun], after: Sequence[StoredRun], key: str, gate: GateSettings) -> Interval:
    """The effect of ``after`` against ``before`` (> 0 is better), 95 %.

    One new session is judged as the gate's screen judges it; where both sides have several, their session means are
    the replicates (Welch's t).
    """
    first, second = parts_of(before, key), parts_of(after, key)
    if second.sessions == 1:
        return _predicted(first, after, key, gate)
    if first.sessions == 1:
        found = _predicted(second, before, key, gate)
        return Interval(
            estimate=-found.estimate,
            lower=-found.upper,
            upper=-found.lower,
            level=found.level,
            n=found.n,
            method=found.method,
            df=found.df,
            warnings=found.warnings,
        )
    squares = [max(side.session_ms, SD_FLOOR**2) / side.sessions for side in (first, second)]
    df = sum(squares) ** 2 / (squares[0] ** 2 / first.session_df + squares[1] ** 2 / second.session_df)
    half = t_quantile(1 - ALPHA, df) * math.sqrt(sum(squares))
    estimate = second.centre - first.centre
    return Interval(
        estimate=estimate,
        lower=estimate - half,
        upper=estimate + half,
        level=1 - 2 * ALPHA,
        n=first.sessions + second.sessions,
        method=f"Welch's t over the means of {first.sessions} and {second.sessions} sessions",
        df=df,
    )


def _predicted(stored: Components, new: Sequence[StoredRun], key: str, gate: GateSettings) -> Interval:
    bound = bound_of(key)
    effects = [(run.session, run.launch, bound.effect(run.values[key])) for run in new if key in run.values]
    return predict(
        stored,
        launch_means(effects),
        assumed_session_sd=gate.assumed_session_sd,
        assumed_launch_sd=gate.assumed_launch_sd,
        provisional=stored.launches < 4 or stored.sessions < 2,
    ).interval(ALPHA)
