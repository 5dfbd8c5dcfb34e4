"""How much a run's autocorrelated requests are worth. Used to say whether a run was long enough; never as a
sample size."""

from __future__ import annotations

import math
from collections.abc import Sequence


def autocorrelation_time(values: Sequence[float]) -> float:
    """Integrated autocorrelation time by non-overlapping batch means with batches of about sqrt(n); at least 1.

    For AR(1) with coefficient phi it tends to (1 + phi) / (1 - phi).
    """
    n = len(values)
    if n < 4:
        return 1.0
    size = max(2, math.isqrt(n))
    batches = n // size
    kept = values[: batches * size]
    centre = math.fsum(kept) / len(kept)
    variance = math.fsum((item - centre) ** 2 for item in kept) / (len(kept) - 1)
    if variance == 0:
        return 1.0
    means = [math.fsum(kept[start : start + size]) / size for start in range(0, batches * size, size)]
    between = math.fsum((item - centre) ** 2 for item in means) / (batches - 1)
    return max(1.0, size * between / variance)


def effective_size(values: Sequence[float]) -> float:
    """Independent requests that would tell as much about the mean."""
    return len(values) / autocorrelation_time(values)


def long_enough(values: Sequence[float], *, launch_sd: float) -> bool:
    """Whether request noise adds at most half of the launch variance to a run's mean (facts: s_W^2 tau / m <=
    s_R^2 / 2).

    :param values: one log metric of each request of a run.
    :param launch_sd: between launches, of the same log metric.
    """
    n = len(values)
    if n < 4:
        return False
    centre = math.fsum(values) / n
    variance = math.fsum((item - centre) ** 2 for item in values) / (n - 1)
    return variance * autocorrelation_time(values) / n <= launch_sd**2 / 2
