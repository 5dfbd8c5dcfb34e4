"""The telling part of an invocation: one table, reports, the exit status."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.view import Heading, View, build_view


class Telling:
    """Only one process of an invocation has one."""

    def __init__(self, *, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._outcomes: list[Outcome] = []
        self._started_s = time.monotonic()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._problems: list[str] = []

    def header(self) -> str:
        settings = self._settings
        held = f"held against {settings.reference}" if settings.reference else "held against their own baselines"
        source = settings.config_file or "no configuration file"
        return f"moeperf: engine {settings.engine}, {', '.join(settings.backends)}, {held} ({source})"

    def add(self, outcome: Outcome, report: pytest.TestReport) -> None:
        del report
        self._outcomes.append(outcome)
        self._config.hook.pytest_moeperf_outcome(outcome=outcome, config=self._config)

    def exit_status(self, exit_status: int, *, collect_only: bool) -> int:
        """Nothing is ever green by omission: a perf session that measured no cell fails."""
        settings = self._settings
        if collect_only or settings.plan_only:
            return exit_status
        if not self._outcomes:
            self._problems.append("no cell was measured, so nothing was shown: this is a failure")
            return exit_status or int(pytest.ExitCode.TESTS_FAILED)
        if settings.report_dir:
            self._write_reports()
        return int(pytest.ExitCode.TESTS_FAILED) if self._problems and not exit_status else exit_status

    def view(self) -> View:
        settings = self._settings
        first = self._outcomes[0].session if self._outcomes else {}
        launches = {run.launch.id for outcome in self._outcomes for run in outcome.runs}
        return build_view(
            self._outcomes,
            heading=Heading(
                engine=settings.engine,
                model=first.get("model", ""),
                hardware=first.get("hardware", ""),
                candidates=tuple(dict.fromkeys(outcome.decision.cell.backend for outcome in self._outcomes)),
                reference="" if settings.update_baselines else settings.reference,
                launches=len(launches),
                elapsed_s=time.monotonic() - self._started_s,
            ),
            settings=settings,
            started_at=self._started_at,
            pytest_command=pytest_command(sys.argv[1:]),
        )

    def summary(self, reporter: pytest.TerminalReporter) -> None:
        from pytest_moeperf.reporting.terminal import table_lines

        if self._outcomes:
            reporter.write_sep("=", "moeperf")
            markup = reporter.hasmarkup
            for line in table_lines(self.view(), width=min(reporter._tw.fullwidth, 120), color=markup, findings=False):  # noqa: SLF001
                reporter.write_line(line)
        for problem in self._problems:
            reporter.write_line(f"moeperf: {problem}", red=True, bold=True)

    def _write_reports(self) -> None:
        from pytest_moeperf.reporting.files import ReportError
        from pytest_moeperf.reporting.json import write_json

        folder = Path(self._settings.root) / self._settings.report_dir
        try:
            write_json(self.view(), folder)
        except ReportError as error:
            # The verdicts stand; that they could not be written down must not go unseen.
            self._problems.append(str(error))


def pytest_command(arguments: list[str]) -> str:
    """This invocation's options, to be repeated with others: without node ids and ``-k``."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "-k":
            skip = True
        elif argument.startswith("-") or (kept and kept[-1] in ("-m", "--backend", "--perf-backend", "-n", "-p")):
            kept.append(argument)
    return shlex.join(["pytest", *kept])
