"""The measuring part of an invocation: groups of cells, one server at a time."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.live import MeasuringRules
from pytest_moeperf.bench.nodes import LAUNCHERS
from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.nodes import Node
from pytest_moeperf.model.run import Launch
from pytest_moeperf.model.server import NodeCommand
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.session.group import Group
from pytest_moeperf.session.journal import Journal
from pytest_moeperf.session.judging import judge_item
from pytest_moeperf.session.planning import GroupKey, Plan, group_key
from pytest_moeperf.session.progress import Progress
from pytest_moeperf.session.specs import launched_reference, launched_spec


class MeasuringSession:
    """Holds at most one group's server at a time: two backends of one suite rarely fit the same GPUs."""

    def __init__(self, *, config: pytest.Config, settings: Settings) -> None:
        self.settings = settings
        self.config = config
        self.store = FileStore(settings.baselines)
        self.id = session_id(config)
        self._planned: dict[GroupKey, tuple[CellPlan, ...]] = {}
        self._groups: dict[tuple[GroupKey, str], Group] = {}
        self._current: Group | None = None
        self.progress = Progress(config)

    def take(self, plan: Plan) -> None:
        self._planned = plan.groups()

    def group_of(self, item: pytest.Item, spec: ServerSpec) -> Group:
        """The group of this test; the server of another one is given back first."""
        key = group_key(item), spec.digest
        if key not in self._groups:
            self._groups[key] = self._new_group(spec, self._planned.get(key[0], ()))
        group = self._groups[key]
        if self._current is not None and self._current is not group:
            self._current.close()
        self._current = group
        return group

    def judge(self, item: pytest.Item, group: Group, overrides: Mapping[str, Any]) -> Outcome:
        return judge_item(item, group, overrides, settings=self.settings, store=self.store)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _new_group(self, spec: ServerSpec, plans: tuple[CellPlan, ...]) -> Group:
        kind = "record" if self.settings.update_baselines else "compare"
        return Group(
            spec=spec,
            plans=plans,
            bench=self._bench(spec, plans),
            settings=self.settings,
            on_event=self.progress.event,
            journal=Journal(Path(self.settings.root), f"{kind}-{spec.backend}-{spec.digest}"),
        )

    def _bench(self, spec: ServerSpec, plans: tuple[CellPlan, ...]) -> ServerBench:
        software: dict[str, Any] = {}
        for facts in self.config.hook.pytest_moeperf_software(spec=spec):
            software |= facts or {}
        return ServerBench(
            candidate=spec,
            reference=launched_reference(self.config, self.settings, spec),
            # An update replaces a backend's own baseline, so that is what it is held against.
            reference_backend="" if self.settings.update_baselines else self.settings.reference,
            session=self.id,
            keep_server_s=self.settings.keep_server_s,
            store=self.store,
            rules=MeasuringRules(
                slo_ms={plan.cell.key: bound.slo_ms for plan in plans for bound in plan.bounds if bound.slo_ms},
                min_window_s=self.settings.min_window_s,
                strict_evidence=self.settings.strict_evidence,
                profile_kernels=self.settings.profile_kernels,
                request_timeout_s=self.settings.request_timeout_s,
                label=f"pytest pid {os.getpid()}",
                software=software,
            ),
            listener=Listener(
                on_run=self.progress.run_ended,
                on_progress=self.progress.running,
                on_start=self.progress.starting,
                on_wait=self.progress.waiting,
                on_ready=self._server_ready,
            ),
            node_command=self._node_command,
            turn=worker_number(self.config) if self.settings.devices == "auto" else None,
        )

    def _node_command(self, spec: ServerSpec, node: Node) -> NodeCommand:
        own: NodeCommand | None = self.config.hook.pytest_moeperf_node_command(spec=spec, node=node)
        return own or LAUNCHERS[spec.launcher](node)

    def _server_ready(self, spec: ServerSpec, launch: Launch, url: str, api_key: str | None) -> None:
        self.config.hook.pytest_moeperf_server_ready(spec=spec, launch=launch, url=url, api_key=api_key)

    def plan_lines(self) -> list[str]:
        """What would be launched and measured, at what cost. Launches nothing."""
        from pytest_moeperf.session.plan_text import plan_lines

        benches = []
        for (backend, _), plans in self._planned.items():
            spec = launched_spec(self.config, self.settings, backend)
            benches.append((spec, plans, self._bench(spec, plans)))
        return plan_lines(benches, self.settings)


def worker_number(config: pytest.Config) -> int:
    """``gw3`` -> 3; 0 without xdist. A worker that replaces a crashed one has a new number."""
    worker: Any = getattr(config, "workerinput", None)
    return int(worker["workerid"].removeprefix("gw")) if worker else 0


def session_id(config: pytest.Config) -> str:
    """Shared by all workers of an invocation: their launches are of one session."""
    worker: Any = getattr(config, "workerinput", None)
    token = worker["testrunuid"] if worker else uuid.uuid4().hex
    return f"{datetime.now(UTC):%Y%m%d}-{token[:8]}"
