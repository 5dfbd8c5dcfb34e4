"""Levels of a baseline and their changes, as log-ratio effects per bound key (> 0 is better)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bounds import HIGHER_IS_BETTER


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesPoint:
    """One launch in the life of a baseline."""

    session: str
    launch: str
    started_at: str
    """Of its first run."""
    runs: int
    values: dict[str, float]
    """Geometric mean over the launch's runs by bound key, in the metric's unit."""
    current: bool
    """Its runs belong to the level that candidates are held against."""


def effect(key: str, value: float) -> float:
    """``Bound.effect`` for a key of ``StoredRun.values``."""
    return math.log(value) if key.partition(".")[0] in HIGHER_IS_BETTER else -math.log(value)


def level(runs: Iterable[StoredRun]) -> dict[str, float]:
    """Mean effect by key: over the runs of a launch, then the launches of a session, then the sessions.

    In this order because a session with many launches says no more about other sessions than one with few.
    """
    nested: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for run in runs:
        for key, value in run.values.items():
            nested[key][run.session][run.launch].append(effect(key, value))
    return {
        key: _mean([_mean([_mean(found) for found in launches.values()]) for launches in sessions.values()])
        for key, sessions in sorted(nested.items())
    }


def change(before: Sequence[StoredRun], after: Sequence[StoredRun]) -> dict[str, float]:
    """Effect of each key that both have."""
    old, new = level(before), level(after)
    return {key: new[key] - old[key] for key in old if key in new}


def cumulative_drift(baseline: Baseline) -> dict[str, float]:
    """How far the current level is from the frozen anchor, by bound key. Empty without an anchor."""
    return change(baseline.anchor, baseline.runs)


def rounded(effects: dict[str, float]) -> dict[str, float]:
    """For a file: a millionth says all."""
    return {key: round(value, 6) for key, value in effects.items()}


def all_runs(baseline: Baseline) -> tuple[StoredRun, ...]:
    """Every run that the baseline holds, once, oldest first."""
    by_id = {run.id: run for run in (*baseline.anchor, *baseline.retired, *baseline.runs)}
    return tuple(sorted(by_id.values(), key=lambda run: (run.started_at, run.id)))


def history_series(baseline: Baseline) -> tuple[SeriesPoint, ...]:
    """One point a launch, oldest first: for change points and for charts."""
    launches: dict[tuple[str, str], list[StoredRun]] = {}
    for run in all_runs(baseline):
        launches.setdefault((run.session, run.launch), []).append(run)
    current = {run.id for run in baseline.runs}
    return tuple(
        SeriesPoint(
            session=session,
            launch=launch,
            started_at=runs[0].started_at,
            runs=len(runs),
            values={key: _geometric_mean(runs, key) for key in sorted({key for run in runs for key in run.values})},
            current=any(run.id in current for run in runs),
        )
        for (session, launch), runs in launches.items()
    )


def _geometric_mean(runs: Sequence[StoredRun], key: str) -> float:
    return math.exp(_mean([math.log(run.values[key]) for run in runs if key in run.values]))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
