"""Rehearsals: noise from stored runs, injected changes, the real gate."""

from __future__ import annotations

import math
import random

import pytest

from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import Noise, noise_of, rehearse, stored_baseline

THROUGHPUT = Bound(metric="throughput")
PLAN = CellPlan(cell=Cell(backend="b", workload=Workload(concurrency=64)), bounds=(THROUGHPUT, Bound(metric="tpot")))
SETTINGS = GateSettings()
QUIET = Noise(session_sd=0.005, launch_sd=0.005)


def baseline_of(noise: Noise, sessions: int, launches: int, runs: int = 3) -> Baseline:
    source = random.Random(8)
    return stored_baseline(
        noise, cell=PLAN.cell, bounds=PLAN.bounds, source=source, sessions=sessions, launches=launches, runs=runs
    )


def test_a_loss_is_caught_and_equal_servers_pass_at_the_stated_cost() -> None:
    equal = rehearse(PLAN, noise=QUIET, settings=SETTINGS, change=0.0, sessions=4, launches=2, trials=100)
    assert equal.failed == 0
    assert equal.launches < 3
    assert equal.minutes == pytest.approx(equal.launches * (60 + 4 * 20) / 60, rel=0.01)
    worse = rehearse(PLAN, noise=QUIET, settings=SETTINGS, change=-0.08, sessions=4, launches=2, trials=100)
    assert worse.share(Verdict.REGRESSION) > 0.97
    assert sum(worse.verdicts.values()) == pytest.approx(1)
    assert 0 < worse.error(worse.failed) < 0.06


def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (
        rehearse(PLAN, noise=QUIET, settings=SETTINGS, change=-0.03, sessions=4, launches=2, trials=20, seed=5)
        for _ in range(2)
    )
    assert first == second


def test_without_a_store_and_without_a_reference_nothing_passes() -> None:
    found = rehearse(
        PLAN, noise=QUIET, settings=SETTINGS, change=0.0, sessions=0, launches=0, trials=5, reference=False
    )
    assert found.verdicts == {Verdict.NO_BASELINE.value: 1.0}


def test_an_attached_server_is_launched_once() -> None:
    found = rehearse(
        PLAN,
        noise=QUIET,
        settings=SETTINGS,
        change=-0.3,
        sessions=4,
        launches=2,
        trials=10,
        reference=False,
        relaunch=False,
    )
    assert found.launches == 1
    assert found.share(Verdict.REGRESSION) == 1


def test_noise_is_read_from_stored_runs() -> None:
    truth = Noise(session_sd=0.02, launch_sd=0.01, run_sd=0.006)
    found = noise_of(baseline_of(truth, 60, 4), THROUGHPUT, settings=SETTINGS)
    assert found.session_sd == pytest.approx(0.02, rel=0.3)
    assert found.launch_sd == pytest.approx(0.01, rel=0.2)
    assert found.run_sd == pytest.approx(0.006, rel=0.1)
    spread = math.sqrt(sum(value**2 for value in found.launch_pool) / len(found.launch_pool))
    assert spread == pytest.approx(0.01, rel=0.2)
    assert len(found.run_pool) == 60 * 4 * 3


def test_a_thin_store_falls_back_on_what_is_assumed() -> None:
    found = noise_of(baseline_of(QUIET, 1, 1), THROUGHPUT, settings=SETTINGS)
    assert (found.session_sd, found.launch_sd) == (0.01, 0.01)
    assert found.launch_pool == ()


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="change must be above -1"):
        rehearse(PLAN, noise=QUIET, settings=SETTINGS, change=-1.0, sessions=1, launches=1)
