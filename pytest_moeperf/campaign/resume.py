"""Runs of an interrupted invocation, handed out again as the launches that they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_moeperf.model.run import Launch, Run
from pytest_moeperf.model.workload import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class OldLaunch:
    """One finished launch of an earlier invocation."""

    launch: Launch
    runs: tuple[Run, ...]

    def of(self, cell: Cell) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.cell == cell)

    def enough(self, cell: Cell, runs: int) -> bool:
        return sum(run.valid and not run.warmup for run in self.of(cell)) >= runs


@dataclass(slots=True)
class Resumable:
    """The launches still to be handed out, oldest first."""

    launches: list[OldLaunch] = field(default_factory=list)

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Resumable:
        groups: dict[tuple[str, str], list[Run]] = {}
        for run in runs:
            groups.setdefault((run.launch.id, run.launch.arm), []).append(run)
        return cls([OldLaunch(launch=group[0].launch, runs=tuple(group)) for group in groups.values()])

    def take_single(self, arm: str, cells: Sequence[Cell], runs: int) -> OldLaunch | None:
        """The oldest launch of an arm that holds something of these cells; launches before it stay."""
        for index, old in enumerate(self.launches):
            if old.launch.arm == arm and any(old.enough(cell, runs) for cell in cells):
                return self.launches.pop(index)
        return None

    def take_partner(self, launch: Launch, cells: Sequence[Cell], runs: int) -> OldLaunch | None:
        """The oldest launch, if it is the other arm of the session of this one and holds all of these cells."""
        first = self.launches[0] if self.launches else None
        if first is None or not _pair(launch, first.launch) or not all(first.enough(cell, runs) for cell in cells):
            return None
        return self.launches.pop(0)

    def take_pair(self, cells: Sequence[Cell], runs: int) -> tuple[OldLaunch, OldLaunch] | None:
        """The oldest two launches in a row, of one session and both arms, that hold all of these cells.

        A pair that lost one half to the interruption is useless: its other half would come from another session.
        """
        for index in range(len(self.launches) - 1):
            first, second = self.launches[index : index + 2]
            if _pair(first.launch, second.launch) and all(
                old.enough(cell, runs) for old in (first, second) for cell in cells
            ):
                del self.launches[index : index + 2]
                return first, second
        return None


def _pair(first: Launch, second: Launch) -> bool:
    """Both arms of one session."""
    return first.session == second.session and first.arm != second.arm
