"""Boundaries, paired intervals, Holm and the sign-flip check."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from pytest_moeperf.stats.boundaries import LOOKS, TABLE, constants, derive, increments, spent
from pytest_moeperf.stats.holm import step_down
from pytest_moeperf.stats.paired import (
    PAIR_SD_FLOOR,
    block_interval,
    fixed_interval,
    look_constant,
    pairs,
    pairs_to_decide,
    sequential_interval,
)
from pytest_moeperf.stats.quantiles import t_quantile
from pytest_moeperf.stats.signflip import sign_flip_p, smallest_p


def test_the_error_is_spent_by_the_last_look() -> None:
    assert spent(0.05, LOOKS)[-1] == pytest.approx(0.05)
    assert sum(increments(0.04, LOOKS)) == pytest.approx(0.04)
    assert increments(0.05, LOOKS)[0] == pytest.approx(0.05 * 0.2689, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.05, 0.02, 0.005])
def test_the_shipped_constants_can_be_derived_again(alpha: float) -> None:
    assert derive((alpha,), LOOKS, log2_samples=15, seed=4)[alpha] == pytest.approx(TABLE[alpha], rel=0.01)


def test_the_shipped_constants_keep_their_error_in_a_plain_simulation() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(200_000, 8))
    crossed = np.zeros(len(values), bool)
    for n, c in zip(LOOKS, TABLE[0.05], strict=True):
        part = values[:, :n]
        crossed |= part.mean(axis=1) > c * part.std(axis=1, ddof=1) / math.sqrt(n)
    assert crossed.mean() == pytest.approx(0.05, abs=0.0025)


def test_published_values() -> None:
    assert TABLE[0.05] == pytest.approx((4.06, 2.82, 2.15), abs=0.01)


def test_constants_between_the_rows_are_between_them() -> None:
    between = constants(0.035)
    assert all(high < value < low for low, value, high in zip(TABLE[0.03], between, TABLE[0.04], strict=True))
    assert constants(0.035)[0] == pytest.approx(t_quantile(1 - spent(0.035, LOOKS)[0], 3), rel=0.002)
    assert all(tiny > least for tiny, least in zip(constants(1e-5), TABLE[0.0001], strict=True))


def test_other_looks_are_derived_when_asked_for() -> None:
    found = constants(0.05, (4, 6, 8, 10, 12))
    assert found == pytest.approx((5.10, 3.60, 2.84, 2.39, 2.05), abs=0.04)


def test_fewer_pairs_than_planned_cost_more() -> None:
    assert look_constant(0, 0.05, LOOKS, 4) == TABLE[0.05][0]
    assert look_constant(1, 0.05, LOOKS, 5) > TABLE[0.05][1]


def test_a_paired_interval() -> None:
    data = pairs([-0.05, -0.07, -0.06, -0.06])
    found = sequential_interval(data, look=0, alpha=0.05, looks=LOOKS)
    sd = math.sqrt(0.0002 / 3)
    assert found.estimate == pytest.approx(-0.06)
    assert found.upper == pytest.approx(-0.06 + TABLE[0.05][0] * sd / 2)
    assert found.level == pytest.approx(0.9)
    assert (found.n, found.method) == (4, "paired, look 1 of 3")
    fixed = fixed_interval(data, alpha=0.05, method="m")
    assert fixed.upper == pytest.approx(-0.06 + t_quantile(0.95, 3) * sd / 2)


def test_identical_pairs_get_a_floor() -> None:
    data = pairs([0.02, 0.02, 0.02, 0.02])
    assert (data.sd, data.floored) == (PAIR_SD_FLOOR, True)
    assert fixed_interval(data, alpha=0.05, method="m").warnings


def test_one_block_leans_on_the_store_as_far_as_its_own_spread_agrees() -> None:
    calm, wild = pairs([-0.5, -0.51]), pairs([-0.9, -0.1])
    known = (0.015, 20.0)
    pooled = math.sqrt((8 * 0.015**2 + 0.01**2 / 2) / 9)
    expected = -0.505 + t_quantile(0.999, 9) * pooled / math.sqrt(2)
    assert block_interval(calm, stored=known, alpha=0.001).upper == pytest.approx(expected)
    assert block_interval(wild, stored=known, alpha=0.001).upper > 100
    alone = block_interval(calm, stored=None, alpha=0.001)
    assert alone.upper == pytest.approx(-0.505 + t_quantile(0.999, 1) * calm.se)
    assert "its own spread alone" in alone.method


def test_pairs_that_would_decide() -> None:
    data = pairs([0.0, 0.02, -0.02, 0.01])
    count = pairs_to_decide(data, alpha=0.04, distance=0.01)
    assert count is not None
    assert t_quantile(0.96, count - 1) * data.sd / math.sqrt(count) <= 0.01
    assert pairs_to_decide(data, alpha=0.04, distance=0.0) is None
    assert pairs_to_decide(data, alpha=0.04, distance=1e-6) is None


def test_holm_steps_down_until_something_stands() -> None:
    p_values = {"a": 0.001, "b": 0.012, "c": 0.03, "d": 0.9}
    levels = step_down(p_values, left=4, alpha=0.05, rejects=lambda item, level: p_values[item] < level)
    assert levels == pytest.approx({"a": 0.05 / 4, "b": 0.05 / 3, "c": 0.05 / 2, "d": 0.05 / 2})
    later = step_down({"c": 0.03}, left=2, alpha=0.05, rejects=lambda item, level: p_values[item] < level)
    assert later == {"c": 0.025}


def test_holm_keeps_the_family_error() -> None:
    source = random.Random(2)
    wrong = 0
    for _ in range(4000):
        p_values = {name: source.random() for name in range(6)}

        def rejects(item: int, level: float, p: dict[int, float] = p_values) -> bool:
            return p[item] < level

        levels = step_down(p_values, left=6, alpha=0.05, rejects=rejects)
        wrong += any(p_values[item] < level for item, level in levels.items())
    assert wrong / 4000 == pytest.approx(0.05, abs=0.012)


def test_sign_flips_are_counted_exactly() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0], 0.0) == 1 / 8
    assert sign_flip_p([-1.0, 2.0, 3.0], 0.0) == 2 / 8
    assert sign_flip_p([1.0, 2.0, 3.0], 10.0) == 1.0
    assert smallest_p(8) == 1 / 256
    with pytest.raises(ValueError, match="at most 12"):
        sign_flip_p([0.0] * 13, 0.0)
