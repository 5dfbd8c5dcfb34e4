"""What is known at collection: which cells the selected tests need, and which of them share launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.calls import check_measure_calls
from pytest_moeperf.markers.described import is_perf
from pytest_moeperf.markers.read import bounds_of, workload_of
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.session.limits import check_measurable
from pytest_moeperf.session.specs import launched_spec

GroupKey = tuple[str, str]
"""Backend, and where the ``moeperf_server_spec`` fixture that the tests see was defined."""


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


def plan_tests(items: Sequence[pytest.Item], settings: Settings) -> Plan:
    """:raises UsageProblem: a marker or parameter of some test is wrong; names the node."""
    specs: dict[str, ServerSpec] = {}
    plan = Plan(tests=tuple(_planned(item, settings, specs) for item in items if is_perf(item)))
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


def _planned(item: pytest.Item, settings: Settings, specs: dict[str, ServerSpec]) -> PlannedTest:
    if "moeperf" not in getattr(item, "fixturenames", ()):
        raise UsageProblem(
            where=item.nodeid,
            problem="is marked 'perf' but does not use the 'moeperf' fixture, so it would measure nothing",
            next_step="add the argument 'moeperf' and call moeperf.measure(), or drop the marker",
        )
    check_measure_calls(item)
    workload, bounds = workload_of(item), bounds_of(item, settings.gate)
    backend, fixture_from = group_key(item)
    if workload is None:
        return PlannedTest(node_id=item.nodeid, group=(backend, fixture_from), cell=None, bounds=bounds)
    if not fixture_from and backend not in specs:
        specs[backend] = launched_spec(item.config, settings, backend)
    # What a suite's own fixture makes of the server is only known when it runs.
    check_measurable(item, workload, bounds, spec=None if fixture_from else specs[backend])
    cell = Cell(backend=backend, workload=workload)
    return PlannedTest(node_id=item.nodeid, group=(backend, fixture_from), cell=cell, bounds=bounds)


def backend_of(item: pytest.Item) -> str:
    callspec: Any = getattr(item, "callspec", None)
    return str(callspec.params["backend"]) if callspec is not None and "backend" in callspec.params else "default"


def group_key(item: pytest.Item) -> GroupKey:
    """Tests that see the same ``moeperf_server_spec`` fixture and backend get the same server."""
    # pytest has no public way to ask which definition of a fixture a test sees; without it a suite that overrides the
    # fixture in one folder would have that folder's cells planned on the wrong server.
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.get("moeperf_server_spec", ()) if info is not None else ()
    return backend_of(item), definitions[-1].baseid if definitions else ""


def in_launch_order(items: list[pytest.Item]) -> None:
    """Sort in place so that each launch serves all its cells before the next starts; other tests keep their places
    before them."""
    order: dict[GroupKey, int] = {}
    for item in items:
        if is_perf(item):
            order.setdefault(group_key(item), len(order) + 1)
    items.sort(key=lambda item: order[group_key(item)] if is_perf(item) else 0)
