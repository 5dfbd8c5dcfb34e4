"""The parts that an active invocation plays. A local run measures and tells; under xdist a worker measures and the
controller tells. Each part is a pytest plugin object, registered only where it is played."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_moeperf.errors import MoeperfError, UsageProblem
from pytest_moeperf.markers.described import PERF, is_perf, uses_moeperf
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.outgoing import told
from pytest_moeperf.session.planning import in_launch_order, refuse_what_cannot_measure
from pytest_moeperf.session.stash import JUDGED, MEASURING, PASSED, SETTINGS, TELLING

if TYPE_CHECKING:
    from pytest_moeperf.session.measuring import MeasuringSession
    from pytest_moeperf.session.telling import Telling

REPORT_FIELD = "moeperf_outcomes"
"""Attribute of a teardown's report, when all is settled; JSON-plain, so that xdist carries it to the controller."""
NO_VERDICT = (
    "no verdict was asked for: the test ended before it called moeperf.measure(), so nothing was shown\n"
    "  next: call moeperf.measure(); or pytest.skip(REASON) where there is nothing to measure"
)


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
        in_launch_order(items, self._measuring.settings)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            return
        try:
            self._measuring.plan(session.items)
        except UsageProblem as problem:
            if not is_worker(session.config):
                raise pytest.UsageError(str(problem)) from None
            # A usage error that only workers meet ends in tracebacks of xdist's own. So every perf test says it.
            self._problem = str(problem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        said = self._problem if uses_moeperf(item) else ""
        try:
            refuse_what_cannot_measure(item)
        except UsageProblem as problem:
            said = str(problem)
        if said:
            pytest.fail(said, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """A perf test that asks for no verdict must not look like one that got a good one."""
        result = yield
        # What a TestCase's method raised, a skip too, is kept there.
        ended_otherwise = getattr(item, "_excinfo", None)
        if (is_perf(item) or uses_moeperf(item)) and not item.stash.get(JUDGED, []) and not ended_otherwise:
            pytest.fail(NO_VERDICT, pytrace=False)
        return result

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
                reporter.write_line(told(line))
        return True

    # The outermost one, to see what pytest's own make of an expected failure.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        outcomes: tuple[Outcome, ...] = ()
        problem = ""
        if call.when == "teardown" and item.stash.get(JUDGED, []):
            passed = item.stash.get(PASSED, False) and call.excinfo is None
            outcomes, problem = self._measuring.settle(item, test_passed=passed)
        report = yield
        if call.when == "call":
            item.stash[PASSED] = report.passed
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None:
                # pytest's one-line summary is short: it starts with the verdict, not with the name of a class.
                crash.message = crash.message.removeprefix("PerfFailure: ")
        if outcomes:
            from pytest_moeperf.model.codec import to_plain

            setattr(report, REPORT_FIELD, to_plain(outcomes))
        if problem and report.passed:
            report.outcome, report.longrepr = "failed", problem
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

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        self._telling.warn_of_an_assumed_engine(quiet_only=True)

    def pytest_unconfigure(self) -> None:
        self._telling.warn_of_an_assumed_engine()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain: list[Any] = getattr(report, REPORT_FIELD, [])
        if plain:
            from pytest_moeperf.model.codec import from_plain

            for outcome in from_plain(tuple[Outcome, ...], plain):
                self._telling.add(outcome, report)
        elif PERF in report.keywords and not report.passed:
            self._telling.add_unjudged(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        session.exitstatus = self._telling.exit_status(exitstatus, collect_only=session.config.option.collectonly)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._telling.summary(terminalreporter)
