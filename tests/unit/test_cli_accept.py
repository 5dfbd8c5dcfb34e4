"""``moeperf accept``: what it records, what it refuses, and that a refusal writes nothing."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import cell, decided, fingerprint, moeperf, outcome, record, report, runs

from pytest_moeperf.baselines import FileStore
from pytest_moeperf.cli.report_file import read_report
from pytest_moeperf.model.run import REFERENCE, Check
from pytest_moeperf.model.verdict import Verdict

HERE = Path("baselines")
CELL = "triton/c10-in512-out128"
REASON = "slower since the security fix in 0.5.15"


@pytest.fixture(autouse=True)
def at_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in HERE.rglob("*.json")}


def test_a_regression_is_accepted_with_its_reason() -> None:
    path = record(HERE, cell(), days=[1, 2])
    made = runs(cell(), day=20, factor=0.94)
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.REGRESSION, estimate=-0.06), made))
    ran = moeperf("accept", CELL, "--reason", REASON)
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
triton c=10 512/128: moved, 6 runs
  throughput -6.1 %, -6.1 % from the first level
  tpot +6.5 %, +6.5 % from the first level
  baselines/simulated/moe-64x8/triton/c10-in512-out128@85291ea3.json
"""
    )
    (entry,) = FileStore(HERE).all()
    assert entry.path == path
    event = entry.baseline.history[-1]
    assert (event.kind, event.reason, event.by, event.accepted, event.runs) == (
        "moved",
        REASON,
        f"moeperf accept, report {hashlib.sha256(Path('.moeperf/last/moeperf.json').read_bytes()).hexdigest()[:12]}",
        True,
        6,
    )
    assert {run.id for run in entry.baseline.runs} == {run.id for run in made}
    assert len(entry.baseline.anchor) == 6


def test_a_first_baseline_is_recorded_where_the_report_and_a_flag_say() -> None:
    report(Path("somewhere"), outcome(decided(cell(), Verdict.NO_BASELINE), runs(cell(), day=20)))
    ran = moeperf("accept", "c10", "--reason=first", "--from=somewhere", "--baselines=kept")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "triton c=10 512/128: recorded, 6 runs"
    (entry,) = FileStore("kept").all()
    assert (entry.baseline.engine, entry.baseline.model) == ("simulated", "moe-64x8")


def test_another_fingerprint_gets_a_baseline_of_its_own() -> None:
    record(HERE, cell(), days=[1])
    other = fingerprint(cell(), driver="590.1")
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.INCOMPARABLE), runs(cell(), day=20, given=other)))
    before = files()
    assert moeperf("accept", CELL, "--reason=new driver").code == 0
    assert len(FileStore(HERE).all()) == 2
    assert before.items() <= files().items()


def test_the_runs_of_two_tests_of_one_cell_count_once() -> None:
    record(HERE, cell(), days=[1])
    made = runs(cell(), day=20)
    decision = decided(cell(), Verdict.EQUIVALENT)
    report(Path(".moeperf/last"), outcome(decision, made), outcome(decision, made))
    assert moeperf("accept", CELL, "--reason=more of the same").out.startswith(
        "triton c=10 512/128: extended, 6 runs\n"
    )


@pytest.mark.parametrize(
    ("verdict", "checks", "said"),
    [
        (
            Verdict.UNVERIFIED_WIN,
            (),
            "  A win that nobody verified does not move a baseline: throughput +6.2 %.\n"
            "  next: pytest -m perf --backend=triton --perf-verify-wins -k 'test_decode[triton-10]'\n",
        ),
        (
            Verdict.INVALID,
            (Check(name="no_failed_requests", status="fail", message="1 of 40 failed"),),
            "  Only valid runs make a baseline. A validity check failed.\n"
            "  next: fix that, then pytest -m perf --backend=triton --update-baselines -k 'test_decode[triton-10]'\n",
        ),
    ],
)
def test_what_is_refused_leaves_the_store_as_it_was(verdict: Verdict, checks: tuple[Check, ...], said: str) -> None:
    record(HERE, cell(), days=[1])
    before = files()
    made = runs(cell(), day=20, factor=1.06, checks=checks)
    report(Path(".moeperf/last"), outcome(decided(cell(), verdict, estimate=0.06), made))
    ran = moeperf("accept", CELL, "--reason", REASON)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "triton c=10 512/128: not accepted\n" + said
    assert files() == before


def test_the_same_runs_are_not_accepted_twice() -> None:
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.NO_BASELINE), runs(cell(), day=20)))
    assert moeperf("accept", CELL, "--reason", REASON).code == 0
    before = files()
    ran = moeperf("accept", CELL, "--reason", REASON)
    assert ran.code == 1
    assert "  All of these runs are in the baseline already.\n" in ran.err
    assert files() == before


def test_a_verified_win_moves_the_level_by_the_runs_of_its_verification_alone() -> None:
    record(HERE, cell(), days=[1])
    made = runs(cell(), day=20, factor=1.06)
    beside = [
        replace(run, id=f"{run.id}-r", launch=replace(run.launch, id=f"{run.launch.id}-r", arm=REFERENCE))
        for run in runs(cell(), day=20)
    ]
    found = [
        replace(run, id=f"{run.id}-d", launch=replace(run.launch, id=f"{run.launch.id}-d"))
        for run in runs(cell(), day=20, factor=1.2)
    ]
    launches = tuple(dict.fromkeys(run.launch.id for run in made))
    win = replace(decided(cell(), Verdict.VERIFIED_WIN, estimate=0.06), verification_launches=launches)
    report(Path(".moeperf/last"), outcome(win, [*found, *beside, *made]))
    assert moeperf("accept", CELL, "--reason", REASON).out.startswith("triton c=10 512/128: moved, 6 runs\n")
    (entry,) = FileStore(HERE).all()
    assert {run.id for run in entry.baseline.runs} == {run.id for run in made}


def test_of_several_tests_of_one_cell_the_gravest_verdict_counts() -> None:
    made = runs(cell(), day=20)
    report(
        Path(".moeperf/last"),
        outcome(decided(cell(), Verdict.EQUIVALENT), made),
        outcome(decided(cell(), Verdict.INVALID), made),
    )
    ran = moeperf("accept", CELL, "--reason", REASON)
    assert ran.code == 1
    assert "  Only valid runs make a baseline. A validity check failed.\n" in ran.err
    assert not HERE.exists()


def test_runs_from_before_the_last_move_are_refused() -> None:
    record(HERE, cell(), days=[1])
    for day in (20, 21):
        made = runs(cell(), day=day, factor=0.94)
        report(Path(f"day{day}"), outcome(decided(cell(), Verdict.REGRESSION, estimate=-0.06), made))
    assert moeperf("accept", CELL, "--reason", REASON, "--from=day20").code == 0
    before = files()
    ran = moeperf("accept", CELL, "--reason", REASON, "--from=day21")
    assert ran.code == 1
    assert "after these runs were measured" in " ".join(ran.err.split())
    assert "  next: pytest -m perf --backend=triton -k 'test_decode[triton-10]'\n" in ran.err
    assert files() == before


def test_a_cell_must_be_the_only_one_of_its_name() -> None:
    report(
        Path(".moeperf/last"),
        *(outcome(decided(cell(n), Verdict.NO_BASELINE), runs(cell(n), day=20)) for n in (1, 10)),
    )
    ran = moeperf("accept", "triton", "--reason", REASON)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "moeperf accept: triton: names 2 cells of .moeperf/last\n"
        "  allowed: triton/c1-in512-out128, triton/c10-in512-out128\n"
    )
    assert moeperf("accept", "marlin", "--reason", REASON).err.startswith(
        "moeperf accept: marlin: names no cell of .moeperf/last\n"
    )
    assert moeperf("accept", "triton/c1-in512-out128", "--reason", REASON).code == 0


def test_a_digest_is_that_of_the_baseline_it_must_be() -> None:
    path = record(HERE, cell(), days=[1])
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.NON_INFERIOR), runs(cell(), day=20)))
    before = files()
    ran = moeperf("accept", f"{CELL}@e7b1", "--reason", REASON)
    assert (ran.code, ran.out, files()) == (2, "", before)
    assert ran.err == (
        "moeperf accept: triton/c10-in512-out128@e7b1: these runs were made under another fingerprint than @e7b1\n"
        "  allowed: triton/c10-in512-out128@85291ea3\n"
        "  next: moeperf show triton/c10-in512-out128\n"
    )
    assert path.endswith("@85291ea3.json")
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.UNVERIFIED_WIN, estimate=0.06), runs(cell(), day=20)))
    refused = moeperf("accept", f"{CELL}@e7b1", "--reason", REASON)
    assert (refused.code, refused.err) == (2, ran.err), "what that baseline refuses is not the question"
    report(Path(".moeperf/last"), outcome(decided(cell(), Verdict.NON_INFERIOR), runs(cell(), day=20)))
    assert moeperf("accept", f"{CELL}@8529", "--reason", REASON).code == 0
    assert files() != before


def test_a_reason_must_say_something() -> None:
    assert moeperf("accept", CELL).code == 2
    ran = moeperf("accept", CELL, "--reason", "  ")
    assert (ran.code, ran.err) == (
        2,
        "moeperf accept: --reason: is empty\n  allowed: a sentence that the history keeps\n",
    )


def test_the_configuration_says_where_reports_go() -> None:
    Path("moeperf.toml").write_text('report = "out/perf"\n')
    report(Path("out/perf"), outcome(decided(cell(), Verdict.NO_BASELINE), runs(cell(), day=20)))
    assert moeperf("accept", CELL, "--reason", REASON).code == 0


def test_an_interval_with_an_open_end_survives_the_report() -> None:
    decision = decided(cell(), Verdict.INCONCLUSIVE)
    (result,) = decision.results
    assert result.interval is not None
    for lower, upper in ((-math.inf, 0.1), (-0.1, math.inf)):
        open_end = replace(result, interval=replace(result.interval, lower=lower, upper=upper))
        report(Path("r"), outcome(replace(decision, results=(open_end,)), runs(cell(), day=20)))
        (found,) = read_report(Path("r"))
        assert found.decision.results == (open_end,)
