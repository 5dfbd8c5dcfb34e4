"""docs/commands.md shows what the commands print: each of its ``console`` blocks is run in a folder made for it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_samples import cell, decided, moeperf, outcome, record, report, runs
from test_cli_import import SWEEP

from pytest_moeperf.model.verdict import Verdict

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "commands.md"
BLOCKS = re.findall(r"```console\n\$ moeperf (.*)\n((?s:.*?))```", PAGE.read_text())


def prepare() -> None:
    """What the page's commands find in the working folder."""
    store = Path("baselines")
    record(store, cell(1), days=[2, 3])
    record(store, cell(10), days=[1, 2, 3, 4])
    record(store, cell(64), days=[1])
    record(store, cell(10, "flashinfer_cutedsl"), days=[5])
    slower = outcome(decided(cell(), Verdict.REGRESSION, estimate=-0.06), runs(cell(), day=20, factor=0.94))
    for folder in ("moeperf-report", ".moeperf/last"):
        report(Path(folder), slower)
    Path("sweep.toml").write_text(SWEEP)
    shutil.copytree(ROOT / "examples" / "ceiling", "examples/ceiling")


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_page_shows_what_is_printed(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    prepare()
    assert moeperf(*shlex.split(command)).out == shown


def test_the_page_has_blocks_to_run() -> None:
    assert {command.split()[0] for command, _ in BLOCKS} == {"show", "diff", "accept", "report", "import", "ceiling"}
