"""A candidate's launches against stored ones: prediction interval for the true change.

The new launches come from a session that the store has not seen, so the interval carries the variance between
sessions, between launches and between runs. With ``M`` the variance of the K session means, ``W`` the pooled
variance of launch means within sessions, ``h`` the mean of 1/(launches in a session) and ``R`` new launches in
one new session:

    V = (1 + 1/K) M + (1/R - h) W,     change in  (new mean - stored mean) +- t(df) sqrt(V),     df by Satterthwaite

which for K sessions x R' launches is  a B + b W,  a = (1 + 1/K) / R',  b = 1/R + 1/(K R') - a,  B = R' M.
Below :data:`ENOUGH_SESSIONS` sessions the variance between sessions is not known; a stated one takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.model.verdict import Interval
from pytest_moeperf.stats.components import SD_FLOOR, Components
from pytest_moeperf.stats.effects import LaunchMean
from pytest_moeperf.stats.quantiles import t_quantile, t_upper_tail

ENOUGH_SESSIONS = 4
"""From here on the variance between sessions is taken from the store alone."""
ASSUMED_WEIGHT = 8
"""Degrees of freedom that an assumed sd counts for beside an estimate from too few sessions or launches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The change from stored to new, with its standard error; intervals at any level follow from it."""

    estimate: float
    se: float
    df: float
    se_limit: float
    """Standard error that would remain with infinitely many new launches in this one session."""
    launch_sd: float
    """Of one launch mean within a session."""
    launch_df: int
    launches: int
    method: str
    warnings: tuple[str, ...]
    assumed: bool
    """A part of the variance is assumed, not estimated."""

    def half_width(self, alpha: float) -> float:
        return t_quantile(1 - alpha, self.df) * self.se

    def interval(self, alpha: float, *, method: str = "", launches_to_decide: int | None = None) -> Interval:
        """One-sided error ``alpha`` on each side."""
        half = self.half_width(alpha)
        return Interval(
            estimate=self.estimate,
            lower=self.estimate - half,
            upper=self.estimate + half,
            level=1 - 2 * alpha,
            n=self.launches,
            method=method or self.method,
            df=None if math.isinf(self.df) else self.df,
            warnings=self.warnings,
            launches_to_decide=launches_to_decide,
        )

    def p_below(self, limit: float) -> float:
        """One-sided p-value of "the change is not below ``limit``"; small: it is below."""
        return t_upper_tail((limit - self.estimate) / self.se, self.df)

    def p_above(self, limit: float) -> float:
        return t_upper_tail((self.estimate - limit) / self.se, self.df)

    def caught(self, alpha: float, power: float = 0.95) -> float:
        """Smallest loss (as a positive log ratio) whose interval would lie below zero with probability ``power``."""
        return (t_quantile(1 - alpha, self.df) + t_quantile(power, self.df)) * self.se

    def launches_for_width(self, alpha: float, half_width: float) -> int | None:
        """New launches in all that would give this half-width; None: no number would, the session itself is
        too wide."""
        if half_width <= 0:
            return None
        wanted = (half_width / t_quantile(1 - alpha, self.df)) ** 2
        shrinking = (self.se**2 - self.se_limit**2) * self.launches
        left = wanted - self.se_limit**2
        if left <= 0:
            return None
        return max(1, math.ceil(shrinking / left))


def predict(
    stored: Components,
    new: Sequence[LaunchMean],
    *,
    assumed_session_sd: float,
    assumed_launch_sd: float,
    provisional: bool,
) -> Prediction:
    """:param stored: of the baseline's runs.
    :param new: launch means of one session, at least one.
    :param provisional: the store can't carry its own variances (see ``Baseline.provisional``).
    """
    count = len(new)
    centre = math.fsum(item.mean for item in new) / count
    own_squares = math.fsum((item.mean - centre) ** 2 for item in new)
    launch_df = stored.launch_df + count - 1
    launch_ms = (stored.launch_ms * stored.launch_df + own_squares) / launch_df if launch_df else 0.0
    run_df = stored.run_df + sum(item.runs - 1 for item in new)
    run_squares = stored.run_ms * stored.run_df + math.fsum(item.squares for item in new)
    run_ms = run_squares / run_df if run_df else 0.0
    own_inverse_runs = math.fsum(1 / item.runs for item in new) / count

    sessions, inverse = stored.sessions, stored.inverse_launches
    warnings: list[str] = []
    assumed = provisional or sessions < ENOUGH_SESSIONS
    session_ms, session_df = stored.session_ms, float(stored.session_df)
    launch_mean_df = float(launch_df)
    if assumed:
        session_var, session_df, session_text = _assumed_session(stored, launch_ms, assumed_session_sd)
        launch_ms, launch_mean_df, launch_text = _assumed_launch(
            launch_ms, launch_df, stored.inverse_runs * run_ms, assumed_launch_sd
        )
        session_ms = session_var + inverse * launch_ms
        warnings.extend(text for text in (session_text, launch_text) if text)

    session_var = max(0.0, session_ms - inverse * launch_ms)
    if assumed:
        limit = (1 + 1 / sessions) * session_var + launch_ms * inverse / sessions
        parts = [
            ((1 + 1 / sessions) * session_var, session_df),
            ((1 / count + inverse / sessions) * launch_ms, launch_mean_df),
        ]
    else:
        if 1 / count <= inverse:  # nothing of W is left to keep a chance agreement of the sessions from looking exact
            session_ms = max(session_ms, inverse * launch_ms)
        limit = (1 + 1 / sessions) * session_ms
        parts = [(limit, session_df), ((1 / count - inverse) * launch_ms, launch_mean_df)]
    parts.append(((own_inverse_runs - stored.inverse_runs) / count * run_ms, float(run_df)))
    # A negative part would narrow the interval by a difference of mean squares, whose degrees of freedom can shrink to
    # nothing: it is left out, so that more launches (or runs) than the store has are worth no more than as many.
    terms = [(term, df) for term, df in parts if term > 0]
    variance = math.fsum(term for term, _ in terms)
    df = _satterthwaite(variance, terms)
    floor = SD_FLOOR**2 * (1 / count + 1 / stored.launches)
    if variance < floor:
        variance, df = floor, math.inf
        warnings.append(
            f"the runs differ by less than {SD_FLOOR:.1%} from launch to launch; {SD_FLOOR:.1%} is taken instead"
        )
    per_session = stored.launches / sessions
    shape = f"{sessions} session{'s' * (sessions > 1)} x {per_session:.3g} launch{'es' * (per_session != 1)} stored"
    return Prediction(
        estimate=centre - stored.centre,
        se=math.sqrt(variance),
        df=df,
        se_limit=math.sqrt(min(limit, variance)),
        launch_sd=max(SD_FLOOR, math.sqrt(launch_ms)),
        launch_df=launch_df,
        launches=count,
        method=f"prediction interval, {shape}" + "".join(f", {text}" for text in warnings if "assumed" in text),
        warnings=tuple(warnings),
        assumed=assumed,
    )


def _assumed_session(stored: Components, launch_ms: float, sd: float) -> tuple[float, float, str]:
    """Variance between sessions, its degrees of freedom and what to say about it."""
    if stored.session_df == 0:
        return sd**2, math.inf, f"session sd assumed {sd * 100:.3g} %"
    seen = max(0.0, stored.session_ms - stored.inverse_launches * launch_ms)
    df = ASSUMED_WEIGHT + stored.session_df
    mixed = (ASSUMED_WEIGHT * sd**2 + stored.session_df * seen) / df
    return max(mixed, seen), float(df), f"session sd assumed {sd * 100:.3g} % in part"


def _assumed_launch(launch_ms: float, launch_df: int, run_part: float, sd: float) -> tuple[float, float, str]:
    """Variance of a launch mean, its degrees of freedom and what to say about it."""
    assumed = sd**2 + run_part
    if launch_df == 0:
        return assumed, math.inf, f"launch sd assumed {sd * 100:.3g} %"
    df = ASSUMED_WEIGHT + launch_df
    mixed = (ASSUMED_WEIGHT * assumed + launch_df * launch_ms) / df
    return max(mixed, launch_ms), float(df), f"launch sd assumed {sd * 100:.3g} % in part"


def _satterthwaite(variance: float, terms: Sequence[tuple[float, float]]) -> float:
    """Effective degrees of freedom of a sum of independent mean squares, each with its own."""
    spread = math.fsum(term**2 / df for term, df in terms)
    return variance**2 / spread if spread else math.inf
