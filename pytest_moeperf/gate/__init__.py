"""The gate: a pure state machine per cell. State and observed launches in; a new state, what it needs next or
a Decision out.

state = start(plan, settings=..., capabilities=...)
while (wanted := need(state)) is not None:
    ...                                     # the campaign launches and measures
    state = add_launch(state, launch=..., runs=...)
    state = judge(state)
state.decision
"""

from __future__ import annotations

from pytest_moeperf.gate.decide import invalid
from pytest_moeperf.gate.evidence import GAIN, LOSS
from pytest_moeperf.gate.judge import Claim, claims, conclude, judge, rejects
from pytest_moeperf.gate.state import (
    CONFIRM,
    RECORD,
    SCREEN,
    VERIFY,
    VERIFY_PAIRS,
    Capabilities,
    CellState,
    Need,
    ObservedLaunch,
    add_launch,
    enough,
    need,
    opening,
    start,
    with_match,
    with_opening,
)
from pytest_moeperf.gate.validity import Sorted, sort_runs

SIDES = (LOSS, GAIN)
"""The two families of claims, each with its own error."""

__all__ = [
    "CONFIRM",
    "GAIN",
    "LOSS",
    "RECORD",
    "SCREEN",
    "SIDES",
    "VERIFY",
    "VERIFY_PAIRS",
    "Capabilities",
    "CellState",
    "Claim",
    "Need",
    "ObservedLaunch",
    "Sorted",
    "add_launch",
    "claims",
    "conclude",
    "enough",
    "invalid",
    "judge",
    "need",
    "opening",
    "rejects",
    "sort_runs",
    "start",
    "with_match",
    "with_opening",
]
