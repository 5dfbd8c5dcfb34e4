"""The telling part of an invocation: one table, reports, the exit status."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pytest

from pytest_moeperf.evidence import UNREAD
from pytest_moeperf.foreign import read_text, refuse_links
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.options.variables import told_unknown
from pytest_moeperf.outgoing import told
from pytest_moeperf.reporting.environment import environment_of
from pytest_moeperf.reporting.spent import time_spent
from pytest_moeperf.reporting.view import Heading, View, build_view
from pytest_moeperf.session.command import command_of
from pytest_moeperf.session.held_against import held_against
from pytest_moeperf.session.journal import JOURNAL_FOLDER, told_kept
from pytest_moeperf.session.judging import NOT_RECORDED
from pytest_moeperf.session.last_report import keep_as_last, report_folder
from pytest_moeperf.session.unused import runs_all_collected, unused_baselines

ASSUMED = (
    "moeperf: SIMULATED: nothing names an engine, so no real server is measured: these figures are those of the "
    'built-in simulation. For a real one: engine = "sglang" in a moeperf.toml beside the tests'
)
MAX_WIDTH = 120
"""Wider, a table is hard to read across."""


class Telling:
    """Only one process of an invocation has one."""

    def __init__(self, *, config: pytest.Config, settings: Settings, notes: Sequence[str] = ()) -> None:
        self._config = config
        self._settings = settings
        self._outcomes: list[Outcome] = []
        self._started_s = time.monotonic()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._kept_before = self._kept()
        self._unjudged: set[str] = set()
        self._problems: list[str] = []
        self._remarks: list[str] = []
        self._notes = tuple(notes)
        self._written: list[Path] = []
        self._locations: dict[str, tuple[str, int]] = {}

    def header(self) -> list[str]:
        settings = self._settings
        held = f"held against {settings.reference or 'their own baselines'}"
        if self._beside():
            held = f"{held} and {self._beside()}"
        source = settings.config_file or "no configuration file"
        first = f"moeperf: engine {settings.engine}, {', '.join(settings.backends)}, {held} ({source})"
        unread = [note for note in self._notes if UNREAD in note]
        assumed = [ASSUMED] if settings.engine_is_assumed else []
        set_here = [name for name, value in os.environ.items() if value]
        further = [f"moeperf: {line}" for line in (*told_unknown(set_here), *unread)]
        return [told(line) for line in (*assumed, first, *further)]

    def warn_of_an_assumed_engine(self, *, quiet_only: bool = False) -> None:
        """As the last line, and with ``-q``, which hides the header, as the first."""
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or not self._settings.engine_is_assumed or self._config.option.collectonly:
            return
        if not quiet_only or reporter.verbosity < 0:
            reporter.write_line(ASSUMED, red=True, bold=True)

    def _beside(self) -> str:
        """What is launched beside the candidates: nothing where they are recorded, or run already."""
        settings = self._settings
        alone = settings.update_baselines or settings.engine == "attached"
        return "[tool.moeperf.reference]" if settings.reference_servers and not alone else ""

    def add(self, outcome: Outcome, report: pytest.TestReport) -> None:
        self._outcomes.append(outcome)
        self._unjudged.discard(report.nodeid)
        if outcome.refused == NOT_RECORDED:
            # Its test has said why it failed, and knew nothing of this.
            self._remarks.append(f"moeperf: {outcome.node_id}: not recorded: {NOT_RECORDED}")
        path, line, _ = report.location
        if line is not None:
            self._locations[outcome.node_id] = path, line + 1
        try:
            self._config.hook.pytest_moeperf_outcome(outcome=outcome, config=self._config)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is the suite's own code
            said = f"{type(error).__name__} for {outcome.node_id}: {error}"
            self._problems.append(f"hook pytest_moeperf_outcome raised {said}; the verdicts stand")

    def add_unjudged(self, report: pytest.TestReport) -> None:
        """A perf test that was skipped, or failed; its verdict comes with its teardown, if there is one."""
        self._unjudged.add(report.nodeid)

    def exit_status(self, exit_status: int, *, collect_only: bool) -> int:
        """Nothing is ever green by omission: a perf session that measured no cell fails."""
        settings = self._settings
        if collect_only or settings.plan_only:
            return exit_status
        self._tell_interrupted()
        if self._outcomes:
            self._write_reports()
        elif exit_status not in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR):
            self._problems.append("no cell was measured, so nothing was shown: this is a failure")
        return int(pytest.ExitCode.TESTS_FAILED) if self._problems and not exit_status else exit_status

    def _tell_interrupted(self) -> None:
        for path, text in self._kept().items():
            if text != self._kept_before.get(path):
                self._remarks.extend(told_kept(path, text, command_of(self._config)))

    def _kept(self) -> dict[Path, str]:
        """What interrupted invocations left. Told apart by content: clocks may be set meanwhile."""
        folder = Path(self._settings.root) / JOURNAL_FOLDER
        kept = {}
        for path in sorted(folder.glob("*.jsonl")):
            with contextlib.suppress(OSError, UnicodeDecodeError):  # whoever goes on from it is told
                refuse_links(path, below=Path(self._settings.root))
                kept[path] = read_text(path)
        return kept

    @cached_property
    def view(self) -> View:
        """Everything that is told. Not before the last outcome is in."""
        settings = self._settings
        first = self._outcomes[0].session if self._outcomes else {}
        launches = {run.launch.id for outcome in self._outcomes for run in outcome.runs}
        elapsed_s = time.monotonic() - self._started_s
        return build_view(
            self._outcomes,
            heading=Heading(
                engine=settings.engine,
                model=first.get("model", ""),
                hardware=first.get("hardware", ""),
                candidates=tuple(dict.fromkeys(outcome.decision.cell.backend for outcome in self._outcomes)),
                reference="" if settings.update_baselines else settings.reference,
                beside=self._beside(),
                launches=len(launches),
                elapsed_s=elapsed_s,
                spent=time_spent(self._outcomes, elapsed_s),
            ),
            settings=settings,
            started_at=self._started_at,
            pytest_command=command_of(self._config),
            environment=environment_of(self._outcomes),
            # Only the report draws them; the table does without reading the store again.
            baselines=held_against(self._outcomes, settings) if settings.report_dir else {},
            orphans=self._orphans(),
            notes=self._notes,
        )

    def _orphans(self) -> tuple[str, ...]:
        if self._unjudged or not runs_all_collected(self._config):
            return ()
        return unused_baselines(self._settings, self._outcomes)

    def summary(self, reporter: pytest.TerminalReporter) -> None:
        from pytest_moeperf.reporting.terminal import table_lines

        if self._outcomes:
            reporter.write_sep("=", "moeperf")
            width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
            # What the view holds has been through `told`, and colours would not come through again.
            for line in table_lines(self.view, width=width, color=reporter.hasmarkup, findings=False):
                reporter.write_line(line)
            if self._written:
                reporter.write_line(told(f"Report: {', '.join(map(str, self._written))}"))
            if os.environ.get("GITHUB_ACTIONS") == "true":
                for line in self._annotations():
                    reporter.write_line(line)
        else:
            # A plan, or a session that measured nothing: there is no table to put them under.
            for note in self._notes:
                reporter.write_line(told(f"moeperf: {note}"))
        if reporter.verbosity < 0:
            # The header, which tells them otherwise, is not shown.
            self._remarks.extend(f"moeperf: {line}" for line in told_unknown(os.environ))
        for remark in self._remarks:
            reporter.write_line(told(remark))
        for problem in self._problems:
            reporter.write_line(told(f"moeperf: {problem}"), red=True, bold=True)

    def _write_reports(self) -> None:
        """The verdicts stand whatever happens here; that something could not be written down must not go unseen."""
        view = self.view
        folder = report_folder(self._settings, self._config.invocation_params.dir)
        if folder is not None:
            self._write_to(folder, view)
        self._keep_as_last(folder, view)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            from pytest_moeperf.reporting.github import step_summary

            try:
                with Path(summary).open("a", encoding="utf-8") as file:
                    file.write(step_summary(view))
            except OSError as error:
                self._problems.append(f"$GITHUB_STEP_SUMMARY, {summary}: {error.strerror}")

    def _write_to(self, folder: Path, view: View) -> None:
        from pytest_moeperf.reporting.files import ReportError, write_atomically
        from pytest_moeperf.reporting.github import COMMENT_NAME, pull_request_comment
        from pytest_moeperf.reporting.html import write_html
        from pytest_moeperf.reporting.json import write_json

        try:
            self._written.append(write_json(view, folder))
            self._written.append(write_atomically(folder / COMMENT_NAME, pull_request_comment(view)))
        except ReportError as error:
            self._problems.append(str(error))
            return
        try:
            self._written.append(write_html(view, folder))
        except ReportError as error:
            # Its libraries are an extra, and all that it shows is in the JSON.
            self._remarks.append(str(error))

    def _keep_as_last(self, asked_for: Path | None, view: View) -> None:
        from pytest_moeperf.reporting.files import LAST_REPORT, ReportError
        from pytest_moeperf.reporting.json import FILE_NAME, write_json

        try:
            if asked_for is None:
                write_json(view, Path(self._settings.root) / LAST_REPORT)
            elif (asked_for / FILE_NAME).is_file():
                keep_as_last(asked_for / FILE_NAME, self._settings)
        except (ReportError, OSError) as error:
            # Only asked for by those who come back to it.
            self._remarks.append(f"moeperf: nothing is kept for moeperf accept: {error}")

    def _annotations(self) -> list[str]:
        from pytest_moeperf.reporting.github import annotation_lines

        warn = self._settings.gate.inconclusive == "warn"
        return annotation_lines(self.view, locations=self._locations, warn=warn)
