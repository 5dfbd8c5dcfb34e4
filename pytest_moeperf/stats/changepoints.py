"""Where a cell's history changed its level: PELT with a Gaussian cost (Killick et al. 2012) from the
``ruptures`` library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.errors import UsageProblem

FEWEST = 4
SHORTEST_SEGMENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoint:
    """The level changes before ``index``."""

    index: int
    change: float
    """Mean effect after minus mean effect before, up to the neighbouring change points."""


def change_points(effects: Sequence[float], *, penalty: float = 3.0) -> tuple[ChangePoint, ...]:
    """Change points of a series of effects, oldest first; empty below 4 values.

    :param penalty: how much a further change must explain, in multiples of ln(n) noise variances; higher finds fewer.
    :raises UsageProblem: if ``ruptures`` is not installed.
    """
    if len(effects) < FEWEST:
        return ()
    try:
        import numpy as np
        import ruptures
    except ImportError as error:
        raise UsageProblem(
            where="change points",
            problem=f"{error.name} is not installed",
            next_step="pip install 'pytest-moeperf[report]'",
        ) from error
    series = np.asarray(effects, dtype=float)
    # Noise from first differences: a change of level touches one difference only, so the median does not see it.
    noise = float(np.median(np.abs(np.diff(series)))) / (0.6745 * math.sqrt(2))
    if noise == 0:
        noise = float(np.std(series)) or 1.0
    algorithm = ruptures.Pelt(model="l2", min_size=SHORTEST_SEGMENT, jump=1).fit(series.reshape(-1, 1))
    ends = [int(end) for end in algorithm.predict(pen=penalty * math.log(len(series)) * noise**2)]
    starts = [0, *ends[:-1]]
    levels = [float(series[start:end].mean()) for start, end in zip(starts, ends, strict=True)]
    return tuple(
        ChangePoint(index=end, change=after - before)
        for end, before, after in zip(ends, levels, levels[1:], strict=False)
    )
