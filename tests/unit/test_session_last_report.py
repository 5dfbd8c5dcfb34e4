"""Where the report of an invocation lies, and the commands that go on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.reporting.files import LAST_REPORT
from pytest_moeperf.session.last_report import commands_after, keep_as_last, report_folder

CELL = Cell(backend="triton", workload=Workload(concurrency=1))
ROOT = Path("/work/suite")


def settings(report: str = "", source: str = "command line", *, config_file: str = "moeperf.toml") -> Settings:
    return Settings(root=str(ROOT), report_dir=report, config_file=config_file, provenance={"report_dir": source})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("command line", Path("/work/out")),
        ("environment MOEPERF_REPORT", Path("/work/out")),
        ("file /work/suite/moeperf.toml", ROOT / "out"),
    ],
)
def test_a_path_starts_where_it_was_written(source: str, expected: Path) -> None:
    assert report_folder(settings("out", source), Path("/work")) == expected


def test_no_report_was_asked_for() -> None:
    assert report_folder(settings(), Path("/work")) is None


@pytest.mark.parametrize(
    ("given", "invoked_in", "options"),
    [
        (settings(), ROOT, ""),
        (settings(), ROOT / "below", ""),
        (settings("out"), ROOT, " --from=/work/suite/out"),
        (settings(), Path("/work"), " --from=/work/suite/.moeperf/last --baselines=/work/suite/baselines"),
        # Without a file nothing says to the command where the suite is.
        (settings(config_file=""), ROOT, " --from=/work/suite/.moeperf/last --baselines=/work/suite/baselines"),
    ],
)
def test_the_commands_find_what_was_measured(given: Settings, invoked_in: Path, options: str) -> None:
    commands = commands_after(CELL, stored="", settings=given, invoked_in=invoked_in)
    assert commands == {"accept": f"moeperf accept {CELL.key} --reason='why'{options}", "diff": ""}


def test_a_difference_takes_a_baseline() -> None:
    commands = commands_after(CELL, stored="/work/suite/baselines/a b.json", settings=settings(), invoked_in=ROOT)
    assert commands["diff"] == "moeperf diff '/work/suite/baselines/a b.json' /work/suite/.moeperf/last"


def test_the_report_that_was_asked_for_is_the_last_one_too(tmp_path: Path) -> None:
    written = tmp_path / "out" / "moeperf.json"
    written.parent.mkdir()
    for text in ("first", "second"):
        written.unlink(missing_ok=True)
        written.write_text(text)
        keep_as_last(written, Settings(root=str(tmp_path)))
        assert (tmp_path / LAST_REPORT / "moeperf.json").read_text() == text
