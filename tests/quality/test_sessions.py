"""What counting invocations one after the other as sessions costs, and what joining them saves."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pytest_moeperf.baselines.sessions import joined
from pytest_moeperf.campaign.run import Campaign
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import Noise, RehearsalBench, stored_baseline

PLAN = CellPlan(cell=Cell(backend="b", workload=Workload(concurrency=10)), bounds=(Bound(metric="throughput"),))
H200S = Noise(session_sd=0.021, launch_sd=0.003, run_sd=0.003)
"""TPOT of five H200s; the launches as on the quietest of them."""
SETTINGS = GateSettings()
TRIALS = 600
LAST_NIGHT = datetime(2026, 11, 29, 23, tzinfo=UTC)


def one_after_the_other(source: random.Random) -> Baseline:
    """Four invocations with a launch each, five minutes apart, on one machine."""
    stored = stored_baseline(
        H200S, cell=PLAN.cell, bounds=PLAN.bounds, source=source, sessions=1, launches=4, runs=SETTINGS.runs_per_launch
    )
    invocations = list(dict.fromkeys(run.launch for run in stored.runs))
    starts = {name: LAST_NIGHT + timedelta(minutes=5 * number) for number, name in enumerate(invocations)}
    runs = (replace(run, session=run.launch, started_at=starts[run.launch].isoformat()) for run in stored.runs)
    return replace(stored, runs=tuple(runs))


def false_alarms(*, join: bool) -> float:
    """Share of unchanged servers, another day, that are said to be worse or better."""
    source = random.Random(3)
    alarms = 0
    for _ in range(TRIALS):
        stored = one_after_the_other(source)
        if join:
            stored = replace(stored, runs=joined((), stored.runs))
        bench = RehearsalBench(
            noise=H200S, bounds=PLAN.bounds, source=source, stored=stored, can_launch_reference=False
        )
        (result,) = Campaign([PLAN], bench=bench, settings=SETTINGS, clock=bench.clock).run().values()
        alarms += result.decision.verdict in {Verdict.REGRESSION, Verdict.UNVERIFIED_WIN}
    return alarms / TRIALS


def test_invocations_one_after_the_other_are_one_session_and_cry_no_wolf() -> None:
    assert false_alarms(join=False) > 0.15
    assert false_alarms(join=True) <= 0.02
