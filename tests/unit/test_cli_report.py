"""``moeperf report``: what it draws from the JSON is what the invocation would have drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import moeperf
from reporting_samples import sweep_view

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.cli.report_file import read_view
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.reporting.arms import STORED, arms_of
from pytest_moeperf.reporting.figures import Change
from pytest_moeperf.reporting.github import pull_request_comment
from pytest_moeperf.reporting.html import render_html
from pytest_moeperf.reporting.json import write_json
from pytest_moeperf.reporting.view import View

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def view() -> View:
    """With stored runs, which the page draws."""
    made = sweep_view()
    first, *rest = made.rows
    change = Change(estimate=0.1, lower=-math.inf, upper=math.inf, level=0.95, n=2)
    made = replace(made, rows=(replace(first, change=change), *rest))
    (entry, *_) = FileStore(ROOT / "examples/h200/baselines").all()
    return replace(made, baselines={made.outcomes[-1].decision.cell.key: entry.baseline})


def test_the_view_comes_back_whole(tmp_path: Path, view: View) -> None:
    assert read_view(write_json(view, tmp_path)) == view


def test_page_and_comment_are_those_of_the_invocation(
    tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_json(view, "moeperf-report")
    ran = moeperf("report", "moeperf-report")
    assert (ran.code, ran.out, ran.err) == (0, "moeperf-report/comment.md\nmoeperf-report/moeperf.html\n", "")
    assert Path("moeperf-report/moeperf.html").read_text("utf-8") == render_html(view)
    assert Path("moeperf-report/comment.md").read_text("utf-8") == pull_request_comment(view)
    assert (
        moeperf("report", "moeperf-report/moeperf.json", "--to", "drawn").out
        == "drawn/comment.md\ndrawn/moeperf.html\n"
    )


def test_the_stored_runs_are_drawn(view: View) -> None:
    outcome = view.outcomes[-1]
    shown = arms_of(replace(outcome, runs=tuple(run for run in outcome.runs if run.launch.arm == "candidate")), view)
    assert outcome.verdict is not Verdict.INCOMPARABLE
    assert [arm.name for arm in shown] == ["candidate", STORED]
    assert len(shown[1].points) > 1


def test_a_report_of_an_earlier_build_is_drawn_without_what_it_lacks(tmp_path: Path, view: View) -> None:
    path = write_json(view, tmp_path)
    data = json.loads(path.read_text())
    for name in ("findings", "remarks", "baselines"):
        del data[name]
    path.write_text(json.dumps(data))
    assert moeperf("report", str(tmp_path)).code == 0
    assert "REGRESSION" in (tmp_path / "moeperf.html").read_text()


@pytest.mark.parametrize(("text", "why"), [("{}", "it has no outcomes"), ('{"outcomes": [], "schema": 1}', "heading")])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "moeperf.json").write_text(text)
    ran = moeperf("report", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert f"moeperf report: {tmp_path / 'moeperf.json'}: is no report: " in ran.err
    assert why in ran.err
    assert not (tmp_path / "moeperf.html").exists()
