"""Noise: each part has its size, depends on its own keys alone, and comes back with the same seed."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from pytest_moeperf.engines.simulated.noise import Noise
from pytest_moeperf.engines.simulated.profile import NoiseLevels

QUIET = NoiseLevels(session_sd=0.0, launch_sd=0.0, run_sd=0.0, step_sd=0.0)


def noise(
    levels: NoiseLevels, *, seed: int = 0, session: str = "s", launch: str = "l", profile: str = "triton"
) -> Noise:
    return Noise(levels, seed=seed, session_key=session, launch_key=launch, profile_name=profile)


def test_no_noise_is_exactly_one() -> None:
    quiet = noise(QUIET)
    quiet.start_run()
    assert [quiet.next_factor() for _ in range(3)] == [1.0, 1.0, 1.0]


def test_session_launch_and_run_have_the_sds_that_were_asked_for() -> None:
    levels = NoiseLevels(session_sd=0.02, launch_sd=0.01, run_sd=0.005, step_sd=0.0)
    many = [noise(levels, session=f"s{i}", launch=f"l{i}") for i in range(2000)]
    for each in many:
        each.start_run()
    # The standard error of an sd from 2000 draws is 1.6 %; the draws are seeded, so this can't flake.
    assert stdev(each.session for each in many) == pytest.approx(0.02, rel=0.05)
    assert stdev(each.launch for each in many) == pytest.approx(0.01, rel=0.05)
    assert stdev(each.run for each in many) == pytest.approx(0.005, rel=0.05)
    assert fmean(each.session for each in many) == pytest.approx(0.0, abs=0.0015)
    assert stdev(math.log(each.next_factor()) for each in many) == pytest.approx(
        math.hypot(0.02, 0.01, 0.005), rel=0.05
    )


def test_step_noise_is_ar1_with_the_marginal_sd() -> None:
    series = noise(NoiseLevels(session_sd=0.0, launch_sd=0.0, run_sd=0.0, step_sd=0.03, step_ar1=0.8))
    series.start_run()
    steps = [math.log(series.next_factor()) for _ in range(20000)]
    mean = fmean(steps)
    centred = [step - mean for step in steps]
    lag1 = sum(a * b for a, b in pairwise(centred)) / sum(a * a for a in centred)
    assert stdev(steps) == pytest.approx(0.03, rel=0.06)
    assert lag1 == pytest.approx(0.8, abs=0.02)


def test_the_session_is_shared_by_backends_and_the_launch_is_not() -> None:
    levels = NoiseLevels()
    one, other = noise(levels, profile="triton"), noise(levels, profile="flashinfer_cutlass")
    assert one.session == other.session
    assert one.launch != other.launch
    assert noise(levels, session="t").session != one.session
    assert noise(levels, launch="m").session == one.session
    assert noise(levels, launch="m").launch != one.launch
    assert noise(levels, seed=1).session != one.session


def test_runs_differ_and_are_reproduced_by_their_index() -> None:
    def runs() -> list[tuple[int, float, float]]:
        each = noise(NoiseLevels())
        seen = []
        for _ in range(3):
            each.start_run()
            seen.append((each.run_index, each.run, each.next_factor()))
        return seen

    first = runs()
    assert runs() == first
    assert [index for index, _, _ in first] == [1, 2, 3]
    assert len({run for _, run, _ in first}) == 3
