"""A store that lives as long as its process: for benchmarks of the gate and for tests."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_moeperf.baselines.codec import refuse_secrets, refuse_unstorable
from pytest_moeperf.baselines.merge import merge
from pytest_moeperf.baselines.naming import relative_path, same_cell
from pytest_moeperf.baselines.store import Compare, Entry, best_match, orphans_among
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.workload import Cell


class MemoryStore:
    """``BaselineStore`` in a dict. Not shared between threads."""

    def __init__(self) -> None:
        self._baselines: dict[str, Baseline] = {}

    def find(self, *, engine: str, model: str, cell: Cell) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.all() if same_cell(entry.baseline, engine=engine, model=model, cell=cell))

    def match(
        self, *, engine: str, model: str, cell: Cell, fingerprint: Fingerprint, compare: Compare
    ) -> BaselineMatch:
        found = self.find(engine=engine, model=model, cell=cell)
        return best_match(found, fingerprint=fingerprint, compare=compare)

    def save(self, baseline: Baseline) -> Entry:
        path = self.path_of(baseline)
        refuse_unstorable(baseline, path=path)
        refuse_secrets(baseline, path=path)
        self._baselines[path] = merge(self._baselines.get(path), baseline, path=path)
        return Entry(path, self._baselines[path])

    def path_of(self, baseline: Baseline) -> str:
        return f"memory:{relative_path(baseline)}"

    def all(self) -> tuple[Entry, ...]:
        return tuple(Entry(path, self._baselines[path]) for path in sorted(self._baselines))

    def orphans(self, *, engine: str, model: str, cells: Iterable[Cell]) -> tuple[Entry, ...]:
        return orphans_among(self.all(), engine=engine, model=model, cells=cells)
