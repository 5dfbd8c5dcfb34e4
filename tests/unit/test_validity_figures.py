"""A run that was written down must be one that can have been."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_samples import cell, decided, moeperf, outcome, record, report, runs
from load_samples import steady_run

from pytest_moeperf.metrics import compute_metrics
from pytest_moeperf.model.run import Run
from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.validity.figures import contradiction

WORKLOAD = Workload(concurrency=4, input_len=64, output_len=16, num_prompts=16)


@pytest.fixture
def honest() -> Run:
    of = Cell(backend="triton", workload=WORKLOAD)
    load = steady_run(concurrency=4, waves=4, tokens=16)
    return replace(runs(cell(), day=1)[0], cell=of, metrics=compute_metrics(load, WORKLOAD))


def test_what_was_measured_contradicts_nothing(honest: Run) -> None:
    assert contradiction(honest) == ""


@pytest.mark.parametrize("factor", [100.0, 1.5, 0.5])
@pytest.mark.parametrize("figure", ["out_tps", "duration_s", "output_tokens", "tpot_ms", "e2el_ms"])
def test_a_figure_that_was_changed_alone_is_found(honest: Run, figure: str, factor: float) -> None:
    value = getattr(honest.metrics, figure)
    changed: Any = replace(value, mean=value.mean * factor) if figure.endswith("_ms") else type(value)(value * factor)
    assert contradiction(replace(honest, metrics=replace(honest.metrics, **{figure: changed})))


def test_a_steady_window_holds_no_more_tokens_than_the_run(honest: Run) -> None:
    steady = honest.metrics.out_tps_steady
    assert steady is not None
    said = contradiction(replace(honest, metrics=replace(honest.metrics, out_tps_steady=100 * steady)))
    assert "tok/s in a steady window of" in said


def test_nothing_is_faster_than_its_ceiling(honest: Run) -> None:
    assert "above its ceiling of 0.5 tok/s" in contradiction(replace(honest, ceiling_tok_s=0.5))


def test_a_report_that_contradicts_itself_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(record(Path("baselines"), cell(), days=[1, 2, 3, 4]))
    before = path.read_text()
    made = outcome(decided(cell(), Verdict.VERIFIED_WIN, estimate=4.6), runs(cell(), day=20))
    made = replace(
        made, decision=replace(made.decision, verification_launches=tuple({run.launch.id for run in made.runs}))
    )
    file = Path(report(Path("perf"), made))
    file = file / "moeperf.json" if file.is_dir() else file
    data = json.loads(file.read_text())
    for run in data["outcomes"][0]["runs"]:
        for figure in ("out_tps", "out_tps_steady"):
            run["metrics"][figure] *= 100
    file.write_text(json.dumps(data))
    ran = moeperf("accept", cell().key, "--reason=x", "--from=perf")
    assert ran.code == 1
    assert "not accepted\n  The report contradicts itself: run 1 of launch d20-1 has" in ran.err
    assert path.read_text() == before


def test_figures_that_were_left_out_hide_nothing(honest: Run) -> None:
    metrics = honest.metrics
    for without in (
        replace(metrics, out_tps=None),
        replace(metrics, duration_s=0.0),
        replace(metrics, duration_s=float("nan")),
        replace(metrics, steady_window_s=None),
        replace(metrics, ttft_ms=replace(metrics.ttft_ms, mean=None), tpot_ms=replace(metrics.tpot_ms, mean=500.0)),
    ):
        assert contradiction(replace(honest, metrics=without))
