"""When runs count. A launch's first ones compile kernels and fill caches: they are dropped until no trend is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Run
from pytest_moeperf.stats.warmup import cold_runs, trend_gone

THROUGHPUT = Bound(metric="throughput")
TREND_TOLERANCE = 0.05
"""Step from one run to the next that is no warm-up any more; cold runs were measured 2 to 4 times too slow."""
WARM_UP_RUNS = 1
"""Always made, and never counted."""
MAX_EXTRA_RUNS = 4
"""Beyond the one warm-up run and the runs that are asked for; then what is there is judged, trend and all."""
STALL = "no_stall_in_window"
RECURS = 2
"""One stall is no rhythm, however few runs were asked for."""


def measure_until_steady(run_once: Callable[[int], Run], *, runs: int) -> list[Run]:
    """One warm-up run, then runs until ``runs`` valid ones show no trend. Returns all, the discarded ones marked.

    A run that fails a repeatable check (a compile stall, throttling) is void and made again; any other failure ends
    the measurement at once: more runs of a server that answers wrongly prove nothing. A stall that ``runs`` runs (two
    at least) after the warm-up show is no compilation but this server's rhythm (prefills of a whole batch, say), and
    is believed.
    """
    warm_up = run_once(0)
    if _broken(warm_up):
        return [warm_up]
    made = [replace(warm_up, warmup=True)]
    while len(made) < WARM_UP_RUNS + runs + MAX_EXTRA_RUNS:
        run = run_once(len(made))
        made.append(run)
        if _broken(run):
            return made
        if sum(_only_stalls(other) for other in made[1:]) >= max(runs, RECURS):
            made = [_believed(other) if _only_stalls(other) else other for other in made]
        values = [_throughput(other) for other in made if other.warmup or other.valid]
        if len(_kept(made)) - _cold(made) >= runs and trend_gone(values, tolerance=TREND_TOLERANCE):
            break
    kept = _kept(made)
    for position in kept[: max(0, min(_cold(made), len(kept) - runs))]:
        made[position] = replace(made[position], warmup=True)
    return made


def _kept(made: Sequence[Run]) -> list[int]:
    return [position for position, run in enumerate(made) if run.valid and not run.warmup]


def _cold(made: Sequence[Run]) -> int:
    """How many of the kept runs are cold, which are the first."""
    return cold_runs([_throughput(made[position]) for position in _kept(made)], tolerance=TREND_TOLERANCE)


def _broken(run: Run) -> bool:
    return any(not check.repeatable for check in run.failures)


def _only_stalls(run: Run) -> bool:
    return bool(run.failures) and all(check.name == STALL for check in run.failures)


def _believed(run: Run) -> Run:
    """The same run, its stall taken for what it is."""
    checks = tuple(
        replace(check, status="pass", message=f"recurs from run to run, so it is this server's rhythm: {check.message}")
        if check.name == STALL
        else check
        for check in run.checks
    )
    return replace(run, checks=checks)


def _throughput(run: Run) -> float:
    return run.metrics.value(THROUGHPUT) or 0.0
