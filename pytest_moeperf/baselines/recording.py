"""What of a run is stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_moeperf.model.baseline import StoredRun
from pytest_moeperf.model.bounds import PERCENTILES, Bound
from pytest_moeperf.model.run import CANDIDATE, Run
from pytest_moeperf.model.verdict import Decision, Verdict

_DIGITS = 7
"""Significant ones; a millionth of the noise of any server, and short enough to read in a diff."""

STORED_BOUNDS: tuple[Bound, ...] = (
    Bound(metric="throughput"),
    *(
        Bound(metric=metric, percentile=percentile)
        for metric in ("tpot", "ttft", "itl", "e2el")
        for percentile in PERCENTILES
    ),
)
"""Stored of every run, gated today or not, so that a bound that is added tomorrow has a baseline."""


def runs_to_record(runs: Sequence[Run], decision: Decision) -> tuple[Run, ...]:
    """The candidate's runs that an update may store: of a verified win those of its verification alone, since the
    runs that discovered it were picked for being fast."""
    candidate = tuple(run for run in runs if run.launch.arm == CANDIDATE)
    if decision.verdict is not Verdict.VERIFIED_WIN:
        return candidate
    return tuple(run for run in candidate if run.launch.id in decision.verification_launches)


def stored_runs(runs: Sequence[Run], bounds: Iterable[Bound] = ()) -> tuple[StoredRun, ...]:
    """The valid ones that are no warm-up, oldest first, with all that may be compared later.

    ``bounds`` adds what only a test defines (goodput). What is undefined for a run (a percentile of too few requests)
    or is no measurement is left out of its values, never stored as 0.
    """
    wanted = {bound.key: bound for bound in (*STORED_BOUNDS, *bounds)}
    return tuple(
        StoredRun(
            id=run.id,
            session=run.launch.session,
            launch=run.launch.id,
            started_at=run.started_at,
            values=_values(run, wanted.values()),
            start_s=_rounded(run.launch.start_s),
            run_s=_rounded(run.metrics.duration_s),
        )
        for run in sorted(runs, key=lambda run: (run.started_at, run.id))
        if run.valid and not run.warmup
    )


def _values(run: Run, bounds: Iterable[Bound]) -> dict[str, float]:
    values: dict[str, float] = {}
    for bound in bounds:
        value = run.metrics.value(bound)
        if value is not None and math.isfinite(value) and value > 0:
            values[bound.key] = float(f"{value:.{_DIGITS}g}")
    return values


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
