"""Which runs of a launch count, and why a cell's numbers can't be trusted. No statistics here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    problems = tuple(_untrusted(valid, bounds, f"{arm} launch {launch.id}"))
    return Sorted(valid=valid, problems=problems, odd=(*told, *_not_shown(measured)))


def _not_shown(runs: Sequence[Run]) -> list[str]:
    """What no check could look at and a reader has to know; the other unknown ones stand in the report."""
    said = [
        check
        for run in runs
        for check in run.checks
        if check.status == "unknown" and check.message.startswith("not shown:")
    ]
    # Once each, in the words of the last run: figures differ.
    return list({check.name: f"N{check.message[1:]}" for check in said}.values())


def _untrusted(runs: Sequence[Run], bounds: Sequence[Bound], of: str) -> Iterator[str]:
    for bound in bounds:
        values = [run.metrics.value(bound) for run in runs]
        missing = [run for run, value in zip(runs, values, strict=True) if value is None]
        if missing:
            why = missing[0].metrics.undefined.get(bound.metric, "too few requests or tokens for this metric")
            yield f"{bound.label} is not defined in {len(missing)} of {len(runs)} runs of {of}: {why}"
        odd = [value for value in values if value is not None and not usable(value)]
        if odd:
            yield f"{bound.label} is {odd[0]:g} in {len(odd)} of {len(runs)} runs of {of}, which no server can have"
