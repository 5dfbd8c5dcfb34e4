"""Is a server warm? First runs compile kernels and read several times too slow; so runs are repeated until the
trend is gone."""

from __future__ import annotations

import math
from collections.abc import Sequence

FEWEST = 2
SPREADS = 3.0
"""Of runs that differ by chance alone, the first of three is so far below the others in fewer than one launch of ten;
it then costs one more run."""


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


def cold_runs(values: Sequence[float], *, tolerance: float) -> int:
    """How many leading runs are cold: each slower than all that follow, by more than these differ among themselves.

    :param values: throughputs of the runs of one launch, in order, all positive.
    :param tolerance: a smaller distance than this is never cold.

    A run that compiled kernels reads several times too slow, and two in a row may: 7844, 6415, 12140, 12499 tok/s were
    four runs of one batch size on an H200. Noise, however wide, mostly has later runs on both sides of a run.
    """
    cold = 0
    for index in range(len(values) - FEWEST):
        early, later = values[: index + 1], values[index + 1 :]
        if min(early) <= 0 or min(later) <= 0:
            continue
        gap = math.log(min(later) / max(early))
        spread = math.log(max(later) / min(later))
        if gap > math.log1p(tolerance) and gap > SPREADS * spread:
            cold = index + 1
    return cold
