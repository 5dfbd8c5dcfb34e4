"""When a baseline may move: every row of the rules, with the texts of the refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_moeperf.baselines import Refusal, Update, cumulative_drift, history_series, propose_update
from pytest_moeperf.baselines.levels import level
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.verdict import BoundResult, Decision, Difference, Interval, Verdict
from pytest_moeperf.model.workload import Cell, Workload

CELL = Cell(backend="triton", workload=Workload(concurrency=10))
THROUGHPUT = Bound(metric="throughput")
TPOT = Bound(metric="tpot")
BOUNDS = (THROUGHPUT, TPOT)
CONFIRMED = Evidence(status="confirmed", requested="triton", runner="triton")
GIVE_REASON = "{pytest} --update-baselines --perf-reason='why' -k {node}"
VERIFY = "{measure} --perf-verify-wins -k {node}"


def session(day: int, tok_s: float, *, launches: int = 2, runs: int = 2) -> tuple[StoredRun, ...]:
    """Runs of one day, all at one speed."""
    return tuple(
        StoredRun(
            id=f"d{day:02}-l{launch}-r{run}",
            session=f"d{day:02}",
            launch=f"d{day:02}-l{launch}",
            started_at=f"2026-11-{day:02}T10:{launch}{run}:00Z",
            values={"throughput": tok_s, "tpot": 10_000 / tok_s, "ttft.p99": 300.0},
        )
        for launch in range(launches)
        for run in range(runs)
    )


def decided(verdict: Verdict, *, estimate: float | None = None, half: float = 0.001) -> Decision:
    """``estimate``: relative change of throughput that the gate saw; TPOT the inverse. ``half`` width of its interval."""
    interval = None
    if estimate is not None:
        at = math.log1p(estimate)
        interval = Interval(estimate=at, lower=at - half, upper=at + half, level=0.95, n=4, method="paired")
    results = tuple(BoundResult(bound=bound, verdict=verdict, interval=interval) for bound in BOUNDS)
    return Decision(cell=CELL, verdict=verdict, results=results)


def propose(
    existing: Baseline | None,
    runs: tuple[StoredRun, ...],
    decision: Decision,
    *,
    reason: str = "",
    verified: bool = False,
    evidence: Evidence = CONFIRMED,
    max_drift: float = 0.1,
    session_limit: int = 12,
    engine: str = "sglang",
) -> Update | Refusal:
    return propose_update(
        existing,
        runs,
        engine=engine,
        model="m",
        bounds=BOUNDS,
        decision=decision,
        fingerprint=Fingerprint(workload={"num_prompts": 40}),
        evidence=evidence,
        max_drift=max_drift,
        by="--update-baselines",
        at="2026-12-01T00:00:00Z",
        reason=reason,
        verified=verified,
        session_limit=session_limit,
    )


def accepted(result: Update | Refusal) -> Baseline:
    assert isinstance(result, Update), result
    assert result.event == result.baseline.history[-1]
    return result.baseline


def refused(result: Update | Refusal) -> Refusal:
    assert isinstance(result, Refusal), result
    return result


def first(tok_s: float = 100.0) -> Baseline:
    return accepted(propose(None, session(1, tok_s), decided(Verdict.NO_BASELINE)))


def sessions_of(runs: tuple[StoredRun, ...]) -> list[str]:
    return sorted({run.session for run in runs})


def test_an_invocation_right_after_another_adds_launches_and_no_session() -> None:
    later = tuple(
        replace(run, id=f"{run.id}-again", session="again", launch=f"{run.launch}-again", started_at=at)
        for run, at in zip(session(1, 100.0), (f"2026-11-01T10:5{n}:00Z" for n in range(4)), strict=True)
    )
    both = accepted(propose(first(), later, decided(Verdict.EQUIVALENT)))
    assert (both.sessions, both.launches, both.provisional) == (1, 4, True)
    assert sessions_of(both.runs) == ["d01"]
    # The simulated engine draws a session's state for each invocation.
    simulated = accepted(propose(first(), later, decided(Verdict.EQUIVALENT), engine="simulated"))
    assert (simulated.sessions, simulated.provisional) == (2, False)


def test_the_first_recording_is_level_and_anchor() -> None:
    one = first()
    assert one.runs == one.anchor == session(1, 100.0)
    assert (one.retired, one.cell, one.evidence) == ((), CELL, CONFIRMED)
    assert one.provisional
    (event,) = one.history
    assert (event.kind, event.reason, event.runs, event.by) == ("recorded", "first", 4, "--update-baselines")
    assert (event.at, event.change, event.accepted) == ("2026-12-01T00:00:00Z", {}, False)
    assert event.drift == {"throughput": 0.0, "tpot": 0.0, "ttft.p99": 0.0}


def test_beside_an_incomparable_one_a_new_one_is_recorded_and_names_the_fields() -> None:
    differences = (
        Difference(field="hardware.gpu", baseline="H100", here="H200", blocking=True),
        Difference(field="software.driver", baseline="1", here="2", blocking=False),
    )
    decision = Decision(cell=CELL, verdict=Verdict.INCOMPARABLE, differences=differences)
    new = accepted(propose(first(), session(2, 50.0), decision))
    assert new.runs == new.anchor == session(2, 50.0)
    assert new.history[0].reason == "first under this fingerprint; the nearest differs in hardware.gpu"


@pytest.mark.parametrize("verdict", [Verdict.EQUIVALENT, Verdict.NON_INFERIOR, Verdict.NO_CHANGE_SEEN])
def test_the_same_level_is_extended(verdict: Verdict) -> None:
    after = accepted(propose(first(), session(2, 102.0), decided(verdict)))
    assert after.runs == (*session(1, 100.0), *session(2, 102.0))
    assert after.anchor == session(1, 100.0)
    assert not after.provisional
    event = after.history[-1]
    assert (event.kind, event.reason, event.runs) == ("extended", str(verdict), 4)
    assert event.change["throughput"] == pytest.approx(math.log(1.02), abs=1e-6)
    assert event.change["tpot"] == pytest.approx(math.log(1.02), abs=1e-6)
    assert event.drift["throughput"] == pytest.approx(math.log(1.02) / 2, abs=1e-6)


def test_undecided_runs_inside_the_margins_join_so_that_a_baseline_can_grow() -> None:
    after = accepted(propose(first(), session(2, 98.0), decided(Verdict.INCONCLUSIVE, estimate=-0.02)))
    assert after.history[-1].kind == "extended"
    assert after.sessions == 2


def test_undecided_runs_that_look_worse_need_a_reason_and_then_move() -> None:
    decision = decided(Verdict.INCONCLUSIVE, estimate=-0.07)
    assert refused(propose(first(), session(2, 93.0), decision)) == Refusal(
        reason="Not decided, and outside the noise and the regression margin: throughput -7.0 %, tpot +7.5 %.",
        next_step=f"if that is accepted: {GIVE_REASON}",
    )
    after = accepted(propose(first(), session(2, 93.0), decision, reason="ECC on"))
    assert (after.history[-1].kind, after.history[-1].reason, after.history[-1].accepted) == ("moved", "ECC on", True)


def test_undecided_runs_that_look_better_are_refused_whatever_the_reason() -> None:
    decision = decided(Verdict.INCONCLUSIVE, estimate=0.05)
    for reason in ("", "looks good"):
        assert refused(propose(first(), session(2, 105.0), decision, reason=reason)) == Refusal(
            reason="Neither proven nor verified, and outside the noise and the win margin: throughput +5.0 %, tpot -4.8 %.",
            next_step=VERIFY,
        )


@pytest.mark.parametrize("estimate", [-0.07, 0.05])
def test_undecided_runs_inside_the_noise_join_wherever_their_estimate_is(estimate: float) -> None:
    """One launch of a noisy cell against another, as on an H200 at c=1: +4.7 % [-2.6, +12.5]."""
    decision = decided(Verdict.INCONCLUSIVE, estimate=estimate, half=0.08)
    after = accepted(propose(first(), session(2, 100 * (1 + estimate)), decision))
    assert (after.history[-1].kind, after.sessions) == ("extended", 2)
    # Who gives a reason for a loss accepts a new level.
    if estimate < 0:
        moved = accepted(propose(first(), session(2, 93.0), decision, reason="ECC on"))
        assert moved.history[-1].kind == "moved"


def test_without_an_interval_the_estimate_comes_from_the_runs() -> None:
    assert "throughput -7.0 %" in refused(propose(first(), session(2, 93.0), decided(Verdict.INCONCLUSIVE))).reason


def test_a_worse_level_needs_a_reason() -> None:
    decision = decided(Verdict.REGRESSION, estimate=-0.5)
    assert refused(propose(first(), session(2, 50.0), decision)) == Refusal(
        reason="A worse level needs a reason: throughput -50 %, tpot +100 % against the stored one.",
        next_step=GIVE_REASON,
    )
    after = accepted(propose(first(), session(2, 50.0), decision, reason="safety fix #12"))
    assert after.runs == session(2, 50.0)
    assert after.anchor == session(1, 100.0)
    assert after.retired == ()
    event = after.history[-1]
    assert (event.kind, event.reason, event.accepted) == ("moved", "safety fix #12", True)
    assert event.change["throughput"] == event.drift["throughput"] == pytest.approx(math.log(0.5), abs=1e-6)


@pytest.mark.parametrize(("verdict", "verified"), [(Verdict.UNVERIFIED_WIN, True), (Verdict.VERIFIED_WIN, False)])
def test_a_win_that_nobody_verified_is_refused_whatever_the_reason(verdict: Verdict, verified: bool) -> None:
    for reason in ("", "it is faster"):
        result = propose(first(), session(2, 167.0), decided(verdict, estimate=0.67), reason=reason, verified=verified)
        assert refused(result) == Refusal(
            reason="A win that nobody verified does not move a baseline: throughput +67 %, tpot -40 %.",
            next_step=VERIFY,
        )


def test_an_unverified_win_beside_a_regression_is_refused_too() -> None:
    mixed = Decision(
        cell=CELL,
        verdict=Verdict.REGRESSION,
        results=(
            BoundResult(bound=THROUGHPUT, verdict=Verdict.UNVERIFIED_WIN),
            BoundResult(bound=TPOT, verdict=Verdict.REGRESSION),
        ),
    )
    result = refused(propose(first(), session(2, 130.0), mixed, reason="why not"))
    assert result.reason == "A win that nobody verified does not move a baseline: throughput +30 %."


def test_a_verified_win_moves_far_beyond_the_drift_bound_and_only_by_its_own_runs() -> None:
    after = accepted(propose(first(), session(2, 167.0), decided(Verdict.VERIFIED_WIN, estimate=0.67), verified=True))
    assert after.runs == session(2, 167.0)
    assert after.history[-1].kind == "moved"
    again = accepted(propose(after, session(3, 169.0), decided(Verdict.EQUIVALENT)))
    assert sessions_of(again.runs) == ["d02", "d03"]


def test_earlier_levels_are_retired_and_the_anchor_never_changes() -> None:
    two = accepted(propose(first(), session(2, 101.0), decided(Verdict.EQUIVALENT)))
    three = accepted(propose(two, session(3, 90.0), decided(Verdict.REGRESSION), reason="driver"))
    four = accepted(propose(three, session(4, 80.0), decided(Verdict.REGRESSION), reason="kernel"))
    assert four.anchor == session(1, 100.0)
    assert sessions_of(four.runs) == ["d04"]
    assert sessions_of(four.retired) == ["d02", "d03"]
    assert cumulative_drift(four)["throughput"] == pytest.approx(math.log(0.8))
    assert [point.launch for point in history_series(four)] == [
        f"d{day:02}-l{n}" for day in range(1, 5) for n in (0, 1)
    ]
    assert [point.current for point in history_series(four)] == [False] * 6 + [True] * 2
    assert history_series(four)[0].values["throughput"] == pytest.approx(100.0)


def test_steps_inside_the_margins_may_not_add_up_beyond_the_drift_bound() -> None:
    level_now, tok_s, day = first(), 100.0, 1
    result: Update | Refusal | None = None
    while not isinstance(result, Refusal) and day < 9:
        day, tok_s = day + 1, tok_s * 0.96
        result = propose(level_now, session(day, tok_s), decided(Verdict.EQUIVALENT), session_limit=1)
        if isinstance(result, Update):
            level_now = result.baseline
    assert tok_s == pytest.approx(100 * 0.96**3)
    assert result == Refusal(
        reason="throughput would be -11.5 % from the anchor of 2026-11-01 (100 tok/s), by steps of which none was "
        "accepted with a reason; the bound on that drift is 10 %.",
        next_step=GIVE_REASON,
    )
    with_reason = propose(
        level_now, session(day, tok_s), decided(Verdict.EQUIVALENT), reason="aged SSD", session_limit=1
    )
    reasoned = accepted(with_reason)
    assert reasoned.history[-1].accepted
    # What was accepted is the new floor: the next step has the whole bound again, from there.
    accepted(propose(reasoned, session(20, tok_s * 0.95), decided(Verdict.EQUIVALENT), session_limit=1))
    refused(propose(reasoned, session(20, tok_s * 0.89), decided(Verdict.EQUIVALENT), session_limit=1))


def test_creeping_up_is_bounded_too() -> None:
    two = accepted(propose(first(), session(2, 105.0), decided(Verdict.EQUIVALENT), session_limit=1))
    result = refused(propose(two, session(3, 111.0), decided(Verdict.EQUIVALENT), session_limit=1))
    assert result.reason.startswith("throughput would be +11.0 % from the anchor of 2026-11-01 (100 tok/s)")
    assert result.next_step == GIVE_REASON


def test_a_verified_win_does_not_lift_the_floor_of_what_nobody_accepted() -> None:
    low = accepted(propose(first(), session(2, 92.0), decided(Verdict.NON_INFERIOR), session_limit=1))
    win = accepted(propose(low, session(3, 96.0), decided(Verdict.VERIFIED_WIN), verified=True, session_limit=1))
    refused(propose(win, session(4, 89.0), decided(Verdict.NON_INFERIOR), session_limit=1))


def test_a_level_keeps_its_newest_sessions_and_retires_the_others() -> None:
    now = first()
    for day in range(2, 15):
        now = accepted(propose(now, session(day, 100.0, launches=1, runs=1), decided(Verdict.EQUIVALENT)))
    assert sessions_of(now.runs) == [f"d{day:02}" for day in range(3, 15)]
    assert sessions_of(now.retired) == ["d02"]
    assert sessions_of(now.anchor) == ["d01"]


def test_only_valid_runs_with_the_gated_values_and_the_right_backend_count() -> None:
    invalid = Decision(cell=CELL, verdict=Verdict.INVALID, reasons=("2 of 40 requests failed.",))
    assert refused(propose(first(), session(2, 100.0), invalid)) == Refusal(
        reason="Only valid runs make a baseline.",
        next_step="fix that, then {pytest} --update-baselines -k {node}",
        because="2 of 40 requests failed.",
    )
    equivalent = decided(Verdict.EQUIVALENT)
    assert refused(propose(None, (), equivalent)).reason == "There is no valid run that is no warm-up."
    without = (replace(session(2, 100.0)[0], values={"throughput": 100.0}),)
    assert refused(propose(None, without, equivalent)).reason == (
        "Run d02-l0-r0 has no value for tpot, on which the test gates."
    )
    fallback = Evidence(status="contradicted", requested="triton", runner="native")
    assert refused(propose(None, session(2, 100.0), equivalent, evidence=fallback)).reason == (
        "native ran instead of triton."
    )
    other = Evidence(status="confirmed", requested="triton", runner="triton_kernel")
    assert refused(propose(first(), session(2, 100.0), equivalent, evidence=other)).reason == (
        "The new runs executed triton_kernel, those of the baseline triton."
    )


def test_the_same_runs_twice_are_refused() -> None:
    assert refused(propose(first(), session(1, 100.0), decided(Verdict.EQUIVALENT))).reason == (
        "All of these runs are in the baseline already."
    )


def test_a_reference_of_another_backend_is_not_moved_by_a_candidate() -> None:
    reference = replace(first(), cell=replace(CELL, backend="cutlass"))
    assert refused(propose(reference, session(2, 100.0), decided(Verdict.EQUIVALENT))) == Refusal(
        reason="triton c=10 512/128 was held against the baseline of cutlass c=10 512/128, "
        "which only its own runs may change.",
        next_step="{pytest} --update-baselines --backend=cutlass",
    )


def test_a_session_counts_once_however_many_launches_it_has() -> None:
    runs = (*session(1, 100.0, launches=5), *session(2, 121.0, launches=1))
    assert math.exp(level(runs)["throughput"]) == pytest.approx(110.0)
    assert math.exp(-level(runs)["tpot"]) == pytest.approx(10_000 / 110.0)
