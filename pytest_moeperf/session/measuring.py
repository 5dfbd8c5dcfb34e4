"""The measuring part of an invocation: groups of cells, one server at a time."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.baselines.naming import slug
from pytest_moeperf.bench.listener import Listener
from pytest_moeperf.bench.live import MeasuringRules
from pytest_moeperf.bench.nodes import LAUNCHERS
from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.errors import MoeperfError
from pytest_moeperf.markers.described import uses_moeperf
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.nodes import Node
from pytest_moeperf.model.run import Launch
from pytest_moeperf.model.server import NodeCommand
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.session.checks import check_specs, refuse_other_configuration
from pytest_moeperf.session.group import Group
from pytest_moeperf.session.hooks import asked
from pytest_moeperf.session.journal import Journal
from pytest_moeperf.session.judging import judge_item, settle
from pytest_moeperf.session.overrides import settings_for
from pytest_moeperf.session.planning import GroupKey, group_key, plan_tests
from pytest_moeperf.session.progress import Progress
from pytest_moeperf.session.specs import launched_reference, launched_spec
from pytest_moeperf.session.stash import JUDGED


class MeasuringSession:
    """Holds at most one group's server at a time: two backends of one suite rarely fit the same GPUs."""

    def __init__(self, *, config: pytest.Config, settings: Settings) -> None:
        self.settings = settings
        self.config = config
        self.store = FileStore(settings.baselines)
        self.id = session_id(config)
        self._planned: dict[GroupKey, tuple[CellPlan, ...]] = {}
        self._settings: dict[GroupKey, Settings] = {}
        self._groups: dict[tuple[GroupKey, str], Group] = {}
        self._current: Group | None = None
        self.progress = Progress(config)

    def plan(self, items: Sequence[pytest.Item]) -> None:
        """:raises UsageProblem: a test of these says something impossible; nothing was started."""
        for item in filter(uses_moeperf, items):
            refuse_other_configuration(item, self.settings)
        self._planned = plan_tests(items, self.settings_for).groups()
        for settings in self._settings.values():
            if settings != self.settings:
                check_specs(self.config, settings)

    def settings_for(self, item: pytest.Item) -> Settings:
        """Those of the invocation, as the test's own ``moeperf_config`` leaves them."""
        key = group_key(item, self.settings)
        if key not in self._settings:
            self._settings[key] = settings_for(item, self.settings)
        return self._settings[key]

    def group_of(self, item: pytest.Item, spec: ServerSpec) -> Group:
        """The group of this test; the server of another one is given back first."""
        key = group_key(item, self.settings), spec.digest
        if key not in self._groups:
            self._groups[key] = self._new_group(spec, self._planned.get(key[0], ()), self.settings_for(item))
        group = self._groups[key]
        if self._current is not None and self._current is not group:
            self._current.close()
        self._current = group
        return group

    def judge(self, item: pytest.Item, group: Group, overrides: Mapping[str, Any]) -> Outcome:
        judged = judge_item(item, group, overrides, store=self.store)
        item.stash.setdefault(JUDGED, []).append(judged)
        return judged.outcome

    def settle(self, item: pytest.Item, *, test_passed: bool) -> tuple[tuple[Outcome, ...], str]:
        """What a test's calls of ``measure`` came to, now that it has ended, and why something was not recorded."""
        from pytest_moeperf.reporting.junit import junit_properties

        outcomes: list[Outcome] = []
        problems: list[str] = []
        for judged in item.stash[JUDGED]:
            try:
                outcomes.append(settle(judged, store=self.store, test_passed=test_passed))
            except MoeperfError as error:
                problems.append(str(error))
                outcomes.append(replace(judged.outcome, recorded=None, refused=str(error)))
        item.stash[JUDGED] = []  # a plugin may run the test again
        item.user_properties.extend(line for outcome in outcomes for line in junit_properties(outcome))
        return tuple(outcomes), "\n".join(problems)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _new_group(self, spec: ServerSpec, plans: tuple[CellPlan, ...], settings: Settings) -> Group:
        kind = "record" if self.settings.update_baselines else "compare"
        return Group(
            spec=spec,
            plans=plans,
            bench=self._bench(spec, plans, settings),
            settings=settings,
            on_event=self.progress.event,
            journal=Journal(Path(self.settings.root), f"{kind}-{slug(spec.backend)}-{spec.digest}"),
            is_heard=partial(is_heard, self.config),
            others=bounds_beside(plans, self._planned.values()),
        )

    def _bench(self, spec: ServerSpec, plans: tuple[CellPlan, ...], settings: Settings) -> ServerBench:
        software: dict[str, Any] = {}
        where = "hook pytest_moeperf_software"
        for facts in asked(where, lambda: self.config.hook.pytest_moeperf_software(spec=spec)):
            software |= facts or {}
        return ServerBench(
            candidate=spec,
            reference=launched_reference(self.config, settings, spec),
            # An update replaces a backend's own baseline, so that is what it is held against.
            reference_backend="" if settings.update_baselines else settings.reference,
            session=self.id,
            keep_server_s=settings.keep_server_s,
            store=self.store,
            rules=MeasuringRules(
                slo_ms={plan.cell.key: bound.slo_ms for plan in plans for bound in plan.bounds if bound.slo_ms},
                min_window_s=settings.min_window_s,
                strict_evidence=settings.strict_evidence,
                profile_kernels=settings.profile_kernels,
                request_timeout_s=settings.request_timeout_s,
                label=f"pytest pid {os.getpid()}",
                wait_until=None if settings.gate.budget_s is None else time.monotonic() + settings.gate.budget_s,
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
            turn=worker_number(self.config) if settings.devices == "auto" else None,
        )

    def _node_command(self, spec: ServerSpec, node: Node) -> NodeCommand:
        where = "hook pytest_moeperf_node_command"
        own: NodeCommand | None = asked(
            where, lambda: self.config.hook.pytest_moeperf_node_command(spec=spec, node=node)
        )
        return own or LAUNCHERS[spec.launcher](node)

    def _server_ready(self, spec: ServerSpec, launch: Launch, url: str, api_key: ApiKey | None) -> None:
        key = None if api_key is None else api_key.reveal()
        self.config.hook.pytest_moeperf_server_ready(spec=spec, launch=launch, url=url, api_key=key)

    def plan_lines(self) -> list[str]:
        """What would be launched and measured, at what cost. Launches nothing."""
        from pytest_moeperf.session.plan_text import plan_lines

        lines = []
        for key, plans in self._planned.items():
            settings = self._settings[key]
            for backend in (key[0],) if key[0] else settings.backends:
                spec = launched_spec(self.config, settings, backend)
                lines += plan_lines([(spec, plans, self._bench(spec, plans, settings))], settings)
        return lines


def worker_number(config: pytest.Config) -> int:
    """``gw3`` -> 3; 0 without xdist. A worker that replaces a crashed one has a new number."""
    worker: Any = getattr(config, "workerinput", None)
    return int(worker["workerid"].removeprefix("gw")) if worker else 0


def is_heard(config: pytest.Config) -> bool:
    """Not by a controller that was interrupted: its workers go on for some seconds, but their verdicts are not told."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            channel: Any = getattr(plugin, "channel")  # noqa: B009 - xdist is not imported for its type
            try:
                channel.waitclose(timeout=0)
            except channel.TimeoutError:
                continue
            except (OSError, EOFError):
                pass
            return False
    return True


def session_id(config: pytest.Config) -> str:
    """Shared by all workers of an invocation: their launches are of one session."""
    worker: Any = getattr(config, "workerinput", None)
    token = worker["testrunuid"] if worker else uuid.uuid4().hex
    return f"{datetime.now(UTC):%Y%m%d}-{token[:8]}"


def bounds_beside(plans: tuple[CellPlan, ...], planned: Iterable[tuple[CellPlan, ...]]) -> int:
    """How many bounds the other groups of this invocation judge: all share the error of one family."""
    return sum(len(plan.bounds) for others in planned if others != plans for plan in others)
