"""Where the time went."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reporting_samples import outcome, runs

from pytest_moeperf.model.verdict import Verdict
from pytest_moeperf.reporting.spent import Spent, time_spent


def test_each_launch_and_each_run_counts_once() -> None:
    made = runs(64, tok_s=1000.0, launches=2)
    made = tuple(replace(run, warmup=run.index == 0) for run in made)
    warming_s, measuring_s = (
        sum(run.metrics.duration_s for run in made if run.warmup is warmup) for warmup in (True, False)
    )
    one = outcome(64, Verdict.EQUIVALENT, made=made)
    spent = time_spent([one, one], elapsed_s=2 * 181.0 + warming_s + measuring_s + 10.0)
    assert spent.launching_s == 2 * 181.0
    assert 0 < spent.warming_s == pytest.approx(warming_s)
    assert 0 < spent.measuring_s == pytest.approx(measuring_s)
    assert spent.rest_s == pytest.approx(10.0)


def test_a_launch_that_another_paid_for_costs_nothing() -> None:
    made = runs(64, tok_s=1000.0, launches=1)
    shared = tuple(replace(run, launch=replace(run.launch, start_s=None, reused=True)) for run in made)
    spent = time_spent([outcome(64, Verdict.EQUIVALENT, made=shared)], elapsed_s=0.0)
    assert (spent.launching_s, spent.rest_s) == (0.0, 0.0)


def test_the_text() -> None:
    spent = Spent(launching_s=125.0, warming_s=5.0, measuring_s=14.0, rest_s=2.0)
    assert spent.text == "launching 2 min, warm-up runs 5.0 s, measured runs 14 s, the rest 2.0 s"
