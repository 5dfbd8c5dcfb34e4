"""What a store of baselines does, whatever it lies on, and how the one to compare with is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from pytest_moeperf.baselines.naming import model_slug
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.workload import Cell

Compare = Callable[[Fingerprint, Fingerprint], tuple[Difference, ...]]
"""(the baseline's fingerprint, the one here) -> the fields that differ."""


class Entry(NamedTuple):
    """A stored baseline and where it lies."""

    path: str
    baseline: Baseline


class BaselineStore(Protocol):
    """Readers need no lock and never see half a baseline; of writers at the same time none loses a run."""

    def find(self, *, engine: str, model: str, cell: Cell) -> tuple[Entry, ...]:
        """All baselines of this cell's shape (backend, concurrency, lengths, rate), under any fingerprint.

        :raises BaselineError: if one of them can't be read.
        """
        ...

    def match(
        self, *, engine: str, model: str, cell: Cell, fingerprint: Fingerprint, compare: Compare
    ) -> BaselineMatch:
        """The newest comparable one; without any, the nearest (fewest blocking differences); else none.

        :raises BaselineError: as ``find``.
        """
        ...

    def save(self, baseline: Baseline) -> Entry:
        """Write it, merged with what others wrote since it was read. Returns what is stored now, and where.

        :raises BaselineError: if it holds values that are no measurements, can't be written, or if the stored level
            was moved meanwhile. What was stored before is then untouched.
        """
        ...

    def path_of(self, baseline: Baseline) -> str:
        """Where ``save`` will put it."""
        ...

    def all(self) -> tuple[Entry, ...]:
        """Every baseline that can be read, by path. Whoever needs one that can't be meets it in ``find``."""
        ...

    def orphans(self, *, engine: str, model: str, cells: Iterable[Cell]) -> tuple[Entry, ...]:
        """Those of this engine and model that none of ``cells``, all cells that tests can make, would find."""
        ...


def best_match(entries: Sequence[Entry], *, fingerprint: Fingerprint, compare: Compare) -> BaselineMatch:
    matches = [
        BaselineMatch(
            baseline=entry.baseline, path=entry.path, differences=compare(entry.baseline.fingerprint, fingerprint)
        )
        for entry in sorted(entries, key=lambda entry: last_changed_at(entry.baseline), reverse=True)
    ]
    if not matches:
        return BaselineMatch(baseline=None)
    return min(matches, key=_distance)


def _distance(match: BaselineMatch) -> tuple[int, int]:
    """What blocks counts most; then what else of the workload differs (a seed): the cell's own baseline is nearest."""
    noted = sum(difference.field.startswith("workload.") for difference in match.differences)
    return sum(difference.blocking for difference in match.differences), noted


def last_changed_at(baseline: Baseline) -> str:
    """ISO 8601, UTC; of the last event, else of the newest run."""
    if baseline.history:
        return baseline.history[-1].at
    return max((run.started_at for run in baseline.runs), default="")


def orphans_among(entries: Iterable[Entry], *, engine: str, model: str, cells: Iterable[Cell]) -> tuple[Entry, ...]:
    used = {cell.shape for cell in cells}
    return tuple(
        entry
        for entry in entries
        if entry.baseline.engine == engine
        and model_slug(entry.baseline.model) == model_slug(model)
        and entry.baseline.cell.shape not in used
    )
