"""The machine and its software, as the fingerprint of what was measured has them."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_moeperf.fingerprint import label
from pytest_moeperf.model.run import CANDIDATE
from pytest_moeperf.model.verdict import Outcome

GROUPS = ("hardware", "software", "environment")


def environment_of(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Fact -> value, of the first candidate run; empty where nothing was measured."""
    runs = (run for outcome in outcomes for run in outcome.runs if run.launch.arm == CANDIDATE)
    first = next(runs, None)
    if first is None:
        return {}
    return {
        label(f"{group}.{name}"): str(value)
        for group in GROUPS
        for name, value in getattr(first.fingerprint, group).items()
        if value is not None
    }
