"""Two groups of launches, warm-up, autocorrelation, change points."""

from __future__ import annotations

import builtins
import math
import random
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.stats.changepoints import change_points
from pytest_moeperf.stats.shape import two_groups
from pytest_moeperf.stats.warmup import cold_runs, trend_gone


def test_two_plain_groups_are_found() -> None:
    found = two_groups([0.00, 0.101, 0.001, 0.1, 0.002, 0.102])
    assert found is not None
    assert [len(group) for group in found] == [3, 3]


def test_one_outlier_is_not_a_group_and_three_launches_are_too_few() -> None:
    assert two_groups([0.0, 0.001, 0.002, 0.001, 0.5]) is None
    assert two_groups([0.0, 0.1, 0.1]) is None
    assert two_groups([0.0, 0.001, 0.019, 0.0195]) is None


@pytest.mark.parametrize("n", [4, 8, 16])
def test_normal_launches_rarely_look_like_two_groups(n: int) -> None:
    source = random.Random(n)
    hits = sum(two_groups([source.gauss(0, 0.02) for _ in range(n)]) is not None for _ in range(2000))
    assert hits / 2000 < 0.1 if n == 4 else hits / 2000 < 0.02


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ([5033.0], False),
        ([5033.0, 12141.0], False),
        ([5033.0, 12141.0, 11350.0], True),
        ([731.0, 732.0], True),
        ([100.0, 120.0, 150.0, 180.0], False),
        ([50.0, 100.0, 130.0, 112.0], True),
        ([0.0, 0.0], False),
        ([math.nan, 1.0], False),
        ([-1.0, 1.0], False),
    ],
)
def test_a_warm_up_trend_is_gone_when_runs_agree(values: list[float], gone: bool) -> None:
    assert trend_gone(values, tolerance=0.1) is gone


@pytest.mark.parametrize(
    ("values", "cold"),
    [
        ([28.0, 230.0, 300.0, 290.0, 304.0], 2),
        ([6415.4, 12139.7, 12498.6], 1),
        ([6000.0, 6415.4, 12139.7, 12498.6], 2),
        ([300.0, 301.0], 0),
        ([200.0, 301.0], 0),
        ([1.0], 0),
        ([1.0, 2.0, 4.0, 8.0], 0),
        ([300.0, 310.0, 290.0, 250.0, 300.0, 301.0], 0),
        ([0.0, 300.0, 301.0], 0),
    ],
)
def test_leading_runs_far_below_all_later_ones_are_cold(values: list[float], cold: int) -> None:
    assert cold_runs(values, tolerance=0.05) == cold


@pytest.mark.parametrize("sd", [0.01, 0.03, 0.15])
def test_noise_is_seldom_taken_for_cold_runs(sd: float) -> None:
    source = random.Random(5)
    launches = [[math.exp(source.gauss(0, sd)) for _ in range(3)] for _ in range(4000)]
    assert sum(cold_runs(values, tolerance=0.05) > 0 for values in launches) < 0.1 * len(launches)


def test_a_step_in_a_history_is_found_where_it_is() -> None:
    source = random.Random(1)
    series = [source.gauss(0, 0.01) for _ in range(20)] + [source.gauss(-0.08, 0.01) for _ in range(15)]
    (found,) = change_points(series)
    assert found.index == 20
    assert found.change == pytest.approx(-0.08, abs=0.01)


def test_noise_alone_and_short_series_have_no_change_points() -> None:
    source = random.Random(2)
    assert change_points([source.gauss(0, 0.01) for _ in range(40)]) == ()
    assert change_points([1.0, 2.0]) == ()
    assert change_points([1.0] * 10) == ()


def test_a_missing_library_is_a_clear_usage_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ruptures(name: str, *rest: Any, **named: Any) -> Any:
        if name == "ruptures":
            raise ModuleNotFoundError("No module named 'ruptures'", name="ruptures")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_ruptures)
    with pytest.raises(UsageProblem) as raised:
        change_points([1.0, 2.0, 3.0, 4.0])
    assert str(raised.value) == (
        "change points: ruptures is not installed\n  next: pip install 'pytest-moeperf[report]'"
    )
