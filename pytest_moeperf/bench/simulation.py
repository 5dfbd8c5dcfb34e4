"""The simulated engine knows when it ran late. A starved machine's figures are no figures, even simulated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_moeperf.model.run import Check

NAME = "simulation_on_time"
MAX_SHARE = 0.05
"""Longest lateness of one step, of the run's duration: about what it can take off the throughput. Steps have absolute
due times, so smaller delays are caught up and add up to nothing."""


def simulation_check(info: Mapping[str, Any] | None, duration_s: float) -> tuple[Check, ...]:
    """Nothing for an engine that is not simulated."""
    told = (info or {}).get("simulated")
    if not isinstance(told, Mapping):
        return ()
    punctuality = told.get("punctuality")
    worst_s = punctuality.get("lateness_max_s") if isinstance(punctuality, Mapping) else None
    if not isinstance(worst_s, (int, float)) or duration_s <= 0:
        return (Check(name=NAME, status="unknown", message="the simulated engine did not say how late it was"),)
    if worst_s <= MAX_SHARE * duration_s:
        return (Check(name=NAME, status="pass"),)
    message = (
        f"the simulated engine was {worst_s * 1000:.0f} ms late in a run of {duration_s:.2f} s (at most "
        f"{MAX_SHARE:.0%} of it): other programs took this machine's cores"
    )
    return (Check(name=NAME, status="fail", message=message, repeatable=True),)
