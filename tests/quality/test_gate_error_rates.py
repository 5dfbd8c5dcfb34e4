"""The claims about the gate's errors and cost, smaller than in ``benchmarks/gate_cost.py`` and seeded: they fail if the code moves.

Margins are three Monte-Carlo standard errors or so beyond the claim.
"""

from __future__ import annotations

import math

import pytest

from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import Noise, Rehearsed, rehearse

PLAN = CellPlan(cell=Cell(backend="b", workload=Workload(concurrency=64)), bounds=(Bound(metric="throughput"),))
QUIET = Noise(session_sd=0.005, launch_sd=0.005)
NOISY = Noise(session_sd=0.025, launch_sd=0.01, run_sd=0.011, drift_sd=0.004)
PAIR_15 = Noise(session_sd=0.025, launch_sd=0.015 / math.sqrt(2))
SCREEN = GateSettings(mode="screen")
WINS = (Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN)
NOT_WORSE = (Verdict.EQUIVALENT, Verdict.NON_INFERIOR)
FIXED_DESIGN = 16


def rehearsed(
    noise: Noise,
    change: float,
    *,
    trials: int,
    sessions: int = 8,
    settings: GateSettings = SCREEN,
    reference: bool = True,
) -> Rehearsed:
    return rehearse(
        PLAN,
        noise=noise,
        settings=settings,
        change=change,
        sessions=sessions,
        launches=2,
        trials=trials,
        seed=11,
        reference=reference,
    )


CONFIRM = GateSettings()


def test_the_screen_alone_decides_a_quiet_host_and_lets_no_loss_through() -> None:
    equal = rehearsed(QUIET, 0.0, trials=2000, sessions=4)
    assert equal.share(*NOT_WORSE) >= 0.94
    assert equal.launches == 1
    worse = rehearsed(QUIET, -0.05, trials=4000, sessions=4)
    assert worse.share(*NOT_WORSE) <= 0.016


@pytest.mark.parametrize(("session_sd", "launch_sd"), [(0.01, 0.01), (0.025, 0.01)])
def test_the_screen_lets_no_loss_through_on_wider_hosts_either(session_sd: float, launch_sd: float) -> None:
    worse = rehearsed(Noise(session_sd=session_sd, launch_sd=launch_sd), -0.05, trials=3000)
    assert worse.share(*NOT_WORSE) <= 0.017


@pytest.mark.parametrize(
    ("noise", "sessions", "cost"),
    [(QUIET, 4, 0.15), (NOISY, 8, 0.75), (PAIR_15, 8, 0.75)],
    ids=["quiet", "noisy", "pair"],
)
def test_equal_servers_neither_fail_nor_win_at_a_fraction_of_a_fixed_design(
    noise: Noise, sessions: int, cost: float
) -> None:
    equal = rehearsed(noise, 0.0, trials=1500, sessions=sessions, settings=CONFIRM)
    assert equal.share(Verdict.REGRESSION) <= 0.005
    assert equal.share(*WINS) <= 0.005
    assert equal.launches / FIXED_DESIGN <= cost


def test_losses_are_caught_at_a_pair_sd_of_1_5_percent() -> None:
    five = rehearsed(PAIR_15, -0.05, trials=1500, settings=CONFIRM)
    assert five.share(Verdict.REGRESSION) >= 0.975
    ten = rehearsed(PAIR_15, -0.10, trials=1500, settings=CONFIRM)
    assert ten.share(Verdict.REGRESSION) >= 0.998
    assert ten.launches < 7, "most are gross enough for one block"


def test_a_win_is_never_waved_through_unverified() -> None:
    better = rehearsed(NOISY, 0.10, trials=800, settings=CONFIRM)
    assert better.share(Verdict.UNVERIFIED_WIN) >= 0.98
    assert better.share(Verdict.VERIFIED_WIN) == 0


def test_a_collapse_is_called_by_one_block() -> None:
    half = rehearsed(NOISY, -0.50, trials=400, settings=CONFIRM)
    assert half.share(Verdict.REGRESSION) == 1
    assert half.launches <= 5.1, "a block whose spread is not the stored one stands alone, in 1 or 2 of 100"


def test_stored_runs_alone_do_not_cry_wolf_where_sessions_differ() -> None:
    equal = rehearsed(NOISY, 0.0, trials=2000, settings=CONFIRM, reference=False)
    assert equal.share(Verdict.REGRESSION) <= 0.006
    assert equal.share(*WINS) <= 0.006


def test_a_provisional_store_does_not_cry_wolf_at_twice_the_assumed_session_sd() -> None:
    noise = Noise(session_sd=0.02, launch_sd=0.01)
    found = rehearse(
        PLAN, noise=noise, settings=CONFIRM, change=0.0, sessions=1, launches=2, trials=1500, seed=11, reference=False
    )
    assert found.share(Verdict.REGRESSION) <= 0.01


def test_a_verified_win_is_nearly_never_noise() -> None:
    settings = GateSettings(verify_wins=True)
    equal = rehearsed(NOISY, 0.0, trials=1000, settings=settings)
    assert equal.share(*WINS) <= 0.003
    better = rehearsed(QUIET, 0.10, trials=300, sessions=4, settings=settings)
    assert better.share(Verdict.VERIFIED_WIN) >= 0.97
