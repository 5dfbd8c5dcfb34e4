"""Margins, intervals and the words of a bound's result."""

from __future__ import annotations

import math

import pytest

from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.verdict import Interval, Verdict
from pytest_moeperf.verdicts import (
    bound_result,
    explain,
    format_interval,
    margins,
    overall,
    proven_better,
    proven_worse,
    shown_not_worse,
)

THROUGHPUT = Bound(metric="throughput")
TPOT = Bound(metric="tpot")


def interval(lower: float, estimate: float, upper: float) -> Interval:
    return Interval(estimate=estimate, lower=lower, upper=upper, level=0.9, n=4, method="paired, look 1 of 3")


def test_margins_are_those_of_the_metric_itself() -> None:
    rate = margins(THROUGHPUT, proven=0.015)
    assert rate.loss == pytest.approx(-math.log(0.95))
    assert rate.win == pytest.approx(math.log(1.03))
    assert rate.proven_loss == pytest.approx(-math.log(0.985))
    latency = margins(TPOT, proven=0.015)
    assert latency.loss == pytest.approx(math.log(1.05))
    assert latency.win == pytest.approx(-math.log(0.97))


def test_a_tight_bound_keeps_an_indifference_zone() -> None:
    tight = margins(Bound(metric="throughput", regression=0.01, win=0.01), proven=0.015)
    assert tight.proven_loss < tight.loss
    assert tight.proven_win < tight.win


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (interval(-0.04, 0.0, 0.02), Verdict.EQUIVALENT),
        (interval(-0.04, 0.0, 0.04), Verdict.NON_INFERIOR),
        (interval(-0.06, 0.0, 0.02), None),
        (interval(-0.01, 0.035, 0.08), None),
    ],
)
def test_what_shows_not_worse(seen: Interval, verdict: Verdict | None) -> None:
    assert shown_not_worse(seen, margins(THROUGHPUT, proven=0.015)) is verdict


def test_what_is_proven() -> None:
    limits = margins(THROUGHPUT, proven=0.015)
    assert proven_worse(interval(-0.05, -0.03, -0.016), limits)
    assert not proven_worse(interval(-0.05, -0.03, -0.014), limits)
    assert not proven_worse(interval(-0.09, -0.06, -0.04), limits, full_margin=True)
    assert proven_better(interval(0.016, 0.05, 0.08), limits)
    assert not proven_better(interval(0.016, 0.029, 0.05), limits), "the mean must be beyond the win margin"
    assert not proven_better(interval(0.016, 0.05, 0.08), limits, full_margin=True)
    assert interval(-0.01, 0.0, 0.01).inside_noise
    assert not interval(0.01, 0.02, 0.03).inside_noise


def test_the_gravest_verdict_is_the_cells() -> None:
    assert overall((Verdict.EQUIVALENT, Verdict.NON_INFERIOR)) is Verdict.NON_INFERIOR
    assert overall((Verdict.UNVERIFIED_WIN, Verdict.REGRESSION)) is Verdict.REGRESSION
    assert overall((Verdict.REGRESSION, Verdict.INVALID)) is Verdict.INVALID
    with pytest.raises(ValueError, match="without a bound"):
        overall(())


def test_a_reason_is_one_sentence_with_the_figures() -> None:
    result = bound_result(
        THROUGHPUT,
        Verdict.UNVERIFIED_WIN,
        measured=731.0,
        baseline=361.0,
        interval=interval(math.log(1.96), math.log(2.02), math.log(2.09)),
    )
    assert result.reason == (
        "throughput 731 against 361 tok/s, +102 % [+96 %, +109 %] (paired, look 1 of 3, n = 4, 90 % interval): better than "
        "the baseline by more than the win margin (3 %), and nobody has shown why: it fails until it is verified"
    )


def test_a_slower_latency_has_a_plus() -> None:
    assert format_interval(TPOT, interval(-0.11, -0.1, -0.09)) == "+10.5 % [+9.4 %, +11.6 %]"


def test_an_interval_of_any_width_can_be_printed() -> None:
    assert "[-100 %" in format_interval(THROUGHPUT, interval(-5000.0, 0.0, 5000.0))


def test_every_verdict_has_words() -> None:
    assert all(explain(verdict, THROUGHPUT) for verdict in Verdict)
    assert explain(Verdict.REGRESSION, THROUGHPUT, detail="absolute limit: at least 9 tok/s, missed by 3 %") == (
        "worse than its absolute limit: at least 9 tok/s, missed by 3 %"
    )


def test_a_bound_is_called_what_people_call_it() -> None:
    bounds = (
        Bound(metric="throughput"),
        Bound(metric="tpot"),
        Bound(metric="ttft", percentile="p99"),
        Bound(metric="e2el"),
    )
    assert [bound.label for bound in bounds] == ["throughput", "TPOT", "p99 TTFT", "end-to-end latency"]
