"""Does a set of launches fall into two groups (an autotuner's choice, a NUMA placement)? Then no t-interval is
right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

FEWEST = 4
GAP_SDS = 5.0
"""Gap between the groups, in standard deviations within them. Normal samples of 4 to 16 show it in under 2 %
of cases."""
GAP_FLOOR = 0.02
"""Groups closer than 2 % matter to no margin."""


def two_groups(values: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Lower and upper group of effects if there plainly are two with at least two members each, else None."""
    if len(values) < FEWEST:
        return None
    ordered = sorted(values)
    gaps = [(after - before, index + 1) for index, (before, after) in enumerate(itertools.pairwise(ordered))]
    gap, cut = max(gaps[1:-1], default=(0.0, 0))
    low, high = ordered[:cut], ordered[cut:]
    if gap < GAP_FLOOR or min(len(low), len(high)) < 2:
        return None
    squares = math.fsum((item - math.fsum(group) / len(group)) ** 2 for group in (low, high) for item in group)
    within = math.sqrt(squares / (len(ordered) - 2))
    return (tuple(low), tuple(high)) if gap > GAP_SDS * within else None
