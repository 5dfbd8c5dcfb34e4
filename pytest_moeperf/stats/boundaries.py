"""Group-sequential boundaries for a paired comparison that looks several times.

``T_k = (mean of the first n_k differences - limit) / (their sd / sqrt(n_k))`` depends on nothing unknown when
differences are normal, so the constants ``c_k`` can be computed once. Error is spent by Hwang, Shih and
DeCani's function with gamma = -2: little at the first look, most at the last. The shipped table is made by
``benchmarks/derive_boundaries.py`` from :func:`derive`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from pytest_moeperf.stats.quantiles import t_quantile

LOOKS = (4, 6, 8)
GAMMA = -2.0

TABLE: dict[float, tuple[float, ...]] = {
    0.05: (4.0624, 2.825, 2.1422),
    0.04: (4.4189, 3.0343, 2.31),
    0.039: (4.4608, 3.0584, 2.329),
    0.03: (4.9145, 3.3121, 2.5261),
    0.02: (5.6905, 3.7208, 2.8325),
    0.0195: (5.7423, 3.7471, 2.8517),
    0.015: (6.3032, 4.0247, 3.0524),
    0.01: (7.2663, 4.4751, 3.3676),
    0.0075: (8.029, 4.8119, 3.5961),
    0.005: (9.2311, 5.3134, 3.9263),
    0.0035: (10.4273, 5.7828, 4.2258),
    0.0025: (11.6907, 6.2521, 4.517),
    0.0015: (13.8958, 7.019, 4.9772),
    0.001: (15.9301, 7.6806, 5.3598),
    0.0005: (20.1057, 8.9412, 6.054),
    0.00025: (25.3594, 10.4027, 6.8063),
    0.0001: (34.4473, 12.7165, 7.9035),
}
"""One-sided error of all looks together -> ``c_k`` at 4, 6 and 8 pairs."""


def spent(alpha: float, looks: Sequence[int]) -> tuple[float, ...]:
    """Error that may have been used up to and including each look."""
    whole = 1 - math.exp(-GAMMA)
    return tuple(alpha * (1 - math.exp(-GAMMA * n / looks[-1])) / whole for n in looks)


def increments(alpha: float, looks: Sequence[int]) -> tuple[float, ...]:
    """Error for each look alone. Testing each look at its own increment is valid whatever the looks have in
    common."""
    used = spent(alpha, looks)
    return tuple(now - before for now, before in zip(used, (0.0, *used[:-1]), strict=True))


@lru_cache(maxsize=4096)
def constants(alpha: float, looks: tuple[int, ...] = LOOKS) -> tuple[float, ...]:
    """``c_k`` for a one-sided error ``alpha`` over all ``looks`` (pairs, increasing, the first at least 2).

    From the table (log-log interpolation) for the standard looks, by :func:`derive` for others. Below the
    table's smallest error each look has its own increment of the error, which is conservative.
    """
    if looks == LOOKS and min(TABLE) <= alpha <= max(TABLE):
        return _interpolated(alpha)
    if looks != LOOKS and alpha >= min(TABLE):
        return derive((alpha,), looks, log2_samples=15)[alpha]
    return tuple(t_quantile(1 - part, n - 1) for part, n in zip(increments(alpha, looks), looks, strict=True))


def _interpolated(alpha: float) -> tuple[float, ...]:
    levels = sorted(TABLE)
    above = next(level for level in levels if level >= alpha)
    if above == alpha:
        return TABLE[above]
    below = levels[levels.index(above) - 1]
    share = math.log(alpha / below) / math.log(above / below)
    return tuple(
        math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        for low, high in zip(TABLE[below], TABLE[above], strict=True)
    )


def derive(
    alphas: Sequence[float], looks: Sequence[int], *, log2_samples: int, seed: int = 0
) -> dict[float, tuple[float, ...]]:
    """Compute boundaries by integration over quasi-random samples.

    The deviations of n normal values from their mean are independent of that mean, and given the deviations
    every ``T_k`` grows with the mean. So the chance to cross by look k, given the deviations, is one normal
    tail; only the deviations are sampled.

    :param log2_samples: 15 gives two digits in 50 ms, 20 gives four.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri
    from scipy.stats import qmc

    size = looks[-1]
    points = qmc.Sobol(size, scramble=True, rng=np.random.default_rng(seed)).random_base2(log2_samples)
    values = ndtri(np.clip(points, 1e-12, 1 - 1e-12))
    values -= values.mean(axis=1, keepdims=True)
    # T_k > c  <=>  sqrt(size) x mean > c x scale_k - shift_k
    scale = [math.sqrt(size / n) * values[:, :n].std(axis=1, ddof=1) for n in looks]
    shift = [math.sqrt(size) * values[:, :n].mean(axis=1) for n in looks]

    table = {}
    for alpha in alphas:
        used = spent(alpha, looks)
        found = [t_quantile(1 - used[0], looks[0] - 1)]
        lowest = found[0] * scale[0] - shift[0]
        for k in range(1, len(looks)):
            alone = t_quantile(1 - (used[k] - used[k - 1]), looks[k] - 1)

            def excess(c: float, k: int = k, lowest: np.ndarray = lowest, target: float = used[k]) -> float:
                return float(ndtr(-np.minimum(lowest, c * scale[k] - shift[k])).mean()) - target

            found.append(float(brentq(excess, 0.3, 1.2 * alone + 0.5, xtol=1e-5)))
            lowest = np.minimum(lowest, found[-1] * scale[k] - shift[k])
        table[alpha] = tuple(found)
    return table
