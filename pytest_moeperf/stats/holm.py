"""Holm's step-down over hypotheses that are looked at several times.

A group-sequential Holm procedure (Ye, Li, Liu, Yao, *Statistics in Medicine* 32, 2013): all hypotheses share
one way of spending the error; with j of m left, each is tested against its boundary at alpha / j, at every
look. What is rejected stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def step_down(
    p_values: Mapping[H, float], *, left: int, alpha: float, rejects: Callable[[H, float], bool]
) -> dict[H, float]:
    """The error level that each hypothesis is judged at, now.

    :param p_values: of those looked at now; they only set the order.
    :param left: hypotheses of the family that were not rejected before; at least ``len(p_values)``.
    :param rejects: whether a hypothesis is rejected at an error level.
    """
    levels: dict[H, float] = {}
    stopped = False
    for hypothesis in sorted(p_values, key=lambda item: p_values[item]):
        level = alpha / max(left, 1)
        levels[hypothesis] = level
        if not stopped and rejects(hypothesis, level):
            left -= 1
        else:
            stopped = True
    return levels
