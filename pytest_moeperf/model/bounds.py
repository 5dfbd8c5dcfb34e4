"""What a test asserts about one metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

METRICS = ("throughput", "tpot", "ttft", "itl", "e2el", "goodput")
HIGHER_IS_BETTER = frozenset({"throughput", "goodput"})
PERCENTILES = ("mean", "p50", "p99")
_LABELS = {"throughput": "throughput", "goodput": "goodput", "e2el": "end-to-end latency"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """One metric with its margins. Effects are logs of ratios, positive when better, whatever the metric."""

    metric: str
    """One of METRICS."""
    percentile: str = "mean"
    """Of the requests of a run; one of PERCENTILES. Throughput and goodput have only a mean."""
    regression: float = 0.05
    """Margin ``d``, relative: a loss beyond it must not pass."""
    win: float = 0.03
    """Margin ``dw``, relative: a gain beyond it must not pass unverified."""
    at_least: float | None = None
    """Absolute floor: tok/s for throughput, requests/s for goodput."""
    at_most_ms: float | None = None
    """Absolute ceiling for a latency."""
    slo_ms: tuple[tuple[str, float], ...] = ()
    """goodput only: the (latency metric, limit in ms) pairs that make a request good."""

    @property
    def key(self) -> str:
        return self.metric if self.percentile == "mean" else f"{self.metric}.{self.percentile}"

    @property
    def label(self) -> str:
        """As people call it: ``throughput``, ``TPOT``, ``p99 TTFT``."""
        name = _LABELS.get(self.metric, self.metric.upper())
        return name if self.percentile == "mean" else f"{self.percentile} {name}"

    @property
    def higher_is_better(self) -> bool:
        return self.metric in HIGHER_IS_BETTER

    @property
    def unit(self) -> str:
        return {"throughput": "tok/s", "goodput": "req/s"}.get(self.metric, "ms")

    def effect(self, value: float) -> float:
        """ln(value) for a rate, -ln(value) for a latency: differences of effects are log ratios, > 0 is better."""
        return math.log(value) if self.higher_is_better else -math.log(value)

    def ratio(self, effect_difference: float) -> float:
        """An effect difference as the change of the metric itself: +0.1 of TPOT's effect is -9.5 % TPOT."""
        return math.expm1(effect_difference if self.higher_is_better else -effect_difference)
