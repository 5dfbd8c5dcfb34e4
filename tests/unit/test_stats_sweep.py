"""A sweep that contradicts itself, and those that don't."""

from __future__ import annotations

import math

import pytest

from pytest_moeperf.stats.sweep import sweep_oddities

BASELINE = [(1, 10.36), (2, 19.29), (10, 38.46), (64, 218.74), (256, 718.83), (1024, 1603.04)]
CANDIDATE = [(1, 10.07), (2, 19.24), (10, 64.29), (64, 249.23), (256, 515.58), (1024, 796.93)]
MEANING = (
    "other conditions than the rest, or something that happens at this batch size alone; measure it again before "
    "anything is held against it"
)


def linear(*concurrencies: int, a_ms: float = 5.0, b_ms: float = 0.1) -> list[tuple[int, float]]:
    return [(c, 1000 * c / (a_ms + b_ms * c)) for c in concurrencies]


def test_a_baseline_that_dips_at_ten_is_odd_in_itself() -> None:
    assert sweep_oddities(BASELINE) == (
        f"c=10 gives 3.85 tok/s a stream, 35 % below the 5.96 that c=2 (9.64) and c=64 (3.42) lead to: {MEANING}",
    )


def test_what_was_held_against_it_is_not() -> None:
    assert sweep_oddities(CANDIDATE) == ()


@pytest.mark.parametrize(("a_ms", "b_ms"), [(5.0, 0.0), (5.0, 0.001), (5.0, 0.1), (0.001, 1.0)])
def test_a_step_that_grows_linearly_is_never_odd(a_ms: float, b_ms: float) -> None:
    assert sweep_oddities(linear(1, 2, 10, 64, 256, 1024, a_ms=a_ms, b_ms=b_ms)) == ()


def test_order_does_not_matter() -> None:
    assert sweep_oddities(BASELINE[::-1]) == sweep_oddities(BASELINE)


@pytest.mark.parametrize(("factor", "is_odd"), [(0.86, False), (0.84, True)])
def test_a_dent_is_odd_beyond_its_tolerance(factor: float, is_odd: bool) -> None:
    trend = math.sqrt(100.0 * 25.0)
    assert bool(sweep_oddities([(1, 100.0), (4, 4 * trend * factor), (16, 16 * 25.0)])) is is_odd


def test_a_point_that_is_too_fast_is_named_itself_and_not_its_neighbours() -> None:
    points = linear(1, 2, 10, 64)
    points[2] = (10, points[2][1] * 1.4)
    assert sweep_oddities(points) == (
        f"c=10 gives 233 tok/s a stream, 21 % above the 192 of c=2, though more streams share a step: {MEANING}",
    )


def test_two_dents_are_both_found() -> None:
    points = linear(1, 2, 4, 8, 16, 32, 64, b_ms=0.0)
    for at in (2, 5):
        points[at] = (points[at][0], points[at][1] * 0.6)
    assert [text.split()[0] for text in sweep_oddities(points)] == ["c=4", "c=32"]


@pytest.mark.parametrize("points", [[], [(1, 10.0)], [(1, 10.0), (64, 100.0)]])
def test_too_few_points_make_no_trend(points: list[tuple[int, float]]) -> None:
    assert sweep_oddities(points) == ()


@pytest.mark.parametrize("points", [[(1, 1.0), (1, 2.0)], [(1, 0.0)], [(0, 1.0)], [(1, math.nan)]])
def test_what_is_no_sweep_is_refused(points: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="not a sweep"):
        sweep_oddities(points)
