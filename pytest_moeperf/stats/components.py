"""Variance of one cell, in three nested parts: between sessions, between launches of a session, between runs
of a launch.

Method of unweighted session means (Searle, Casella, McCulloch, *Variance Components*, 1992, section 4.5):
exact for balanced data, unbiased for unbalanced. Everything is in the units of effects (log ratios): an sd of
0.01 is about 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.stats.effects import LaunchMean
from pytest_moeperf.stats.quantiles import chi2_quantile, f_quantile

SD_FLOOR = 1e-3
"""No server repeats itself better than 0.1 % from launch to launch; runs that seem to are copies or rounded
numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Components:
    """Mean squares and what follows from them. A mean square without degrees of freedom is 0 with ``df`` 0."""

    sessions: int
    launches: int
    runs: int
    centre: float
    """Mean of the session means."""
    session_ms: float
    """Variance of the session means. Expectation: ``session_var + inverse_launches x launch-mean variance``."""
    session_df: int
    launch_ms: float
    """Pooled variance of launch means within sessions. Expectation: ``launch_var + inverse_runs x run_var``."""
    launch_df: int
    run_ms: float
    """Pooled variance of runs within launches. Expectation: ``run_var``."""
    run_df: int
    inverse_launches: float
    """Mean over sessions of 1 / (launches in it)."""
    inverse_runs: float
    """Mean over launches of 1 / (runs in it)."""

    @property
    def session_var(self) -> float:
        return max(0.0, self.session_ms - self.inverse_launches * self.launch_ms) if self.session_df else 0.0

    @property
    def launch_var(self) -> float:
        return max(0.0, self.launch_ms - self.inverse_runs * self.run_ms)

    @property
    def run_var(self) -> float:
        return self.run_ms

    def launch_sd_interval(self, level: float = 0.9) -> tuple[float, float]:
        """Two-sided interval for the sd of a launch mean (run noise included). ``(0, inf)`` without repeated
        launches."""
        return _sd_interval(self.launch_ms, self.launch_df, level)

    def run_sd_interval(self, level: float = 0.9) -> tuple[float, float]:
        return _sd_interval(self.run_ms, self.run_df, level)

    def session_sd_interval(self, level: float = 0.9) -> tuple[float, float]:
        """Tukey and Williams' interval for the sd between sessions; ``(0, inf)`` where it can't be told from
        launches."""
        if self.session_df < 1 or self.launch_df < 1:
            return 0.0, math.inf
        tail = (1 - level) / 2
        nested = self.inverse_launches * self.launch_ms
        upper_f = f_quantile(1 - tail, self.session_df, self.launch_df)
        lower_f = f_quantile(tail, self.session_df, self.launch_df)
        low = (self.session_ms - nested * upper_f) * self.session_df / chi2_quantile(1 - tail, self.session_df)
        high = (self.session_ms - nested * lower_f) * self.session_df / chi2_quantile(tail, self.session_df)
        return math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))


def _sd_interval(mean_square: float, df: int, level: float) -> tuple[float, float]:
    if df < 1:
        return 0.0, math.inf
    tail = (1 - level) / 2
    squares = mean_square * df
    return math.sqrt(squares / chi2_quantile(1 - tail, df)), math.sqrt(squares / chi2_quantile(tail, df))


def components(launches: Sequence[LaunchMean]) -> Components:
    """Estimate the three parts from launch means of any number of sessions.

    :raises ValueError: without a launch.
    """
    if not launches:
        raise ValueError("no launch to estimate a variance from")
    sessions: dict[str, list[float]] = {}
    for launch in launches:
        sessions.setdefault(launch.session, []).append(launch.mean)
    means = [math.fsum(items) / len(items) for items in sessions.values()]
    centre = math.fsum(means) / len(means)
    session_df = len(means) - 1
    session_squares = math.fsum((item - centre) ** 2 for item in means)
    launch_df = len(launches) - len(means)
    launch_squares = math.fsum(
        (item - middle) ** 2 for middle, items in zip(means, sessions.values(), strict=True) for item in items
    )
    run_df = sum(launch.runs - 1 for launch in launches)
    return Components(
        sessions=len(means),
        launches=len(launches),
        runs=sum(launch.runs for launch in launches),
        centre=centre,
        session_ms=session_squares / session_df if session_df else 0.0,
        session_df=session_df,
        launch_ms=launch_squares / launch_df if launch_df else 0.0,
        launch_df=launch_df,
        run_ms=math.fsum(launch.squares for launch in launches) / run_df if run_df else 0.0,
        run_df=run_df,
        inverse_launches=math.fsum(1 / len(items) for items in sessions.values()) / len(means),
        inverse_runs=math.fsum(1 / launch.runs for launch in launches) / len(launches),
    )
