"""When an open loop sends: offsets from the start of the run, known before the run."""

from __future__ import annotations

import random

POISSON = "poisson"
CONSTANT = "constant"
ARRIVALS = (POISSON, CONSTANT)


def arrival_offsets_ns(*, rate: float, count: int, seed: int, kind: str = POISSON) -> list[int]:
    """``count`` offsets in ns at ``rate`` requests per second; the first request is sent at 0.

    ``poisson``: exponential gaps, seeded. ``constant``: equal gaps.
    """
    draw = random.Random(f"arrivals {seed}").expovariate
    at_s = 0.0
    offsets = []
    for _ in range(count):
        offsets.append(round(at_s * 1e9))
        at_s += draw(rate) if kind == POISSON else 1 / rate
    return offsets
