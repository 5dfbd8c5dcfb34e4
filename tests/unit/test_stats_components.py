"""Variance components and the prediction interval against hand calculation and simulation."""

from __future__ import annotations

import math
import random

import pytest

from pytest_moeperf.stats.components import SD_FLOOR, components
from pytest_moeperf.stats.effects import LaunchMean, launch_mean, launch_means, usable
from pytest_moeperf.stats.quantiles import t_quantile, t_upper_tail
from pytest_moeperf.stats.stored import Prediction, predict

ASSUMED = {"assumed_session_sd": 0.01, "assumed_launch_sd": 0.01}


def launches_of(sessions: list[list[float]]) -> list[LaunchMean]:
    return [
        LaunchMean(session=f"s{number}", launch=f"s{number}l{index}", mean=value, runs=1)
        for number, session in enumerate(sessions)
        for index, value in enumerate(session)
    ]


def world(source: random.Random, session_sd: float, launch_sd: float, sessions: int, launches: int) -> list[LaunchMean]:
    levels = [source.gauss(0, session_sd) for _ in range(sessions)]
    return launches_of([[level + source.gauss(0, launch_sd) for _ in range(launches)] for level in levels])


def test_quantiles_are_students() -> None:
    assert t_quantile(0.975, 10) == pytest.approx(2.228139, abs=1e-6)
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert t_upper_tail(2.228139, 10) == pytest.approx(0.025, abs=1e-6)
    assert t_upper_tail(1.959964, math.inf) == pytest.approx(0.025, abs=1e-6)


def test_runs_are_gathered_by_launch() -> None:
    found = launch_means([("s", "a", 1.0), ("s", "b", 5.0), ("s", "a", 2.0), ("s", "a", 3.0)])
    assert [(item.launch, item.mean, item.runs, item.squares) for item in found] == [
        ("a", 2.0, 3, 2.0),
        ("b", 5.0, 1, 0.0),
    ]


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf])
def test_values_without_a_logarithm_are_not_usable(value: float | None) -> None:
    assert not usable(value)


def test_balanced_components_are_the_anova_ones() -> None:
    found = components(launches_of([[1.0, 3.0], [4.0, 8.0], [7.0, 7.0]]))
    assert found.centre == pytest.approx(5.0)
    assert (found.session_df, found.launch_df, found.run_df) == (2, 3, 0)
    assert found.session_ms == pytest.approx((9 + 1 + 4) / 2)
    assert found.launch_ms == pytest.approx((2 + 8 + 0) / 3)
    assert found.session_var == pytest.approx(7 - 10 / 3 / 2)
    assert found.launch_var == pytest.approx(10 / 3)


def test_run_variance_is_taken_out_of_the_launch_variance() -> None:
    first = launch_mean([1.0, 3.0], session="s", launch="a")
    second = launch_mean([6.0, 6.0], session="s", launch="b")
    found = components([first, second])
    assert found.run_ms == pytest.approx(1.0)
    assert found.launch_ms == pytest.approx(8.0)
    assert found.launch_var == pytest.approx(8.0 - 0.5 * 1.0)
    assert found.session_var == 0.0


def test_unbalanced_components_are_unbiased() -> None:
    source = random.Random(5)
    session, launch = [], []
    for _ in range(1500):
        levels = [source.gauss(0, 0.02) for _ in range(5)]
        shape = (1, 2, 3, 4, 2)
        data = [[level + source.gauss(0, 0.01) for _ in range(n)] for level, n in zip(levels, shape, strict=True)]
        found = components(launches_of(data))
        session.append(found.session_ms - found.inverse_launches * found.launch_ms)
        launch.append(found.launch_ms)
    assert sum(session) / 1500 == pytest.approx(4e-4, rel=0.05)
    assert sum(launch) / 1500 == pytest.approx(1e-4, rel=0.05)


def test_intervals_of_the_sds_cover_the_truth() -> None:
    source = random.Random(6)
    hits = [0, 0]
    for _ in range(600):
        found = components(world(source, 0.02, 0.01, 6, 3))
        low, high = found.session_sd_interval()
        hits[0] += low <= 0.02 <= high
        low, high = found.launch_sd_interval()
        hits[1] += low <= 0.01 <= high
    assert [hit / 600 for hit in hits] == [pytest.approx(0.9, abs=0.04)] * 2


def test_one_launch_knows_nothing_about_its_variance() -> None:
    found = components(launches_of([[1.0]]))
    assert found.launch_sd_interval() == (0.0, math.inf)
    assert found.session_sd_interval() == (0.0, math.inf)
    with pytest.raises(ValueError, match="no launch"):
        components([])


def predicted(stored: list[LaunchMean], new: list[LaunchMean], *, provisional: bool = False) -> Prediction:
    return predict(components(stored), new, provisional=provisional, **ASSUMED)


def test_the_prediction_interval_is_the_published_formula() -> None:
    stored = launches_of([[0.00, 0.01], [0.02, 0.04], [-0.01, 0.01], [0.03, 0.02]])
    parts = components(stored)
    k, r = 4, 2
    between, within = r * parts.session_ms, parts.launch_ms
    a = (1 + 1 / k) / r
    b = 1 + 1 / (k * r) - a
    variance = a * between + b * within
    df = variance**2 / ((a * between) ** 2 / (k - 1) + (b * within) ** 2 / (k * (r - 1)))
    found = predicted(stored, launches_of([[0.05]]))
    assert found.estimate == pytest.approx(0.05 - parts.centre)
    assert found.se == pytest.approx(math.sqrt(variance))
    assert found.df == pytest.approx(df)
    interval = found.interval(0.01)
    assert interval.upper - interval.estimate == pytest.approx(t_quantile(0.99, df) * math.sqrt(variance))
    assert interval.method == "prediction interval, 4 sessions x 2 launches stored"
    assert not found.assumed


def test_more_launches_than_a_stored_session_has_never_shrink_the_degrees_of_freedom() -> None:
    stored = launches_of([[0.0, 0.02], [0.001, 0.019], [0.0, 0.021], [0.002, 0.018]])
    few = predicted(stored, launches_of([[0.01, 0.012]]))
    many = predicted(stored, launches_of([[0.01, 0.012, 0.008, 0.011, 0.009, 0.01, 0.01, 0.011]]))
    assert many.df == few.df == pytest.approx(3)
    assert many.se == pytest.approx(math.sqrt(1.25 * 0.5) * many.launch_sd)


def test_coverage_of_the_prediction_interval() -> None:
    source = random.Random(11)
    below = above = 0
    trials = 3000
    for _ in range(trials):
        stored = world(source, 0.01, 0.01, 5, 3)
        level = source.gauss(0, 0.01)
        new = launches_of([[level + source.gauss(0, 0.01)]])
        interval = predicted(stored, new).interval(0.05)
        below += interval.upper < 0
        above += interval.lower > 0
    assert below / trials == pytest.approx(0.05, abs=0.015)
    assert above / trials == pytest.approx(0.05, abs=0.015)


def test_a_provisional_store_says_what_it_assumes() -> None:
    found = predicted(launches_of([[0.0]]), launches_of([[0.01]]), provisional=True)
    assert found.assumed
    assert found.se == pytest.approx(0.02)
    assert found.warnings == ("session sd assumed 1 %", "launch sd assumed 1 %")
    assert found.method.endswith("1 session x 1 launch stored, session sd assumed 1 %, launch sd assumed 1 %")


def test_the_noise_of_runs_within_one_launch_is_never_the_whole_uncertainty() -> None:
    quiet = [launch_mean([0.0, 0.0001, -0.0001], session="s", launch="a")]
    new = [launch_mean([0.03, 0.0301, 0.0299], session="t", launch="b")]
    found = predict(components(quiet), new, provisional=True, **ASSUMED)
    assert found.se > 0.019


def test_noisy_provisional_launches_widen_what_is_assumed() -> None:
    found = predicted(launches_of([[0.0, 0.1, -0.1]]), launches_of([[0.0]]), provisional=True)
    assert found.se > 0.1


def test_two_or_three_sessions_are_weighed_with_the_assumption() -> None:
    stored = launches_of([[0.0, 0.0], [0.001, 0.001]])
    found = predicted(stored, launches_of([[0.0]]))
    assert found.assumed
    assert 0.005 < found.se < 0.02
    assert "session sd assumed 1 % in part" in found.method


def test_identical_runs_get_a_floor_and_say_so() -> None:
    found = predicted(launches_of([[0.0, 0.0]] * 4), launches_of([[0.0]]))
    assert found.se == pytest.approx(SD_FLOOR * math.sqrt(1 + 1 / 8))
    assert found.warnings == ("the runs differ by less than 0.1% from launch to launch; 0.1% is taken instead",)


def test_the_stated_power_is_kept() -> None:
    source = random.Random(3)
    caught = 0
    trials = 1500
    for _ in range(trials):
        stored = world(source, 0.005, 0.005, 8, 3)
        loss = predicted(stored, launches_of([[0.0]])).caught(0.01)
        level = source.gauss(0, 0.005) + source.gauss(0, 0.005) - loss
        caught += predicted(stored, launches_of([[level]])).interval(0.01).upper < 0
    assert caught / trials > 0.92


def test_launches_that_would_decide() -> None:
    stored = launches_of([[0.0, 0.02], [0.001, 0.019], [0.0, 0.021], [0.002, 0.018]])
    found = predicted(stored, launches_of([[0.01]]))
    assert found.launches_for_width(0.01, 10.0) == 1
    assert found.launches_for_width(0.01, found.half_width(0.01) * 0.9) is not None
    assert found.launches_for_width(0.01, 1e-6) is None
    assert found.launches_for_width(0.01, 0.0) is None


def test_intervals_of_the_sds_hold_the_true_ones() -> None:
    """Two-sided 90 %; Tukey and Williams' for the sd between sessions is an approximation."""
    source = random.Random(5)
    session_sd, launch_sd, trials = 0.02, 0.01, 800
    found = [components(world(source, session_sd, launch_sd, 5, 3)) for _ in range(trials)]
    held = [0, 0]
    for parts in found:
        for place, ((low, high), true) in enumerate(
            ((parts.session_sd_interval(), session_sd), (parts.launch_sd_interval(), launch_sd))
        ):
            held[place] += low <= true <= high
    assert 0.87 <= held[0] / trials <= 0.93
    assert 0.87 <= held[1] / trials <= 0.93


def test_without_repetition_an_sd_is_not_known() -> None:
    found = components(launches_of([[1.0]]))
    assert found.session_sd_interval() == found.launch_sd_interval() == found.run_sd_interval() == (0.0, math.inf)
