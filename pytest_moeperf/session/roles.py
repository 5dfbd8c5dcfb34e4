"""The parts that an active invocation plays. A local run measures and tells; under xdist a worker measures and the
controller tells. Each part is a pytest plugin object, registered only where it is played."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_moeperf.errors import MoeperfError, UsageProblem
from pytest_moeperf.markers.described import PERF, is_perf
from pytest_moeperf.session.planning import in_launch_order, plan_tests
from pytest_moeperf.session.stash import MEASURING, OUTCOMES, SETTINGS, TELLING

if TYPE_CHECKING:
    from pytest_moeperf.session.measuring import MeasuringSession
    from pytest_moeperf.session.telling import Telling

REPORT_FIELD = "moeperf_outcomes"
"""Attribute of a call's report; JSON-plain, so that xdist carries it to the controller."""


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def is_controller(config: pytest.Config) -> bool:
    return not is_worker(config) and getattr(config.option, "dist", "no") != "no"


def register_roles(config: pytest.Config) -> None:
    """:raises pytest.UsageError: the settings ask for something that can't be done; nothing was started."""
    from pytest_moeperf.session.checks import check_before_start

    settings = config.stash[SETTINGS]
    if not is_worker(config):
        try:
            notes = check_before_start(config, settings)
        except MoeperfError as error:
            raise pytest.UsageError(str(error)) from None
        from pytest_moeperf.session.telling import Telling

        config.stash[TELLING] = Telling(config=config, settings=settings, notes=notes)
        config.pluginmanager.register(TellingRole(config.stash[TELLING]), "moeperf-telling")
    if is_controller(config):
        from pytest_moeperf.session.scheduling import SchedulingRole

        config.pluginmanager.register(SchedulingRole(settings.backends), "moeperf-scheduling")
    else:
        from pytest_moeperf.session.measuring import MeasuringSession

        config.stash[MEASURING] = MeasuringSession(config=config, settings=settings)
        config.pluginmanager.register(MeasuringRole(config.stash[MEASURING]), "moeperf-measuring")


class MeasuringRole:
    """Collects, measures, judges."""

    def __init__(self, measuring: MeasuringSession) -> None:
        self._measuring = measuring
        self._problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        in_launch_order(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        try:
            self._measuring.take(plan_tests(session.items, self._measuring.settings))
        except UsageProblem as problem:
            if not is_worker(session.config):
                raise pytest.UsageError(str(problem)) from None
            # A usage error that only workers meet ends in tracebacks of xdist's own. So every perf test says it.
            self._problem = str(problem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._problem and is_perf(item):
            pytest.fail(self._problem, pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """``--perf-plan``: the plan has been told, nothing runs."""
        if not self._measuring.settings.plan_only or session.config.option.collectonly:
            return None
        reporter: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
        try:
            lines = self._measuring.plan_lines()
        except MoeperfError as error:
            raise pytest.UsageError(str(error)) from None
        if reporter is not None:
            for line in lines:
                reporter.write_line(line)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        outcomes = item.stash.get(OUTCOMES, [])
        if call.when == "call" and outcomes:
            from pytest_moeperf.model.codec import to_plain

            setattr(report, REPORT_FIELD, to_plain(tuple(outcomes)))
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None:
                # pytest's one-line summary is short: it starts with the verdict, not with the name of a class.
                crash.message = crash.message.removeprefix("PerfFailure: ")
            outcomes.clear()  # a plugin may run the test again
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._measuring.close()


class TellingRole:
    """Prints, writes, decides the exit status. Only one process of an invocation plays it."""

    def __init__(self, telling: Telling) -> None:
        self._telling = telling

    def pytest_report_header(self) -> list[str]:
        return self._telling.header()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain: list[Any] = getattr(report, REPORT_FIELD, [])
        if plain:
            from pytest_moeperf.model.codec import from_plain
            from pytest_moeperf.model.verdict import Outcome

            for outcome in from_plain(tuple[Outcome, ...], plain):
                self._telling.add(outcome, report)
        elif PERF in report.keywords and not report.passed:
            self._telling.add_unjudged()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        session.exitstatus = self._telling.exit_status(exitstatus, collect_only=session.config.option.collectonly)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._telling.summary(terminalreporter)
