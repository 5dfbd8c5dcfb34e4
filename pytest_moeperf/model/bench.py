"""What the campaign needs from whatever measures: real servers, or a simulated world in a benchmark of the gate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Launch, Run
from pytest_moeperf.model.workload import Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class CellPlan:
    """A cell as it was known at collection."""

    cell: Cell
    bounds: tuple[Bound, ...]
    node_id: str = ""
    reference: str = ""
    """The other backend that this one is compared with; empty: with itself."""


class Launched(Protocol):
    """A server that is up."""

    @property
    def launch(self) -> Launch: ...

    def measure(self, cell: Cell, *, runs: int) -> Sequence[Run]:
        """Warm up as needed, then measure until ``runs`` runs are valid or the retries are used up.

        Returns every run made, warm-up and void ones included, in order.
        """
        ...


class Bench(Protocol):
    """Launches servers of one backend (candidate) and of what it is held against (reference)."""

    @property
    def can_launch_reference(self) -> bool:
        """A reference arm can be launched: another backend, interpreter, image, commit, or a sentinel."""
        ...

    @property
    def can_relaunch(self) -> bool:
        """False for an attached server: its one launch is all there is."""
        ...

    def running(self, arm: str) -> str:
        """The server that a launch which need not be fresh takes up: ``warm server, pid 12``; empty: there is none."""
        ...

    def launch(self, arm: str, *, fresh: bool) -> AbstractContextManager[Launched]:
        """``fresh``: a new process tree even if a warm one could be leased.

        :raises ServerError: if it does not come up.
        """
        ...

    def baseline_for(self, run: Run) -> BaselineMatch:
        """What the store holds that this run may be compared with."""
        ...

    def expected_launch_s(self, arm: str) -> float:
        """From past launches of this backend, for the planner."""
        ...

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        """Of ``measure`` on one launch, its warm-up run included."""
        ...
