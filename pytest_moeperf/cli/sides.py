"""The two sides of a comparison: stored runs by cell, whatever file they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_moeperf.baselines import stored_runs
from pytest_moeperf.cli.cells import read_entry
from pytest_moeperf.cli.levels import bound_of, change_between, level_of
from pytest_moeperf.cli.report_file import candidate_runs, read_report
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.fingerprint import differences
from pytest_moeperf.model.baseline import StoredRun
from pytest_moeperf.model.bounds import METRICS
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Difference, Interval
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.reporting.json import FILE_NAME


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One cell of one side."""

    cell: Cell
    fingerprint: Fingerprint
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One metric on both sides."""

    key: str
    unit: str
    before: float
    after: float
    interval: Interval
    """Of the log-ratio effect, > 0 is better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """What differs between the two sides of one cell."""

    before: Cell
    after: Cell
    sessions: tuple[int, int]
    launches: tuple[int, int]
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]

    @property
    def comparable(self) -> bool:
        return not any(difference.blocking for difference in self.differences)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All cells of both sides."""

    pairs: tuple[Pair, ...]
    only_first: tuple[Cell, ...]
    only_second: tuple[Cell, ...]


def cells_of(path: str) -> dict[str, Side]:
    """The cells of a baseline file (one) or of a report (those with a valid run), by key.

    :raises BaselineError: for a baseline file that can't be read.
    :raises UsageProblem: for a report that can't be read or has no valid run.
    """
    place = Path(path)
    if place.suffix == ".json" and place.name != FILE_NAME and not _is_report(place):
        baseline = read_entry(place).baseline
        return {baseline.cell.key: Side(cell=baseline.cell, fingerprint=baseline.fingerprint, runs=baseline.runs)}
    outcomes = read_report(place)
    sides: dict[str, Side] = {}
    for key in dict.fromkeys(outcome.decision.cell.key for outcome in outcomes):
        runs = candidate_runs([outcome for outcome in outcomes if outcome.decision.cell.key == key])
        stored = stored_runs(runs)
        if stored:
            sides[key] = Side(cell=runs[-1].cell, fingerprint=runs[-1].fingerprint, runs=stored)
    if not sides:
        raise UsageProblem(where=path, problem="has no valid run in it, so there is nothing to compare")
    return sides


def _is_report(path: Path) -> bool:
    """A report under another name: it is the one that says who generated it, close to its beginning."""
    try:
        with path.open(encoding="utf-8") as file:
            return '"generator": "pytest-moeperf' in file.read(200)
    except (OSError, UnicodeDecodeError):
        return False


def compared(first: dict[str, Side], second: dict[str, Side], *, gate: GateSettings) -> Comparison:
    """Cells of the same name; then, of what is left, cells of the same shape under another name."""
    partners = {key: key for key in first if key in second}
    for key, side in first.items():
        if key not in partners:
            others = [
                other
                for other, found in second.items()
                if other not in first and found.cell.workload.shape == side.cell.workload.shape
            ]
            if len(others) == 1 and others[0] not in partners.values():
                partners[key] = others[0]
    if not partners and len(first) == len(second) == 1:
        partners = dict(zip(first, second, strict=True))
    return Comparison(
        pairs=tuple(_pair(first[key], second[other], gate=gate) for key, other in partners.items()),
        only_first=tuple(side.cell for key, side in first.items() if key not in partners),
        only_second=tuple(side.cell for key, side in second.items() if key not in partners.values()),
    )


def _pair(first: Side, second: Side, *, gate: GateSettings) -> Pair:
    keys = {key for run in first.runs for key in run.values} & {key for run in second.runs for key in run.values}
    return Pair(
        before=first.cell,
        after=second.cell,
        sessions=(_count(first.runs, "session"), _count(second.runs, "session")),
        launches=(_count(first.runs, "launch"), _count(second.runs, "launch")),
        differences=differences(first.fingerprint, second.fingerprint),
        changes=tuple(_change(first.runs, second.runs, key, gate=gate) for key in METRICS if key in keys),
    )


def _count(runs: Sequence[StoredRun], field: str) -> int:
    return len({getattr(run, field) for run in runs})


def _change(before: Sequence[StoredRun], after: Sequence[StoredRun], key: str, *, gate: GateSettings) -> Change:
    return Change(
        key=key,
        unit=bound_of(key).unit,
        before=level_of(before, key),
        after=level_of(after, key),
        interval=change_between(before, after, key, gate),
    )
