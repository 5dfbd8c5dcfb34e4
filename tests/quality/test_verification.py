"""What verification makes of wins, of equal servers, and of hosts that move while it measures."""

from __future__ import annotations

import math
import random

import pytest

from pytest_moeperf import gate
from pytest_moeperf.campaign.run import VERIFY_ORDER, VERIFY_PAIRS
from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import LEVEL, SOUND, metrics_of

PLAN = CellPlan(cell=Cell(backend="b", workload=Workload(concurrency=64)), bounds=(Bound(metric="throughput"),))
CLAIMED = 0.7
"""So large that a block of four launches claims it, whatever the truth of the verification is."""


def with_launch(state: gate.CellState, number: int, arm: str, *, pair: int | None, effect: float) -> gate.CellState:
    launch = Launch(id=f"{state.phase}{number}", session="now", arm=arm)
    run = Run(
        id=launch.id,
        cell=PLAN.cell,
        launch=launch,
        index=0,
        started_at="",
        metrics=metrics_of(LEVEL + effect, PLAN.bounds),
        client=ClientReport(clock="kernel"),
        checks=SOUND,
    )
    return gate.add_launch(state, launch=launch, runs=[run], pair=pair)


def claimed(source: random.Random, *, launch_sd: float) -> gate.CellState:
    """Nothing is stored: a screen and one block of pairs claim the win."""
    settings = GateSettings(runs_per_launch=1, verify_wins=True)
    state = gate.start(PLAN, settings=settings, capabilities=gate.Capabilities(reference=True, relaunch=True))
    state = gate.with_match(state, BaselineMatch(baseline=None))
    state = gate.judge(with_launch(state, 0, CANDIDATE, pair=None, effect=source.gauss(CLAIMED, launch_sd)))
    for number, arm in enumerate((REFERENCE, CANDIDATE, CANDIDATE, REFERENCE)):
        effect = source.gauss(CLAIMED if arm == CANDIDATE else 0.0, launch_sd)
        state = with_launch(state, number, arm, pair=number // 2, effect=effect)
    return gate.judge(state)


def verified(*, win: float, launch_sd: float, step: float = 0.0, trials: int = 300) -> float:
    """Share of VERIFIED_WIN. The host moves by ``step`` (of ln) once, before any launch but the first."""
    source = random.Random(11)
    count = 0
    for _ in range(trials):
        state = claimed(source, launch_sd=launch_sd)
        assert state.phase == gate.VERIFY
        moves_at = source.randrange(1, len(VERIFY_ORDER))
        for number, (arm, pair) in enumerate(zip(VERIFY_ORDER, VERIFY_PAIRS, strict=True)):
            effect = source.gauss(win if arm == CANDIDATE else 0.0, launch_sd) + (step if number >= moves_at else 0.0)
            state = with_launch(state, number, arm, pair=pair, effect=effect)
        decision = gate.judge(state).decision
        assert decision is not None
        count += decision.verdict is Verdict.VERIFIED_WIN
    return count / trials


@pytest.mark.parametrize(("win", "launch_sd", "least"), [(0.10, 0.01, 0.99), (0.10, 0.02, 0.90), (0.40, 0.02, 0.95)])
def test_a_real_win_is_verified_in_the_noise_of_real_servers(win: float, launch_sd: float, least: float) -> None:
    """Launches of one backend on one H200 differ by 0.8 to 2 %, but where the CPU is the limit."""
    assert verified(win=win, launch_sd=launch_sd) >= least


@pytest.mark.parametrize("launch_sd", [0.002, 0.01, 0.02])
@pytest.mark.parametrize("step", [0.0, 0.02, -0.04, 0.08])
def test_a_host_that_moves_makes_no_win(launch_sd: float, step: float) -> None:
    assert verified(win=0.0, launch_sd=launch_sd, step=step) <= 0.02


@pytest.mark.parametrize("step", [math.log(1.2), -math.log(1.2)])
def test_what_a_host_that_moves_by_a_fifth_measured_is_not_recorded_as_verified(step: float) -> None:
    assert verified(win=CLAIMED, launch_sd=0.01, step=step) == 0
