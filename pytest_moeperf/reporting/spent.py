"""Where an invocation's time went: what to cut first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.units import format_duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Seconds. Side by side backends may add up to more than the clock shows."""

    launching_s: float
    warming_s: float
    """Warm-up runs, which are thrown away."""
    measuring_s: float
    rest_s: float
    """Waiting, checking, deciding, writing."""

    @property
    def text(self) -> str:
        """``launching 12 s, warm-up runs 5.0 s, measured runs 14 s, the rest 2.0 s``."""
        parts = {
            "launching": self.launching_s,
            "warm-up runs": self.warming_s,
            "measured runs": self.measuring_s,
            "the rest": self.rest_s,
        }
        return ", ".join(f"{name} {format_duration(value)}" for name, value in parts.items())


def time_spent(outcomes: Iterable[Outcome], elapsed_s: float) -> Spent:
    """Of all runs of these outcomes, each run and each launch counted once; a shared launch cost nothing here."""
    runs = {run.id: run for outcome in outcomes for run in outcome.runs}.values()
    launches = {run.launch.id: run.launch for run in runs}.values()
    launching_s = sum(launch.start_s or 0.0 for launch in launches)
    warming_s = sum(run.metrics.duration_s for run in runs if run.warmup)
    measuring_s = sum(run.metrics.duration_s for run in runs if not run.warmup)
    rest_s = max(0.0, elapsed_s - launching_s - warming_s - measuring_s)
    return Spent(launching_s=launching_s, warming_s=warming_s, measuring_s=measuring_s, rest_s=rest_s)
