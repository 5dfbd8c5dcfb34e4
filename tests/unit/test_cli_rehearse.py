"""``moeperf rehearse``: the noise that is replayed, the targets, the texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_samples import cell, fingerprint, moeperf, record

from pytest_moeperf.cli.rehearsal import Rehearsal, find_missed
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.rehearse import Noise, Rehearsed

HERE = Path("baselines")
QUIET = ("--session-sd=0.1%", "--launch-sd=0.1%")


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_stated_noise_that_hides_nothing() -> None:
    ran = moeperf("rehearse", *QUIET, "--change=0%,-30%", "--change=+30%", "--trials=20", "--launch-time=2min")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
throughput; sd between sessions/launches/runs 0.10/0.10/0.10 %
held against 4 x 2 stored launches (sessions x launches in each); margins: loss
  5 %, gain 3 %; a launch takes 2 min, a run 20 s

change  test fails    launches  minutes  verdicts
none    0 % +- 2.5    1.0       3.3      EQUIVALENT 100 %
-30 %   100 % +- 2.5  5.0       16.7     REGRESSION 100 %
+30 %   100 % +- 2.5  5.0       16.7     UNVERIFIED_WIN 100 %

every target is reached, as far as 20 campaigns a change can tell
"""
    )


def test_a_target_that_is_missed_is_exit_code_1() -> None:
    arguments = ("--session-sd=2.5%", "--launch-sd=1%", "--change=-5%", "--trials=40", "--budget=2min")
    ran = moeperf("rehearse", *arguments)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines()[-1] == "missed: -5 % is caught in 0 % of the campaigns, less than 98 %"
    assert moeperf("rehearse", *arguments, "--caught=0%").code == 0


def test_without_a_baseline_nothing_is_green() -> None:
    arguments = ("--session-sd=2.5%", "--launch-sd=0.1%", "--change=0%", "--trials=5", "--sessions=0", "--no-reference")
    (result,) = json.loads(moeperf("rehearse", *arguments, "--json").out)["results"]
    assert (result["verdicts"], result["failed"]) == ({"NO_BASELINE": 1.0}, 1.0)


@pytest.mark.parametrize(
    ("verdicts", "missed"),
    [
        (
            {"EQUIVALENT": 0.97, "REGRESSION": 0.03},
            ("no change at all is called REGRESSION in 3 % of the campaigns, more than 0.5 %",),
        ),
        (
            {"EQUIVALENT": 0.97, "UNVERIFIED_WIN": 0.03},
            ("no change at all is called UNVERIFIED_WIN in 3 % of the campaigns, more than 0.5 %",),
        ),
        # Within the error of 400 campaigns; and what is merely not decided is no false alarm.
        ({"EQUIVALENT": 0.6, "REGRESSION": 0.01, "INCONCLUSIVE": 0.39}, ()),
    ],
)
def test_a_false_alarm_is_a_missed_target(verdicts: dict[str, float], missed: tuple[str, ...]) -> None:
    result = Rehearsed(change=0.0, trials=400, verdicts=verdicts, failed=0.03, launches=1.0, minutes=1.0)
    rehearsal = Rehearsal(
        subject="",
        metric="throughput",
        noise=Noise(session_sd=0.01, launch_sd=0.01),
        sessions=4,
        launches=2,
        launch_s=60.0,
        run_s=20.0,
        gate=GateSettings(),
        target_caught=0.98,
        target_false_alarms=0.005,
        results=(result,),
    )
    assert find_missed(rehearsal) == missed


def test_a_stored_cell_brings_its_noise_its_times_and_its_shape() -> None:
    record(HERE, cell(), days=[1, 2, 3, 4])
    ran = moeperf("rehearse", "triton/c10", "--change=-10%", "--trials=5", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert (found["subject"], found["metric"]) == ("triton c=10 512/128", "throughput")
    assert (found["sessions"], found["launches"]) == (4, 2)
    assert found["launch_s"] == pytest.approx(12.15)
    assert found["run_s"] == pytest.approx(40 * 128 / 2210, rel=0.05)
    assert 0.001 < found["noise"]["launch_sd"] < 0.01
    assert len(found["noise"]["run_pool"]) == 24
    assert [result["verdicts"] for result in found["results"]] == [{"REGRESSION": 1.0}]


def test_stated_parts_replace_stored_ones() -> None:
    record(HERE, cell(), days=[1, 2, 3, 4])
    flags = "--session-sd=3% --launch-sd=2% --run-sd=1% --sessions=5 --launches=3 --launch-time=1h --run-time=1min"
    flags += " --regression=8% --win=7% --mode=screen --metric=tpot --trials=1 --change=0%"
    found = json.loads(moeperf("rehearse", "triton/c10", *flags.split(), "--json").out)
    noise, gate = found["noise"], found["gate"]
    assert (noise["session_sd"], noise["launch_sd"], noise["run_sd"]) == (0.03, 0.02, 0.01)
    assert (noise["launch_pool"], noise["run_pool"]) == ([], [])
    assert (found["sessions"], found["launches"], found["launch_s"], found["run_s"]) == (5, 3, 3600, 60)
    assert (gate["regression"], gate["win"], gate["mode"], found["metric"]) == (0.08, 0.07, "screen", "tpot")


def test_the_configured_margins_are_rehearsed() -> None:
    Path("moeperf.toml").write_text('regression = "8%"\nproven = "2%"\n')
    found = json.loads(moeperf("rehearse", *QUIET, "--trials=1", "--change=0%", "--json").out)
    assert (found["gate"]["regression"], found["gate"]["proven"]) == (0.08, 0.02)
    ran = moeperf("rehearse", *QUIET, "--regression=1%")
    assert (ran.code, ran.err) == (
        2,
        "moeperf rehearse: --regression: 1.000% is not above the margin 2.000% at which a change is proven\n"
        "  allowed: more than [tool.moeperf] proven\n",
    )


def test_no_noise_is_a_usage_error() -> None:
    ran = moeperf("rehearse", "--session-sd=1%")
    assert (ran.code, ran.err) == (
        2,
        "moeperf rehearse: CELL: there is no noise to replay\n"
        "  allowed: a stored CELL, or --session-sd and --launch-sd\n",
    )


def test_two_baselines_of_one_name_are_told_apart() -> None:
    record(HERE, cell(), days=[1])
    record(HERE, cell(), days=[2], given=fingerprint(cell(), driver="590.1"))
    ran = moeperf("rehearse", "triton/c10")
    assert (ran.code, ran.err) == (
        2,
        "moeperf rehearse: triton/c10: names 2 baselines in baselines\n"
        "  allowed: triton/c10-in512-out128@14cd, triton/c10-in512-out128@8529\n",
    )
    assert moeperf("rehearse", "triton/c10-in512-out128@14cd", "--trials=1", "--change=0%").code == 0


def test_a_metric_that_is_not_stored_is_named() -> None:
    record(HERE, cell(), days=[1])
    ran = moeperf("rehearse", "triton/c10", "--metric=goodput")
    assert (ran.code, ran.err) == (
        2,
        "moeperf rehearse: --metric: the stored runs of triton c=10 512/128 have no goodput\n",
    )
