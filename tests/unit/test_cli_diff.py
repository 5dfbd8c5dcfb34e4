"""``moeperf diff``: baselines and reports against each other."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import cell, decided, fingerprint, moeperf, outcome, record, report, runs

from pytest_moeperf.baselines import stored_runs
from pytest_moeperf.cli.levels import change_between
from pytest_moeperf.model.baseline import StoredRun
from pytest_moeperf.model.run import Check
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict

HERE = Path("baselines")


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_report_against_the_baseline() -> None:
    path = record(HERE, cell(), days=[1, 2, 3, 4])
    made = runs(cell(), day=20, factor=0.94)
    report(Path("moeperf-report"), outcome(decided(cell(), Verdict.REGRESSION), made))
    ran = moeperf("diff", path, "moeperf-report")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
A  baselines/simulated/moe-64x8/triton/c10-in512-out128@85291ea3.json
B  moeperf-report

triton c=10 512/128
  runs of 4 sessions x 2 launches and 1 session x 2 launches
  metric      A           B           B against A [95 % CI]
  throughput  2211 tok/s  2073 tok/s  -6.2 % [-7.2 %, -5.3 %]
  tpot        4.52 ms     4.82 ms     +6.6 % [+5.6 %, +7.7 %]
  interval: prediction interval, 4 sessions x 2 launches stored
  fingerprint: equal in every field
"""
    )
    assert moeperf("diff", path, "moeperf-report/moeperf.json").out == ran.out.replace(
        "B  moeperf-report\n", "B  moeperf-report/moeperf.json\n"
    )


def test_two_baselines_that_are_not_comparable() -> None:
    first = record(HERE, cell(), days=[1, 2])
    second = record(
        HERE, cell(), days=[9, 10, 11], given=fingerprint(cell(), driver="590.1", kernel="6.14.8"), factor=0.9
    )
    ran = moeperf("diff", first, second)
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
A  baselines/simulated/moe-64x8/triton/c10-in512-out128@85291ea3.json
B  baselines/simulated/moe-64x8/triton/c10-in512-out128@d8abc1eb.json

triton c=10 512/128
  runs of 2 sessions x 2 launches and 3 sessions x 2 launches
  metric      A           B           B against A [95 % CI]
  throughput  2207 tok/s  1987 tok/s  -10.0 % [-11.2 %, -8.7 %]
  tpot        4.53 ms     5.03 ms     +11.1 % [+9.6 %, +12.6 %]
  interval: Welch's t over the means of 2 and 3 sessions
  fingerprint: 2 fields differ, 1 of them blocking: the two are not comparable
    blocking: GPU driver: 580.95 in A, 590.1 in B
    noted: kernel: 6.14.11 in A, 6.14.8 in B
"""
    )


def test_two_reports_pair_cells_by_name_then_by_workload() -> None:
    report(
        Path("old"),
        outcome(decided(cell(1), Verdict.EQUIVALENT), runs(cell(1), day=1)),
        outcome(decided(cell(10), Verdict.EQUIVALENT), runs(cell(10), day=1)),
        outcome(decided(cell(64), Verdict.EQUIVALENT), runs(cell(64), day=1)),
    )
    marlin = cell(10, "marlin")
    report(
        Path("new"),
        outcome(decided(cell(1), Verdict.EQUIVALENT), runs(cell(1), day=2)),
        outcome(decided(marlin, Verdict.EQUIVALENT), runs(marlin, day=2)),
    )
    ran = moeperf("diff", "old", "new")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
A  old
B  new

triton c=1 512/128
  runs of 1 session x 2 launches and 1 session x 2 launches
  metric      A          B          B against A [95 % CI]
  throughput  358 tok/s  364 tok/s  +1.7 % [-1.7 %, +5.1 %]
  tpot        2.79 ms    2.75 ms    -1.6 % [-4.8 %, +1.7 %]
  interval: prediction interval, 1 session x 2 launches stored, session sd
    assumed 1 %, launch sd assumed 1 % in part
  fingerprint: equal in every field

triton c=10 512/128 -> marlin c=10 512/128
  runs of 1 session x 2 launches and 1 session x 2 launches
  metric      A           B           B against A [95 % CI]
  throughput  2208 tok/s  2206 tok/s  -0.1 % [-3.4 %, +3.3 %]
  tpot        4.53 ms     4.53 ms     +0.1 % [-3.2 %, +3.5 %]
  interval: prediction interval, 1 session x 2 launches stored, session sd
    assumed 1 %, launch sd assumed 1 % in part
  fingerprint: 1 field differs, the two are comparable
    noted: --moe-runner-backend: triton in A, marlin in B

only in A: triton c=64 512/128
"""
    )


def test_a_cell_that_both_reports_have_is_no_partner_for_another() -> None:
    for folder, backends in (("old", ("triton", "marlin")), ("new", ("marlin", "cutlass"))):
        cells = [cell(10, backend) for backend in backends]
        report(Path(folder), *(outcome(decided(of, Verdict.EQUIVALENT), runs(of, day=1)) for of in cells))
    titles = [line for line in moeperf("diff", "old", "new").out.splitlines() if line.startswith(("triton", "marlin"))]
    assert titles == ["marlin c=10 512/128", "triton c=10 512/128 -> cutlass c=10 512/128"]


def test_void_runs_take_no_part() -> None:
    void = runs(cell(), day=2, factor=0.1, checks=[Check(name="no_failed_requests", status="fail")])
    report(Path("old"), outcome(decided(cell(), Verdict.EQUIVALENT), runs(cell(), day=1)))
    report(Path("new"), outcome(decided(cell(), Verdict.INVALID), void))
    ran = moeperf("diff", "old", "new")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "moeperf diff: new: has no valid run in it, so there is nothing to compare\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("not json", "is no report: Expecting value: line 1 column 1 (char 0)"),
        ('{"generator": "pytest-moeperf 9"}', "is no report: it has no outcomes"),
        (
            '{"generator": "pytest-moeperf 9", "outcomes": [], "schema": 99}',
            "has schema 99; this version of pytest-moeperf reads 1",
        ),
        ('{"generator": "pytest-moeperf 9", "outcomes": [{}], "schema": 1}', "is no report: "),
    ],
)
def test_what_is_no_report_is_said(text: str, problem: str) -> None:
    Path("new").mkdir()
    Path("new/moeperf.json").write_text(text)
    ran = moeperf("diff", "new", "new")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"moeperf diff: new/moeperf.json: {problem}")


def test_a_missing_report_says_how_to_make_one() -> None:
    assert moeperf("diff", "old", "new").err == (
        "moeperf diff: old: no report can be read: No such file or directory\n"
        "  next: pytest -m perf --backend=NAME --perf-report=DIR writes one\n"
    )


def test_json() -> None:
    path = record(HERE, cell(), days=[1, 2])
    report(Path("new"), outcome(decided(cell(), Verdict.EQUIVALENT), runs(cell(), day=3)))
    found = json.loads(moeperf("diff", path, "new", "--json").out)
    assert (found["a"], found["b"]) == (path, "new")
    (pair,) = found["pairs"]
    assert (pair["sessions"], pair["launches"], pair["differences"]) == ([2, 1], [4, 2], [])
    throughput, tpot = pair["changes"]
    assert throughput["interval"]["lower"] < throughput["interval"]["estimate"] < throughput["interval"]["upper"]
    # TPOT here is the inverse of the throughput, so its effect is the same.
    assert tpot["interval"]["estimate"] == pytest.approx(throughput["interval"]["estimate"], abs=1e-6)


def test_the_interval_turns_round_with_the_sides() -> None:
    gate = GateSettings()
    many = stored_runs([run for day in (1, 2, 3, 4) for run in runs(cell(), day=day)])
    one = stored_runs(runs(cell(), day=9, factor=1.05))
    there, back = change_between(many, one, "throughput", gate), change_between(one, many, "throughput", gate)
    assert (back.estimate, back.lower, back.upper) == (-there.estimate, -there.upper, -there.lower)
    assert there.lower < math.log(1.05) < there.upper


def test_several_sessions_on_both_sides_are_compared_by_their_means() -> None:
    gate = GateSettings()
    first = stored_runs([run for day in (1, 2, 3) for run in runs(cell(), day=day)])
    second = stored_runs([run for day in (5, 6, 7, 8) for run in runs(cell(), day=day, factor=1.05)])
    found = change_between(first, second, "throughput", gate)
    assert found.method == "Welch's t over the means of 3 and 4 sessions"
    assert found.lower < math.log(1.05) < found.upper
    assert found.df is not None
    assert 2 <= found.df <= 5
    # Session means that agree to the last digit still are not known better than a server repeats itself.
    same = change_between(
        first[:6] + _moved(first[:6], "other"), second[:6] + _moved(second[:6], "other"), "throughput", gate
    )
    assert same.upper - same.lower > 0.004


def _moved(kept: tuple[StoredRun, ...], session: str) -> tuple[StoredRun, ...]:
    return tuple(replace(run, id=f"{run.id}x", launch=f"{run.launch}x", session=session) for run in kept)
