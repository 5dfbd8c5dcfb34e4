"""Quantiles and tail probabilities of Student's t, without scipy.stats and its start-up and per-call cost."""

from __future__ import annotations

import math

from scipy.special import chdtri, fdtri, ndtr, ndtri, stdtr, stdtrit


def t_quantile(probability: float, df: float) -> float:
    """``df`` may be fractional (Satterthwaite) or infinite (a known standard deviation)."""
    if math.isinf(df):
        return float(ndtri(probability))
    return float(stdtrit(df, probability))


def t_upper_tail(t: float, df: float) -> float:
    """P(T > t)."""
    if math.isinf(df):
        return float(ndtr(-t))
    return float(stdtr(df, -t))


def chi2_quantile(probability: float, df: float) -> float:
    return float(chdtri(df, 1.0 - probability))


def f_quantile(probability: float, df_above: float, df_below: float) -> float:
    return float(fdtri(df_above, df_below, probability))
