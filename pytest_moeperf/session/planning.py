"""What is known at collection: which cells the selected tests need, and which of them share launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.calls import check_measure_calls
from pytest_moeperf.markers.described import is_perf, uses_moeperf
from pytest_moeperf.markers.read import bounds_of, workload_of
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.session.limits import check_measurable
from pytest_moeperf.session.specs import launched_spec

GroupKey = tuple[str, str, str]
"""Backend, and where the ``moeperf_server_spec`` and ``moeperf_config`` fixtures that the tests see were defined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTest:
    """One perf test."""

    node_id: str
    group: GroupKey
    cell: Cell | None
    """None: its workload is only known when it calls ``measure``."""
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All selected perf tests."""

    tests: tuple[PlannedTest, ...]

    def groups(self) -> dict[GroupKey, tuple[CellPlan, ...]]:
        """The cells that are measured together, in order of the tests. Tests of one cell share its runs: their bounds
        are joined. Of one bound with several margins the first test's are planned with; the others are judged by the
        same runs later on."""
        groups: dict[GroupKey, dict[str, CellPlan]] = {}
        for test in self.tests:
            cells = groups.setdefault(test.group, {})
            if test.cell is None:
                continue
            known = cells.get(test.cell.key)
            if known is None:
                cells[test.cell.key] = CellPlan(cell=test.cell, bounds=test.bounds, node_id=test.node_id)
            else:
                planned = {bound.key for bound in known.bounds}
                further = tuple(bound for bound in test.bounds if bound.key not in planned)
                cells[test.cell.key] = replace(known, bounds=known.bounds + further)
        return {key: tuple(cells.values()) for key, cells in groups.items()}


def plan_tests(items: Sequence[pytest.Item], settings_for: Callable[[pytest.Item], Settings]) -> Plan:
    """:raises UsageProblem: a marker, a parameter or a ``moeperf_config`` of some test is wrong; names it."""
    specs: dict[GroupKey, ServerSpec] = {}
    plan = Plan(tests=tuple(_planned(item, settings_for(item), specs) for item in items if uses_moeperf(item)))
    _refuse_two_goodputs(plan)
    return plan


def _refuse_two_goodputs(plan: Plan) -> None:
    """Which requests of a run are good is counted once, while they are at hand."""
    limits: dict[tuple[GroupKey, str], tuple[str, Bound]] = {}
    for test in plan.tests:
        for bound in test.bounds:
            if test.cell is None or not bound.slo_ms:
                continue
            first, known = limits.setdefault((test.group, test.cell.key), (test.node_id, bound))
            if known.slo_ms != bound.slo_ms:
                raise UsageProblem(
                    where=f"{test.node_id}: marker 'goodput'",
                    problem=f"has other limits than {first}, which is about the same cell and so about the same runs",
                    allowed="one set of limits for a cell: the same in both tests, or another num_prompts or seed in "
                    "one of them, which makes it a cell of its own",
                )


def _planned(item: pytest.Item, settings: Settings, specs: dict[GroupKey, ServerSpec]) -> PlannedTest:
    check_measure_calls(item)
    workload, bounds = workload_of(item), bounds_of(item, settings.gate)
    group = backend, fixture_from, _ = group_key(item, settings)
    if workload is None or not backend:
        return PlannedTest(node_id=item.nodeid, group=group, cell=None, bounds=bounds)
    if not fixture_from and group not in specs:
        specs[group] = launched_spec(item.config, settings, backend)
    # What a suite's own fixture makes of the server is only known when it runs.
    check_measurable(item, workload, bounds, spec=None if fixture_from else specs[group])
    return PlannedTest(node_id=item.nodeid, group=group, cell=Cell(backend=backend, workload=workload), bounds=bounds)


def refuse_what_cannot_measure(item: pytest.Item) -> None:
    """A test of some other suite's own marker ``perf``, which this invocation selected all the same.

    :raises UsageProblem: it has no way to reach the fixture. One that has ``request`` may ask for it as it runs.
    """
    if is_perf(item) and not uses_moeperf(item) and "request" not in getattr(item, "fixturenames", ()):
        raise UsageProblem(
            where=item.nodeid,
            problem="is marked 'perf' but does not use the 'moeperf' fixture, so it would measure nothing",
            next_step="add the argument 'moeperf' and call moeperf.measure(), or drop the marker",
        )


def backend_of(item: pytest.Item, settings: Settings) -> str:
    """Empty: not known before the test runs."""
    callspec: Any = getattr(item, "callspec", None)
    if callspec is not None and "backend" in callspec.params:
        return str(callspec.params["backend"])
    # The methods of a TestCase have no parameters.
    return settings.backends[0] if len(settings.backends) == 1 else ""


def definitions_of(item: pytest.Item, fixture: str) -> Sequence[Any]:
    """The definitions of a fixture that a test sees, the one that it gets last."""
    # pytest has no public way to ask; without it a suite that overrides a fixture in one folder would have that
    # folder's cells planned on the wrong server, or by the wrong settings.
    info = getattr(item, "_fixtureinfo", None)
    definitions: Sequence[Any] = info.name2fixturedefs.get(fixture, ()) if info is not None else ()
    return definitions


def group_key(item: pytest.Item, settings: Settings) -> GroupKey:
    """Tests that see the same fixtures and backend get the same server and the same settings."""
    chain = (definitions_of(item, name) for name in ("moeperf_server_spec", "moeperf_config"))
    spec, config = (definitions[-1].baseid if definitions else "" for definitions in chain)
    return backend_of(item, settings), spec, config


def in_launch_order(items: list[pytest.Item], settings: Settings) -> None:
    """Sort in place so that each launch serves all its cells before the next starts; other tests keep their places
    before them."""
    order: dict[GroupKey, int] = {}
    for item in items:
        if uses_moeperf(item):
            order.setdefault(group_key(item, settings), len(order) + 1)
    items.sort(key=lambda item: order[group_key(item, settings)] if uses_moeperf(item) else 0)
