"""What verification makes of wins, of equal servers, and of hosts that move while it measures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

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
Host = Callable[[random.Random], Sequence[float]]
"""How far a host has moved (of ln) at each launch of a verification."""
CLAIMED = 0.7
"""So large that four pairs claim it, whatever the truth of the verification is."""


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
    """Nothing is stored: a screen and two blocks of pairs claim the win."""
    settings = GateSettings(runs_per_launch=1, verify_wins=True)
    state = gate.start(PLAN, settings=settings, capabilities=gate.Capabilities(reference=True, relaunch=True))
    state = gate.with_match(state, BaselineMatch(baseline=None))
    state = gate.judge(with_launch(state, 0, CANDIDATE, pair=None, effect=source.gauss(CLAIMED, launch_sd)))
    for block in range(2):
        if state.phase == gate.VERIFY:
            break
        for number, arm in enumerate((REFERENCE, CANDIDATE, CANDIDATE, REFERENCE), start=4 * block):
            effect = source.gauss(CLAIMED if arm == CANDIDATE else 0.0, launch_sd)
            state = with_launch(state, number, arm, pair=number // 2, effect=effect)
        state = gate.judge(state)
    return state


def moved_once(step: float) -> Host:
    """By ``step`` (of ln), before any launch but the first."""

    def host(source: random.Random) -> Sequence[float]:
        moves_at = source.randrange(1, len(VERIFY_ORDER))
        return [step if number >= moves_at else 0.0 for number in range(len(VERIFY_ORDER))]

    return host


def dipped(size: float) -> Host:
    """Slower and slower until the middle, then back."""
    middle = (len(VERIFY_ORDER) - 1) / 2
    return lambda _: [-size * (1 - ((number - middle) / middle) ** 2) for number in range(len(VERIFY_ORDER))]


def moved_for_a_while(size: float) -> Host:
    """Up or down, for two to five launches."""

    def host(source: random.Random) -> Sequence[float]:
        begin, length = source.randrange(len(VERIFY_ORDER)), source.randrange(2, 6)
        moved = size if source.random() < 0.5 else -size
        return [moved if begin <= number < begin + length else 0.0 for number in range(len(VERIFY_ORDER))]

    return host


def verified(*, win: float, launch_sd: float, step: float = 0.0, host: Host | None = None, trials: int = 300) -> float:
    """Share of VERIFIED_WIN, on a host that moves once by ``step``, or as ``host`` says."""
    source = random.Random(11)
    count = 0
    for _ in range(trials):
        state = claimed(source, launch_sd=launch_sd)
        assert state.phase == gate.VERIFY
        moved = (host or moved_once(step))(source)
        for number, (arm, pair) in enumerate(zip(VERIFY_ORDER, VERIFY_PAIRS, strict=True)):
            effect = source.gauss(win if arm == CANDIDATE else 0.0, launch_sd) + moved[number]
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
    """But for a step before the last launch, a candidate's, which puts a quarter of itself into the estimate."""
    assert verified(win=CLAIMED, launch_sd=0.01, step=step) <= 1 / 7 + 0.06


@pytest.mark.parametrize("launch_sd", [0.003, 0.01])
@pytest.mark.parametrize("host", [dipped(0.04), moved_for_a_while(0.08)], ids=["dip", "while"])
def test_a_movement_that_comes_back_makes_no_win(host: Host, launch_sd: float) -> None:
    assert verified(win=0.0, launch_sd=launch_sd, host=host) <= 0.004
