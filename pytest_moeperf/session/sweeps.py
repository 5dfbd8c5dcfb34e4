"""What the stored sweeps say about themselves, told before anything is held against them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.stats.sweep import sweep_oddities

FEWEST = 3
"""Points that make a trend."""


def stored_sweep_notes(settings: Settings) -> tuple[str, ...]:
    """Odd points of the stored sweeps that this invocation's backends are held against."""
    held_against = {settings.reference or backend for backend in settings.backends}
    stored = [
        entry.baseline
        for entry in FileStore(settings.baselines).all()
        if entry.baseline.engine == settings.engine and entry.baseline.cell.backend in held_against
    ]
    return sweep_notes(stored)


def sweep_notes(baselines: Iterable[Baseline]) -> tuple[str, ...]:
    """Baselines of one backend, model, shape and origin make a sweep; the origin is what was imported together, or
    everything that was measured here."""
    sweeps: dict[tuple[object, ...], dict[int, list[float]]] = {}
    for baseline in baselines:
        workload = baseline.cell.workload
        if workload.request_rate is not None:
            continue
        values = [run.values["throughput"] for run in baseline.runs if run.values.get("throughput", 0.0) > 0]
        shape = (workload.input_len, workload.output_len)
        sweep = sweeps.setdefault((baseline.model, baseline.cell.backend, *shape, baseline.provenance), {})
        if values:
            # Of several fingerprints of one cell the last one read counts: a sweep has one point a concurrency.
            sweep[workload.concurrency] = values
    return tuple(
        f"odd in the stored sweep of {backend} {input_len}/{output_len}: {text}"
        for (_, backend, input_len, output_len, _), sweep in sweeps.items()
        if len(sweep) >= FEWEST
        for text in sweep_oddities([(concurrency, _geometric(values)) for concurrency, values in sweep.items()])
    )


def _geometric(values: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
