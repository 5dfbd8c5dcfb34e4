"""Which cells a campaign has, and which of them are controls of which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_moeperf import gate
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Launch, Run

CONTROL_CONCURRENCY = 2
"""Cells up to this concurrency are measured beside a win under verification: kernels matter least there."""


def merge_plans(plans: Sequence[CellPlan]) -> tuple[CellPlan, ...]:
    """One plan a cell, with the bounds of all that named it.

    :raises ValueError: a cell without bounds.
    """
    merged: dict[str, CellPlan] = {}
    for plan in plans:
        if not plan.bounds:
            raise ValueError(f"cell {plan.cell.key} has no bound to judge")
        known = merged.get(plan.cell.key)
        if known is None:
            merged[plan.cell.key] = plan
            continue
        bounds: tuple[Bound, ...] = tuple(dict.fromkeys((*known.bounds, *plan.bounds)))
        merged[plan.cell.key] = replace(known, bounds=bounds)
    return tuple(merged.values())


def is_control(plan: CellPlan, winners: Sequence[CellPlan]) -> bool:
    """Cells worth measuring beside a win: of low concurrency, same backend and lengths."""
    ours = plan.cell.workload
    return ours.concurrency <= CONTROL_CONCURRENCY and any(
        winner.cell.backend == plan.cell.backend
        and (winner.cell.workload.input_len, winner.cell.workload.output_len) == (ours.input_len, ours.output_len)
        for winner in winners
    )


def control_with(control: gate.CellState, launch: Launch, runs: Sequence[Run], pair: int | None) -> gate.CellState:
    """Add one launch's runs to a control cell; what can't be trusted is noted, nothing is decided."""
    kept = gate.sort_runs(runs, bounds=control.bounds, launch=launch, wanted=control.settings.runs_per_launch)
    if kept.problems:
        return replace(control, odd=(*control.odd, *kept.problems))
    return gate.add_launch(control, launch=launch, runs=kept.valid, pair=pair)
