"""Which runs of a launch count, and why a cell's numbers can't be trusted. No statistics here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import REFERENCE, Launch, Run
from pytest_moeperf.stats.effects import usable


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorted:
    """The runs of one cell in one launch."""

    valid: tuple[Run, ...]
    problems: tuple[str, ...] = ()
    """Non-empty: the cell is INVALID. Each names the check, what was seen and how often."""
    odd: tuple[str, ...] = ()


def sort_runs(runs: Sequence[Run], *, bounds: Sequence[Bound], launch: Launch, wanted: int) -> Sorted:
    """Leave out warm-up and void runs. A launch counts if at least half of the wanted runs are valid.

    A failed check that another run may not show voids the run alone; any other voids the cell.
    """
    measured = [run for run in runs if not run.warmup]
    valid = tuple(run for run in measured if run.valid)
    arm = "reference" if launch.arm == REFERENCE else "candidate"
    failed: dict[str, list[str]] = {}
    lasting = False
    for run in measured:
        for check in run.failures:
            failed.setdefault(check.name, []).append(check.message)
            lasting = lasting or not check.repeatable
    told = tuple(
        f"{name} failed in {len(messages)} of {len(measured)} runs of {arm} launch {launch.id}: "
        f"{messages[0] or 'no detail given'}"
        for name, messages in failed.items()
    )
    if lasting or len(valid) < (wanted + 1) // 2:
        nothing = f"{arm} launch {launch.id} gave {len(valid)} valid runs of {wanted} wanted"
        return Sorted(valid=valid, problems=told or (nothing,))
    problems = tuple(problem for run in valid for problem in _untrusted(run, bounds, arm))
    return Sorted(valid=valid, problems=problems, odd=told)


def _untrusted(run: Run, bounds: Sequence[Bound], arm: str) -> list[str]:
    problems = []
    for bound in bounds:
        value = run.metrics.value(bound)
        if value is None:
            why = run.metrics.undefined.get(bound.metric, "too few requests or tokens for this metric")
            problems.append(f"{bound.label} is not defined for {arm} run {run.id}: {why}")
        elif not usable(value):
            problems.append(f"{bound.label} of {arm} run {run.id} is {value:g}, which no server can have")
    return problems
