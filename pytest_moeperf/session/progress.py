"""The progress line, while tests are captured and nothing else is printed."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_moeperf.campaign import CampaignEvent
from pytest_moeperf.load.driver import LoadProgress
from pytest_moeperf.model.run import Run
from pytest_moeperf.model.server import ServerProgress, WaitNotice
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing import told
from pytest_moeperf.units import format_duration, format_quantity

REFRESH_S = 0.5
"""On a terminal, where the line is rewritten. Elsewhere a line a run is printed."""
START_REFRESH_S = 30.0


class Progress:
    """Says nothing on an xdist worker, which has no terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last_s = 0.0
        self._last_phase = ""
        self._launches = 0
        self._ends_s: float | None = None
        self._rewritten = False

    def event(self, event: CampaignEvent) -> None:
        self._launches = event.launches
        self._ends_s = None if event.left_s is None else time.monotonic() + event.left_s
        if event.kind == "launch" and event.left_s:
            self._line(f"moeperf  {event.text}; judged in about {format_duration(event.left_s)}")
        elif event.kind != "run":
            self._line(f"moeperf  {event.text}")

    def run_ended(self, run: Run) -> None:
        state = f"{format_quantity(run.metrics.out_tps_steady or run.metrics.out_tps or 0)} tok/s"
        if run.failures:
            # Such as a stall: made again, or believed if it recurs. What can't be repeated ends the measurement.
            repeatable = all(check.repeatable for check in run.failures)
            failed = ", ".join(check.name for check in run.failures)
            state = f"{state}, set aside: {failed}" if repeatable else f"INVALID: {failed}"
        kind = "warm-up" if run.index == 0 else f"run {run.index}"
        self._line(f"moeperf  {run.cell.label} | {run.launch.arm} | {kind} | {state}")

    def running(self, cell: Cell, index: int, progress: LoadProgress) -> None:
        if self._is_terminal() and self._due(REFRESH_S):
            from pytest_moeperf.reporting.terminal import progress_line

            line = progress_line(
                cell,
                launch=self._launches,
                run=index,
                done=progress.finished / progress.total if progress.total else 0.0,
                events_s=progress.reads / progress.elapsed_s if progress.elapsed_s > 0 else None,
                left_s=None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic()),
                width=shutil.get_terminal_size().columns - 1,
            )
            self._rewrite(line)

    def starting(self, spec: ServerSpec, progress: ServerProgress) -> None:
        phase = f"{spec.label} | {progress.phase}"
        if phase == self._last_phase and not self._due(START_REFRESH_S):
            return
        self._last_phase, self._last_s = phase, time.monotonic()
        self._line(f"moeperf  {phase} | {progress.elapsed_s:.0f} s")

    def waiting(self, notice: WaitNotice) -> None:
        if notice.once or self._due(START_REFRESH_S):
            self._line(f"moeperf  {notice.text()}")

    def _due(self, interval_s: float) -> bool:
        now_s = time.monotonic()
        if now_s - self._last_s < interval_s:
            return False
        self._last_s = now_s
        return True

    def _reporter(self) -> pytest.TerminalReporter | None:
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def _uncaptured(self) -> Any:
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        return capture.global_and_fixture_disabled() if capture is not None else nullcontext()

    def _is_terminal(self) -> bool:
        reporter = self._reporter()
        return reporter is not None and bool(reporter.isatty)

    def _line(self, text: str) -> None:
        reporter = self._reporter()
        if reporter is None or reporter.verbosity < 0:
            return
        with self._uncaptured():
            if self._rewritten:
                # Over what stands there, from its first column on.
                reporter.rewrite("", erase=True)
                reporter.rewrite("")
                self._rewritten = False
            else:
                reporter.ensure_newline()
            reporter.write_line(told(text))

    def _rewrite(self, text: str) -> None:
        reporter = self._reporter()
        if reporter is None or reporter.verbosity < 0:
            return
        with self._uncaptured():
            reporter.rewrite(told(text), erase=True)
            self._rewritten = True
