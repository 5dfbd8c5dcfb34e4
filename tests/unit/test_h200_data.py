"""What the gate says today of launches that were measured on H200s (``benchmarks/data/h200_runs.csv``)."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import fisher_exact

from pytest_moeperf import gate
from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Decision, Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.rehearse import SOUND, metrics_of

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = (Bound(metric="throughput"), Bound(metric="tpot"))
DEFAULTS = GateSettings()
ALONE = gate.Capabilities(reference=False, relaunch=True)
PAIRED = gate.Capabilities(reference=True, relaunch=True)
HOLM = {(bound.key, side): 0.5 for bound in BOUNDS for side in (gate.LOSS, gate.GAIN)}
"""Two bounds of one cell make a family: its first step tests each at half of the error."""


@cache
def rows() -> dict[str, list[dict[str, str]]]:
    """Valid runs after the warm-up, by launch."""
    launches: dict[str, list[dict[str, str]]] = {}
    with (ROOT / "benchmarks/data/h200_runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["warmup"] == "0" and not row["failed_checks"]:
                launches.setdefault(row["launch"], []).append(row)
    return launches


def stored(name: str) -> Baseline:
    (entry,) = (entry for entry in FileStore(ROOT / "examples/h200/baselines").all() if name in entry.path)
    return entry.baseline


def started(
    cell: Cell, baseline: Baseline | None, *, capabilities: gate.Capabilities, settings: GateSettings = DEFAULTS
) -> gate.CellState:
    state = gate.start(CellPlan(cell=cell, bounds=BOUNDS), settings=settings, capabilities=capabilities)
    return gate.with_match(state, BaselineMatch(baseline=baseline))


def looked(state: gate.CellState) -> gate.CellState:
    """After the looks that its launches allow."""
    while state.decision is None and gate.enough(state):
        state = gate.judge(state, shares=HOLM)
    return state


def concluded(state: gate.CellState) -> Decision:
    decision = gate.conclude(state, "The budget is used up.").decision
    assert decision is not None
    return decision


def with_launch(state: gate.CellState, name: str, *, arm: str = CANDIDATE, pair: int | None = None) -> gate.CellState:
    launch = Launch(id=name, session="now", arm=arm)
    runs = [_run(row, launch, state.plan) for row in rows()[name]]
    return gate.add_launch(state, launch=launch, runs=runs, pair=pair)


def _run(row: dict[str, str], launch: Launch, plan: CellPlan) -> Run:
    metrics = metrics_of(0.0, plan.bounds)
    tpot = replace(metrics.tpot_ms, mean=float(row["tpot_ms_mean"]))
    return Run(
        id=f"{launch.id}/{row['run']}",
        cell=plan.cell,
        launch=launch,
        index=int(row["run"]),
        started_at=row["started_at"],
        metrics=replace(metrics, out_tps_steady=float(row["out_tps_steady"]), tpot_ms=tpot),
        client=ClientReport(clock="kernel"),
        checks=SOUND,
    )


def against_stored_runs(baseline: Baseline, launches: Iterable[str]) -> Decision:
    """As the campaign does it without a reference arm, until a decision or the last launch."""
    state = started(baseline.cell, baseline, capabilities=ALONE)
    for name in launches:
        state = looked(with_launch(state, name))
        if state.decision is not None:
            break
    return concluded(state)


def of_machines(count: int) -> Baseline:
    """What was stored of triton at c=10 when this many machines, each a session, had recorded it."""
    baseline = stored("triton/c10-in512-out128@e7b1c642")
    sessions = list(dict.fromkeys(run.session for run in sorted(baseline.runs, key=lambda run: run.started_at)))
    return replace(baseline, runs=tuple(run for run in baseline.runs if run.session in sessions[:count]))


def head_to_head(pairs: Iterable[tuple[str, str]]) -> Decision:
    """As the campaign does it where nothing is stored: candidate and reference of each pair."""
    state = started(stored("triton/c10-in512-out128@e7b1c642").cell, None, capabilities=PAIRED)
    for number, (candidate, reference) in enumerate(pairs):
        if number == 0:
            state = gate.with_opening(looked(with_launch(state, candidate)))
        else:
            state = with_launch(state, candidate, pair=number)
        state = looked(with_launch(state, reference, arm=REFERENCE, pair=number))
        if state.decision is not None:
            break
    return concluded(state)


G_SLOWED_MORE = (("edd4b0aa", "28072454"), ("b038ccc9", "569471f8"))
"""Machine G, ``/slow_down`` 0.772 ms, which its sweep put at 10 % of the throughput."""
G_SLOWED_LESS = (
    ("00203dc8", "377c19fc"),
    ("132788f9", "6fe20fec"),
    ("dfbb8233", "a97f3fc9"),
    ("ee581fa4", "bda0d827"),
    ("75d34113", "788aa03f"),
    ("c7803d51", "d332f49d"),
)
"""0.623 ms: 2 % by the sweep."""


def test_where_nothing_is_stored_one_block_shows_ten_percent_and_proves_nothing() -> None:
    """Two pairs alone don't know their noise: at c=1 on an H200 an equal server lost or won so in 12 % of first blocks."""
    decision = head_to_head(G_SLOWED_MORE)
    assert (decision.verdict, decision.pairs) == (Verdict.INCONCLUSIVE, 2)
    _, tpot = decision.results
    assert tpot.interval is not None
    assert np.expm1(-tpot.interval.estimate) == pytest.approx(0.0905, abs=5e-4)


def test_a_loss_between_the_margins_is_neither_called_nor_passed() -> None:
    """It took 4.4 % [0.8, 7.9] of the throughput: below the margin of 5 %, and not shown to be."""
    decision = head_to_head(G_SLOWED_LESS)
    assert (decision.verdict, decision.pairs) == (Verdict.INCONCLUSIVE, 6)
    interval = decision.results[0].interval
    assert interval is not None
    assert interval.upper < 0 < -interval.estimate < BOUNDS[0].regression < -interval.lower


SLOWED = ("120c4fb4", "d777fd6a", "4eced965", "ea3945f4")
"""Of machine E, with a sleep that took 12 % of its throughput."""


def test_a_planted_regression_is_one_against_the_two_sessions_that_are_stored() -> None:
    baseline = of_machines(2)
    assert (baseline.sessions, baseline.launches) == (2, 4)
    decision = against_stored_runs(baseline, SLOWED)
    assert (decision.verdict, decision.candidate_launches) == (Verdict.REGRESSION, 2)


@pytest.mark.parametrize("launches", [SLOWED, ("6cbc209e", "0c978322"), ("2ab56148", "19e7db00")])
def test_three_sessions_show_it_in_two_launches(launches: tuple[str, ...]) -> None:
    """Of machine E by 12 %, of machine F by 13 and by 26 %."""
    baseline = of_machines(3)
    assert (baseline.sessions, baseline.launches) == (3, 5)
    decision = against_stored_runs(baseline, launches)
    assert (decision.verdict, decision.candidate_launches) == (Verdict.REGRESSION, 2)


def test_recordings_in_a_row_counted_as_sessions_would_have_hidden_it() -> None:
    baseline = of_machines(2)
    as_sessions = replace(baseline, runs=tuple(replace(run, session=run.launch) for run in baseline.runs))
    decision = against_stored_runs(as_sessions, SLOWED)
    assert (decision.verdict, decision.candidate_launches) == (Verdict.INCONCLUSIVE, 4)


def test_an_unchanged_server_of_a_slower_machine_is_no_regression() -> None:
    """Machine E is 3 to 6 % slower than what machine C had stored by then."""
    only_c = of_machines(1)
    assert (only_c.sessions, only_c.launches) == (1, 3)
    decision = against_stored_runs(only_c, ("52c35867", "129cbadb"))
    assert decision.verdict is Verdict.INCONCLUSIVE


E_VERIFIES = (
    "f01395e9",
    ("16ed6c7b", "c865cbb9", "8af659c3", "74dc349a"),
    ("7fef14d3", "45967d17", "2a4d74ef", "0e3e716e"),
)
F_VERIFIES = (
    "90648c72",
    ("17354ad5", "3ffa84cd", "70873756", "e067b7c3"),
    ("e5fe4303", "a3e272f0", "ee437917", "17b2bee1"),
)
G_VERIFIES = (
    "75ae89b6",
    ("f47b7ece", "5e969d14", "532c0cd3", "2dc20f44"),
    ("74ab7746", "1f2d36c3", "054b9dcc", "3323f088"),
)


@pytest.mark.parametrize(("screen", "references", "candidates"), [E_VERIFIES, F_VERIFIES, G_VERIFIES], ids=list("EFG"))
def test_a_win_is_verified_by_the_launches_that_verified_it(
    screen: str, references: tuple[str, ...], candidates: tuple[str, ...]
) -> None:
    """triton's launches differ by 9 %, triton_kernel's, the reference, by 1 to 2 %, and the win is +70 %."""
    baseline = stored("triton_kernel/c1-in512-out128")
    state = started(baseline.cell, baseline, capabilities=PAIRED, settings=GateSettings(verify_wins=True))
    state = gate.judge(with_launch(state, screen))
    assert state.phase == gate.VERIFY
    for pair, (reference, candidate) in enumerate(zip(references, candidates, strict=True)):
        state = with_launch(state, reference, arm=REFERENCE, pair=pair)
        state = with_launch(state, candidate, pair=pair)
    decision = gate.judge(state).decision
    assert decision is not None
    assert decision.verdict is Verdict.VERIFIED_WIN, decision.reasons


def test_frozen_objects_are_collected_in_no_run() -> None:
    """Silences of half a second in measured runs at c=10, without and with ``/freeze_gc``."""
    with (ROOT / "benchmarks/data/h200_runs.csv").open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["concurrency"] == "10" and row["machine"] != "A"]
    silent = {"0": [0, 0], "1": [0, 0]}
    for row in found:
        if row["warmup"] == "0":
            silent[row["frozen_gc"]]["no_stall_in_window" not in row["failed_checks"]] += 1
    assert silent == {"0": [14, 92], "1": [0, 120]}
    assert fisher_exact(np.array(list(silent.values()))).pvalue < 5e-5
