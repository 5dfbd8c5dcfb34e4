"""The progress line on a terminal: rewritten in place, and never half of it left."""

from __future__ import annotations

from typing import Any, cast

import pytest
from test_bench_warmup import run

from pytest_moeperf.campaign import CampaignEvent
from pytest_moeperf.load.driver import LoadProgress
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.session.progress import Progress

CELL = Cell(backend="triton", workload=Workload(concurrency=1, input_len=16, output_len=32))
HALF = LoadProgress(elapsed_s=2.0, total=4, sent=3, finished=2, failed=0, reads=64)
WIDTH = 79


class Terminal:
    """pytest's reporter, as far as it is used here; keeps what is on the screen."""

    isatty = True
    verbosity = 0

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self._column = 0

    def get_plugin(self, name: str) -> Terminal | None:
        return self if name == "terminalreporter" else None

    @property
    def pluginmanager(self) -> Terminal:
        return self

    def ensure_newline(self) -> None:
        if self.lines[-1]:
            self._type("\n")

    def write_line(self, text: str) -> None:
        self._type(f"{text}\n")

    def rewrite(self, text: str, *, erase: bool = False) -> None:
        self._type("\r" + (text.ljust(WIDTH) if erase else text))

    def _type(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self.lines.append("")
            if character in "\r\n":
                self._column = 0
                continue
            line = self.lines[-1].ljust(self._column)
            self.lines[-1] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", str(WIDTH + 1))
    return Terminal()


def event(kind: str, text: str) -> CampaignEvent:
    return CampaignEvent(kind=kind, text=text, elapsed_s=0.0, launches=2, left_s=50.0)


def test_a_run_that_may_be_made_again_is_set_aside_and_any_other_failure_is_invalid(terminal: Terminal) -> None:
    progress = Progress(cast(Any, terminal))
    stall = Check(name="no_stall_in_window", status="fail", repeatable=True)
    lasting = Check(name="backend_evidence", status="fail")
    for made in (run(0, 100.0), run(1, 100.0, stall), run(2, 100.0, stall, lasting)):
        progress.run_ended(made)
    assert [line.rpartition("candidate | ")[2] for line in terminal.lines[:-1]] == [
        "warm-up | 100 tok/s",
        "run 1 | 100 tok/s, set aside: no_stall_in_window",
        "run 2 | INVALID: no_stall_in_window, backend_evidence",
    ]


def test_a_line_takes_the_place_of_the_one_that_was_rewritten(terminal: Terminal) -> None:
    progress = Progress(cast(Any, terminal))
    progress.event(event("launch", "screen: launching the candidate for 1 cell"))
    progress.running(CELL, 1, HALF)
    assert [line.rstrip() for line in terminal.lines] == [
        "moeperf  screen: launching the candidate for 1 cell; judged in about 50 s",
        "moeperf  triton c=1 16/32 | launch 2 run 1, 50 % | 50 s left | 32 events/s",
    ]
    progress.event(event("decided", "triton c=1 16/32: EQUIVALENT"))
    progress.event(event("note", "one more"))
    assert [line.rstrip() for line in terminal.lines] == [
        "moeperf  screen: launching the candidate for 1 cell; judged in about 50 s",
        "moeperf  triton c=1 16/32: EQUIVALENT",
        "moeperf  one more",
        "",
    ]


def test_elsewhere_nothing_is_rewritten(terminal: Terminal) -> None:
    terminal.isatty = False
    progress = Progress(cast(Any, terminal))
    progress.running(CELL, 1, HALF)
    assert terminal.lines == [""]
