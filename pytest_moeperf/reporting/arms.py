"""The runs of a cell by arm: what the charts draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Distribution, Run
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.reporting.figures import THROUGHPUT, deciding_result
from pytest_moeperf.reporting.view import View

STORED = "stored"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One run's value of the drawn bound."""

    launch: str
    run: str
    started_at: str
    value: float
    valid: bool = True
    warmup: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    name: str
    """``candidate``, ``reference`` or ``stored`` (runs of the baseline)."""
    backend: str
    points: tuple[Point, ...]
    """In order of time."""

    @property
    def launches(self) -> tuple[float, ...]:
        """Geometric mean of each launch's valid runs."""
        by_launch: dict[str, list[float]] = {}
        for point in self.points:
            if point.valid and not point.warmup:
                by_launch.setdefault(point.launch, []).append(math.log(point.value))
        return tuple(math.exp(math.fsum(logs) / len(logs)) for logs in by_launch.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    value: float
    lower: float | None = None
    upper: float | None = None


def arms_of(outcome: Outcome, view: View, *, bound: Bound = THROUGHPUT) -> tuple[Arm, ...]:
    """Candidate, then the reference: its own runs, else the stored ones, else the figure it was held against."""
    arms = [_arm(name, outcome.runs, bound) for name in (CANDIDATE, REFERENCE)]
    found = [arm for arm in arms if arm is not None]
    if arms[1] is None and (stored := _stored(outcome, view, bound)) is not None:
        found.append(stored)
    return tuple(found)


def _arm(name: str, runs: Sequence[Run], bound: Bound) -> Arm | None:
    points = sorted(_points((run for run in runs if run.launch.arm == name), bound), key=lambda point: point.started_at)
    backend = next((run.cell.backend for run in runs if run.launch.arm == name), "")
    return Arm(name=name, backend=backend, points=tuple(points)) if points else None


def _points(runs: Iterable[Run], bound: Bound) -> Iterable[Point]:
    for run in runs:
        value = run.metrics.value(bound)
        if value is not None and value > 0:
            yield Point(
                launch=run.launch.id,
                run=run.id,
                started_at=run.started_at,
                value=value,
                valid=run.valid,
                warmup=run.warmup,
            )


def _stored(outcome: Outcome, view: View, bound: Bound) -> Arm | None:
    if outcome.verdict is Verdict.INCOMPARABLE:
        # Side by side in one chart is a comparison too.
        return None
    backend = view.heading.reference or outcome.decision.cell.backend
    baseline = view.baselines.get(outcome.decision.cell.key)
    if baseline is not None:
        points = [
            Point(launch=run.launch, run=run.id, started_at=run.started_at, value=run.values[bound.key])
            for run in baseline.runs
            if run.values.get(bound.key, 0) > 0
        ]
        if points:
            return Arm(name=STORED, backend=baseline.cell.backend, points=tuple(points))
    result = deciding_result(outcome)
    if result is not None and result.bound.key == bound.key and result.baseline:
        point = Point(launch="baseline", run="baseline", started_at="", value=result.baseline)
        return Arm(name=STORED, backend=backend, points=(point,))
    return None


def mean_of(launches: Sequence[float], *, level: float = 0.95) -> Mean | None:
    """Geometric mean over launches; from three on with the t interval of the mean of their logs."""
    if not launches:
        return None
    logs = [math.log(value) for value in launches]
    n = len(logs)
    centre = math.fsum(logs) / n
    if n < 3:
        return Mean(value=math.exp(centre))
    from pytest_moeperf.stats.quantiles import t_quantile

    sd = math.sqrt(math.fsum((log - centre) ** 2 for log in logs) / (n - 1))
    half = t_quantile((1 + level) / 2, n - 1) * sd / math.sqrt(n)
    return Mean(value=math.exp(centre), lower=math.exp(centre - half), upper=math.exp(centre + half))


def typical(distributions: Sequence[Distribution]) -> dict[str, float]:
    """The median run's ``minimum``, ``p50``, ``mean``, ``p90``, ``p99``, ``maximum``; those that some run defines."""
    from statistics import median

    found = {}
    for name in ("minimum", "p50", "mean", "p90", "p99", "maximum"):
        values = [value for one in distributions if (value := getattr(one, name)) is not None]
        if values:
            found[name] = median(values)
    return found
