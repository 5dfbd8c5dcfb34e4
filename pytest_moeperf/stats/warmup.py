"""Is a server warm? First runs compile kernels and read several times too slow; so runs are repeated until the
trend is gone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

FEWEST = 2


def trend_gone(values: Sequence[float], *, tolerance: float) -> bool:
    """Whether the last run of one launch is in line with the one before it.

    :param values: one metric of the runs so far, in order, all positive (throughput or a latency).
    :param tolerance: largest relative step between settled runs, such as 0.1.

    True if the last two runs agree within ``tolerance``, or if the last lies inside the range of the runs
    before it (the first left out): noise goes up and down, a warm-up goes one way. Undefined, zero and
    negative values are never settled.
    """
    if len(values) < FEWEST or not all(math.isfinite(value) and value > 0 for value in values):
        return False
    before, last = values[-2], values[-1]
    if abs(math.log(last / before)) <= math.log1p(tolerance):
        return True
    settled = values[1:-1]
    return len(settled) >= FEWEST and min(settled) <= last <= max(settled)


def settled_from(values: Sequence[float], *, tolerance: float) -> int:
    """Index of the first run that agrees with the median of all later ones within ``tolerance``; ``len(values)
    - 1`` at the latest."""
    for index in range(len(values) - 1):
        later = statistics.median(values[index + 1 :])
        if values[index] > 0 and later > 0 and abs(math.log(values[index] / later)) <= math.log1p(tolerance):
            return index
    return max(0, len(values) - 1)
