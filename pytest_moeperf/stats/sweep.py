"""Does a sweep over concurrency agree with itself? Asked of stored numbers, before anything is held against them.

The rule: a step of a server lasts at least as long with more requests in it, and the longer the more there are. With a
step of a + b c, or of anything that bends upwards against ln c, the rate of one stream falls with concurrency and bends
downwards: on log-log axes each point lies on or above the straight line through its two neighbours. A point well below
that line, or above the one before it, was measured under other conditions than the rest, or shows something that
happens at that batch size alone. It is odd, not wrong; nothing here decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_moeperf.units import format_percent

BELOW_TREND = 0.15
"""Relative. Kernels of another tile size and CUDA graphs of padded batches make dents of a few per cent."""
RISE = 0.05
"""Relative: what the rate of one stream may gain from one concurrency to the next."""

Point = tuple[int, float]


def sweep_oddities(points: Sequence[Point], *, below_trend: float = BELOW_TREND, rise: float = RISE) -> tuple[str, ...]:
    """A sentence for each point that the others contradict, by concurrency.

    The worst is taken out before the next is looked for, so that one wrong point is not held against its neighbours.

    :param points: (concurrency, output tok/s of all streams together), each concurrency once, in any order.
    :raises ValueError: for a concurrency that comes twice, or a value that is not above 0.
    """
    rates = {concurrency: throughput / concurrency for concurrency, throughput in points if concurrency > 0}
    if len(rates) != len(points) or not all(math.isfinite(rate) and rate > 0 for rate in rates.values()):
        raise ValueError(f"not a sweep: {list(points)}")
    found: dict[int, str] = {}
    while (dent := _worst_dent(rates, below_trend)) is not None:
        found[dent] = _dent_text(rates, dent)
        del rates[dent]
    while (bump := _worst_rise(rates, rise)) is not None:
        found[bump] = _rise_text(rates, bump)
        del rates[bump]
    return tuple(found[concurrency] for concurrency in sorted(found))


def _neighbours(rates: dict[int, float], concurrency: int) -> tuple[int | None, int | None]:
    lower = max((other for other in rates if other < concurrency), default=None)
    upper = min((other for other in rates if other > concurrency), default=None)
    return lower, upper


def _trend(rates: dict[int, float], concurrency: int) -> float | None:
    """The rate that the neighbours lead to; None at the ends of the sweep."""
    lower, upper = _neighbours(rates, concurrency)
    if lower is None or upper is None:
        return None
    share = math.log(concurrency / lower) / math.log(upper / lower)
    return math.exp((1 - share) * math.log(rates[lower]) + share * math.log(rates[upper]))


def _worst_dent(rates: dict[int, float], tolerance: float) -> int | None:
    ratios = {one: rates[one] / trend for one in rates if (trend := _trend(rates, one)) is not None}
    worst = min(ratios, key=lambda one: ratios[one], default=None)
    return worst if worst is not None and ratios[worst] < 1 - tolerance else None


def _worst_rise(rates: dict[int, float], tolerance: float) -> int | None:
    ratios = {one: rates[one] / rates[lower] for one in rates if (lower := _neighbours(rates, one)[0]) is not None}
    worst = max(ratios, key=lambda one: ratios[one], default=None)
    return worst if worst is not None and ratios[worst] > 1 + tolerance else None


def _dent_text(rates: dict[int, float], concurrency: int) -> str:
    lower, upper = _neighbours(rates, concurrency)
    trend = _trend(rates, concurrency)
    if lower is None or upper is None or trend is None:
        raise ValueError(f"c={concurrency} is at the end of the sweep")
    below = format_percent(round(1 - rates[concurrency] / trend, 2))
    return (
        f"c={concurrency} gives {rates[concurrency]:.3g} tok/s a stream, {below} below the {trend:.3g} that c={lower} "
        f"({rates[lower]:.3g}) and c={upper} ({rates[upper]:.3g}) lead to: {_MEANING}"
    )


def _rise_text(rates: dict[int, float], concurrency: int) -> str:
    lower, _ = _neighbours(rates, concurrency)
    if lower is None:
        raise ValueError(f"c={concurrency} is at the start of the sweep")
    above = format_percent(round(rates[concurrency] / rates[lower] - 1, 2))
    return (
        f"c={concurrency} gives {rates[concurrency]:.3g} tok/s a stream, {above} above the {rates[lower]:.3g} of "
        f"c={lower}, though more streams share a step: {_MEANING}"
    )


_MEANING = (
    "other conditions than the rest, or something that happens at this batch size alone; measure it again before "
    "anything is held against it"
)
