"""Candidate against reference in pairs of neighbouring launches: what both share (the session, a slow drift)
cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.model.verdict import Interval
from pytest_moeperf.stats.boundaries import constants
from pytest_moeperf.stats.components import SD_FLOOR
from pytest_moeperf.stats.quantiles import f_quantile, t_quantile, t_upper_tail

PAIR_SD_FLOOR = math.sqrt(2) * SD_FLOOR
MOST_STORED_DF = 8
"""Stored degrees of freedom that count beside a block's own: with more of them the noise of other days would outweigh
what is seen today."""
UNLIKE_STORED = 0.01
"""Error of saying that a block's spread is not the stored one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Differences (candidate - reference) of effects and their summary."""

    differences: tuple[float, ...]
    mean: float
    sd: float
    """Never below the floor; 0 pairs of freedom (one pair) gives the floor too and no interval."""
    floored: bool

    @property
    def n(self) -> int:
        return len(self.differences)

    @property
    def se(self) -> float:
        return self.sd / math.sqrt(self.n)

    def p_below(self, limit: float) -> float:
        """Fixed-n one-sided p-value of "not below ``limit``"; only to put hypotheses in order."""
        return t_upper_tail((limit - self.mean) / self.se, self.n - 1) if self.n > 1 else 1.0

    def p_above(self, limit: float) -> float:
        return t_upper_tail((self.mean - limit) / self.se, self.n - 1) if self.n > 1 else 1.0


def pairs(differences: Sequence[float]) -> Pairs:
    """:raises ZeroDivisionError: without a difference."""
    items = tuple(differences)
    mean = math.fsum(items) / len(items)
    sd = math.sqrt(math.fsum((item - mean) ** 2 for item in items) / (len(items) - 1)) if len(items) > 1 else 0.0
    return Pairs(differences=items, mean=mean, sd=max(sd, PAIR_SD_FLOOR), floored=sd < PAIR_SD_FLOOR)


def look_constant(look: int, alpha: float, looks: Sequence[int], n: int) -> float:
    """Boundary of the look numbered ``look`` (from 0); if fewer pairs are there than planned, no less than
    their own t."""
    planned = constants(alpha, tuple(looks))[look]
    if n >= looks[look]:
        return planned
    return max(planned, t_quantile(1 - alpha, n - 1)) * t_quantile(0.99, n - 1) / t_quantile(0.99, looks[look] - 1)


def sequential_interval(data: Pairs, *, look: int, alpha: float, looks: Sequence[int]) -> Interval:
    """Repeated confidence interval at one of the planned looks; one-sided error ``alpha`` on each side over
    all looks."""
    half = look_constant(look, alpha, looks, data.n) * data.se
    return _interval(data, half, alpha, f"paired, look {look + 1} of {len(looks)}")


def fixed_interval(data: Pairs, *, alpha: float, method: str) -> Interval:
    """Student's t over a number of pairs that was fixed beforehand."""
    return _interval(data, t_quantile(1 - alpha, data.n - 1) * data.se, alpha, method)


def block_interval(data: Pairs, *, stored: tuple[float, float] | None, alpha: float) -> Interval:
    """One block, its spread pooled with that of stored launches of the same backend.

    :param stored: their pair sd and its degrees of freedom, of which :data:`MOST_STORED_DF` count: today's noise need
    not be that of the stored days. Without it, or where the block's own spread says that it is not (F test at
    :data:`UNLIKE_STORED`), two pairs have their own degree of freedom alone: 318 standard errors for an error of 0.1 %,
    so that only a collapse on a quiet host is called.
    """
    own = data.n - 1
    if stored is None or (data.sd / stored[0]) ** 2 > f_quantile(1 - UNLIKE_STORED, own, stored[1]):
        return fixed_interval(data, alpha=alpha, method="one block, its own spread alone")
    pair_sd, counted = stored[0], min(stored[1], MOST_STORED_DF)
    variance = (counted * pair_sd**2 + own * data.sd**2) / (counted + own)
    half = t_quantile(1 - alpha, counted + own) * math.sqrt(variance / data.n)
    return _interval(data, half, alpha, "one block, its spread and the stored one")


def _interval(data: Pairs, half: float, alpha: float, method: str) -> Interval:
    warnings = (
        (f"the pairs differ by less than {SD_FLOOR:.1%}; {SD_FLOOR:.1%} a launch is taken instead",)
        if data.floored
        else ()
    )
    return Interval(
        estimate=data.mean,
        lower=data.mean - half,
        upper=data.mean + half,
        level=1 - 2 * alpha,
        n=data.n,
        method=method,
        df=float(data.n - 1),
        warnings=warnings,
    )


def pairs_to_decide(data: Pairs, *, alpha: float, distance: float, limit: int = 1000) -> int | None:
    """Pairs whose interval would be no wider than ``distance`` on each side; None: more than ``limit``."""
    if distance <= 0:
        return None
    n = 3
    while n <= limit:
        if t_quantile(1 - alpha, n - 1) * data.sd / math.sqrt(n) <= distance:
            return n
        n += max(1, n // 10)
    return None
