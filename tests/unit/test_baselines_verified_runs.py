"""Of a verified win the verification is recorded, not the discovery."""

from __future__ import annotations

from dataclasses import replace

from test_bench_warmup import run

from pytest_moeperf.baselines.recording import runs_to_record
from pytest_moeperf.model.run import REFERENCE, Launch, Run
from pytest_moeperf.model.verdict import Decision, Verdict


def of_launch(launch: str, arm: str = "candidate") -> Run:
    made = run(1, 100.0)
    return replace(made, id=f"{launch}/1", launch=Launch(id=launch, session="s", arm=arm))


RUNS = (of_launch("found"), of_launch("verified"), of_launch("held-against", REFERENCE))


def recorded(verdict: Verdict) -> list[str]:
    decision = Decision(cell=RUNS[0].cell, verdict=verdict, verification_launches=("verified",))
    return [one.launch.id for one in runs_to_record(RUNS, decision)]


def test_only_the_verification_of_a_verified_win_is_recorded() -> None:
    assert recorded(Verdict.VERIFIED_WIN) == ["verified"]


def test_otherwise_every_run_of_the_candidate_is() -> None:
    assert recorded(Verdict.EQUIVALENT) == ["found", "verified"]
