"""What a store learns of the noise when invocations with --update-baselines fill it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import fmean

from pytest_moeperf import gate
from pytest_moeperf.baselines import Update, propose_update, stored_runs
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import Noise, RehearsalBench
from pytest_moeperf.stats.components import components
from pytest_moeperf.stats.effects import launch_means

PLAN = CellPlan(cell=Cell(backend="b", workload=Workload(concurrency=1)), bounds=(Bound(metric="throughput"),))
SETTINGS = GateSettings()
ALONE = gate.Capabilities(reference=False, relaunch=True)
NIGHTS, TRIALS = 8, 200


def recorded(noise: Noise, source: random.Random) -> Baseline:
    """One launch a night; what the rules refuse is not there."""
    stored: Baseline | None = None
    for night in range(NIGHTS):
        bench = RehearsalBench(noise=noise, bounds=PLAN.bounds, source=source)
        with bench.launch("candidate", fresh=True) as server:
            runs = server.measure(PLAN.cell, runs=SETTINGS.runs_per_launch)
        state = gate.start(PLAN, settings=SETTINGS, capabilities=ALONE, record=True)
        state = gate.with_match(state, BaselineMatch(baseline=stored))
        state = gate.judge(gate.add_launch(state, launch=runs[0].launch, runs=runs))
        assert state.decision is not None
        new = tuple(
            replace(run, id=f"{night}/{run.id}", session=str(night), launch=str(night)) for run in stored_runs(runs)
        )
        update = propose_update(
            stored,
            new,
            engine="simulated",
            model="",
            bounds=PLAN.bounds,
            decision=state.decision,
            fingerprint=Fingerprint(),
            evidence=Evidence(),
            max_drift=SETTINGS.max_drift,
            by="test",
            at="",
        )
        stored = update.baseline if isinstance(update, Update) else stored
    assert stored is not None
    return stored


def learnt_sd(noise: Noise) -> float:
    """Between nights, as the stores know it: root of the mean variance."""
    source = random.Random(5)
    variances = []
    for _ in range(TRIALS):
        effects = [
            (run.session, run.launch, math.log(run.values["throughput"])) for run in recorded(noise, source).runs
        ]
        variances.append(components(launch_means(effects)).session_ms)
    return math.sqrt(fmean(variances))


def test_a_store_learns_most_of_the_noise_of_a_noisy_cell() -> None:
    assert learnt_sd(Noise(session_sd=0.01, launch_sd=0.003)) > 0.009
    assert learnt_sd(Noise(session_sd=0.04, launch_sd=0.003)) > 0.03
