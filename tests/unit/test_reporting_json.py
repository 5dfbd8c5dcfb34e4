"""The JSON report: complete, strict, free of secrets, and written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reporting_samples import equivalent, heading, settings, sweep, sweep_view

from pytest_moeperf.model.codec import from_plain
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.files import ReportError, write_atomically
from pytest_moeperf.reporting.json import as_plain, write_json
from pytest_moeperf.reporting.view import build_view


def refuse_constant(text: str) -> float:
    raise AssertionError(f"{text} is not JSON")


def written(tmp_path: Path) -> dict[str, Any]:
    path = write_json(sweep_view(), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "moeperf.json"
    data: dict[str, Any] = json.loads(path.read_text("utf-8"), parse_constant=refuse_constant)
    return data


def test_all_raw_runs_come_back_as_they_were(tmp_path: Path) -> None:
    data = written(tmp_path)
    outcomes = [from_plain(Outcome, outcome) for outcome in data["outcomes"]]
    assert tuple(outcomes) == sweep_view().outcomes
    assert [len(outcome.runs) for outcome in outcomes] == [3, 3, 3, 27, 27, 27]
    assert [outcome.runs[0].metrics for outcome in outcomes] == [outcome.runs[0].metrics for outcome in sweep()]


def test_it_says_what_it_is_and_under_which_settings(tmp_path: Path) -> None:
    data = written(tmp_path)
    assert (data["schema"], data["started_at"]) == (1, "2026-11-28T01:52:07+00:00")
    assert data["heading"]["reference"] == "flashinfer_cutlass"
    assert data["verdicts"] == {"INCOMPARABLE": 1, "REGRESSION": 2, "UNVERIFIED_WIN": 1, "EQUIVALENT": 2}
    assert data["environment"]["kernel"] == "6.14.11"
    lines = {line["name"]: (line["value"], line["source"]) for line in data["settings"]}
    assert lines["backends"] == ("flashinfer_cutedsl", "command line")
    assert lines["report_dir"] == ("moeperf-report", "MOEPERF_REPORT")
    assert lines["gate.regression"] == ("0.05", "default")


def test_no_secret_is_in_it(tmp_path: Path) -> None:
    text = json.dumps(written(tmp_path))
    assert "sk-1234" not in text
    assert "hf_abc" not in text
    assert "--api-key=***" in text


def test_a_number_that_is_not_finite_is_null() -> None:
    outcome = equivalent()
    judged = outcome.decision.results[0]
    assert judged.interval is not None
    endless = replace(judged, interval=replace(judged.interval, upper=float("inf")))
    view = build_view(
        [replace(outcome, decision=replace(outcome.decision, results=(endless,)))],
        heading=heading(),
        settings=settings(),
        started_at="",
    )
    data = as_plain(view)
    assert data["outcomes"][0]["decision"]["results"][0]["interval"]["upper"] is None
    assert data["rows"][0]["change"]["upper"] is None


def test_a_full_disk_is_a_clear_error_and_the_old_report_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "moeperf.json"
    path.write_text("old", "utf-8")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError) as caught:
        write_json(sweep_view(), tmp_path)
    assert str(caught.value) == (
        f"{path}: the report can't be written: No space left on device\n"
        "  the verdicts of this session stand; only this report is missing\n"
        "  next: give --perf-report a folder that can be written, with some space left"
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["moeperf.json"]
    assert path.read_text("utf-8") == "old"


def test_a_folder_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    with pytest.raises(ReportError, match=r"taken/a\.txt: the report can't be written: (File exists|Not a directory)"):
        write_atomically(tmp_path / "taken" / "a.txt", "x")


def test_a_report_may_be_read_by_others(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "a.txt", "x").stat().st_mode & 0o777 == 0o644
