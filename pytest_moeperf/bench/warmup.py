"""When runs count. A launch's first ones compile kernels and fill caches: they are dropped until no trend is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Run
from pytest_moeperf.stats.warmup import trend_gone

THROUGHPUT = Bound(metric="throughput")
TREND_TOLERANCE = 0.02
"""Of ln(throughput), first to last of the runs that are kept: below it a trend could not move a verdict."""
MAX_EXTRA_RUNS = 4
"""Beyond the one warm-up run and the runs that are asked for; then what is there is judged, trend and all."""


def measure_until_steady(run_once: Callable[[int], Run], *, runs: int) -> list[Run]:
    """One warm-up run, then runs until ``runs`` valid ones show no trend. Returns all, the discarded ones marked.

    A run that fails a repeatable check (a compile stall, throttling) is void and made again; any other failure ends
    the measurement at once: more runs of a server that answers wrongly prove nothing.
    """
    made: list[Run] = []
    kept: list[int] = []
    warm_up = run_once(0)
    made.append(replace(warm_up, warmup=True))
    if _broken(warm_up):
        return [*made[:-1], warm_up]
    while len(made) < 1 + runs + MAX_EXTRA_RUNS:
        if len(kept) >= runs and trend_gone(_values(made, kept[-runs:]), tolerance=TREND_TOLERANCE):
            break
        run = run_once(len(made))
        made.append(run)
        if _broken(run):
            return made
        if run.valid:
            kept.append(len(made) - 1)
    for position in kept[:-runs]:
        made[position] = replace(made[position], warmup=True)
    return made


def _broken(run: Run) -> bool:
    return any(not check.repeatable for check in run.failures)


def _values(made: Sequence[Run], positions: Sequence[int]) -> list[float]:
    values = [made[position].metrics.value(THROUGHPUT) for position in positions]
    return [THROUGHPUT.effect(value) for value in values if value is not None and value > 0]
