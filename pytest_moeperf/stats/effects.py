"""From runs to launch means: the values that everything else here works on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchMean:
    """The runs of one launch, as one replicate."""

    session: str
    launch: str
    mean: float
    """Of the runs' effects."""
    runs: int
    squares: float = 0.0
    """Sum of squared deviations of the runs from the launch's mean: ``runs - 1`` degrees of freedom."""


def usable(value: float | None) -> bool:
    """A metric that has a logarithm. Zero, negative, infinite, NaN and undefined ones have not."""
    return value is not None and math.isfinite(value) and value > 0


def mean(values: Iterable[float]) -> float:
    items = tuple(values)
    return math.fsum(items) / len(items)


def launch_mean(effects: Iterable[float], *, session: str, launch: str) -> LaunchMean:
    """:raises ZeroDivisionError: if there is no effect at all; callers check that a launch has runs."""
    items = tuple(effects)
    centre = math.fsum(items) / len(items)
    squares = math.fsum((item - centre) ** 2 for item in items)
    return LaunchMean(session=session, launch=launch, mean=centre, runs=len(items), squares=squares)


def launch_means(runs: Iterable[tuple[str, str, float]]) -> tuple[LaunchMean, ...]:
    """``(session, launch, effect)`` of each run -> one :class:`LaunchMean` a launch, in order of appearance."""
    groups: dict[tuple[str, str], list[float]] = {}
    for session, launch, effect in runs:
        groups.setdefault((session, launch), []).append(effect)
    return tuple(launch_mean(items, session=session, launch=launch) for (session, launch), items in groups.items())
