"""The state machine of one cell, fed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_moeperf import gate
from pytest_moeperf.gate.evidence import stored_pair_sd
from pytest_moeperf.gate.story import tell_stories
from pytest_moeperf.gate.validity import sort_runs
from pytest_moeperf.model.baseline import Baseline, BaselineMatch, StoredRun
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Check, Distribution, Evidence, Fingerprint, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import BoundResult, Decision, Interval, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import LEVEL, SOUND, metrics_of

THROUGHPUT = Bound(metric="throughput")
ONE_RUN = GateSettings(runs_per_launch=1)
PAIRED = gate.Capabilities(reference=True, relaunch=True)
ALONE = gate.Capabilities(reference=False, relaunch=True)
WIGGLE = (0.002, -0.002, 0.001, -0.001, 0.003, -0.003, 0.0, 0.001)


def plan_of(*bounds: Bound, concurrency: int = 64) -> CellPlan:
    return CellPlan(
        cell=Cell(backend="triton", workload=Workload(concurrency=concurrency)), bounds=bounds or (THROUGHPUT,)
    )


def run_of(effect: float, launch: Launch, plan: CellPlan, *, checks: tuple[Check, ...] = SOUND, index: int = 0) -> Run:
    return Run(
        id=f"{launch.id}/{index}",
        cell=plan.cell,
        launch=launch,
        index=index,
        started_at="",
        metrics=metrics_of(LEVEL + effect, plan.bounds),
        client=ClientReport(clock="user"),
        checks=checks,
    )


def match_of(
    plan: CellPlan, sessions: Sequence[Sequence[float]], values: dict[str, float] | None = None
) -> BaselineMatch:
    runs = tuple(
        StoredRun(
            id=f"{number}/{index}",
            session=f"s{number}",
            launch=f"s{number}l{index}",
            started_at="",
            values=values if values is not None else {"throughput": math.exp(LEVEL + effect)},
        )
        for number, session in enumerate(sessions)
        for index, effect in enumerate(session)
    )
    return BaselineMatch(
        baseline=Baseline(
            engine="simulated", model="m", cell=plan.cell, fingerprint=Fingerprint(), evidence=Evidence(), runs=runs
        )
    )


STORE = ((0.002, -0.002), (0.001, -0.003), (0.0, 0.002), (-0.001, 0.001))


def screened(
    effect: float,
    *,
    plan: CellPlan | None = None,
    settings: GateSettings = ONE_RUN,
    capabilities: gate.Capabilities = ALONE,
    store: Sequence[Sequence[float]] = STORE,
) -> gate.CellState:
    plan = plan or plan_of()
    state = gate.start(plan, settings=settings, capabilities=capabilities)
    state = gate.with_match(state, match_of(plan, store))
    launch = Launch(id="L0", session="now")
    return gate.judge(gate.add_launch(state, launch=launch, runs=[run_of(effect, launch, plan)]))


def with_pairs(
    state: gate.CellState, differences: Sequence[float], *, first: int = 0, checks: tuple[Check, ...] = SOUND
) -> gate.CellState:
    for number, difference in enumerate(differences, start=first):
        for arm, effect in ((REFERENCE, WIGGLE[number % 8] / 4), (CANDIDATE, WIGGLE[number % 8] / 4 + difference)):
            launch = Launch(id=f"{state.phase}{arm}{number}", session="now", arm=arm)
            run = run_of(effect, launch, state.plan, checks=checks)
            state = gate.add_launch(state, launch=launch, runs=[run], pair=number)
    return state


def decided(state: gate.CellState) -> Decision:
    assert state.decision is not None
    return state.decision


def test_what_a_cell_needs_from_start_to_end() -> None:
    state = gate.start(plan_of(), settings=ONE_RUN, capabilities=PAIRED)
    assert gate.need(state) == gate.Need(phase="screen", paired=False, count=1, runs=1)
    state = screened(-0.06, capabilities=PAIRED)
    assert gate.need(state) == gate.Need(phase="confirm", paired=True, count=2, runs=1)
    state = gate.judge(with_pairs(state, [-0.03, -0.02]))
    assert gate.need(state) == gate.Need(phase="confirm", paired=True, count=2, runs=1)
    state = gate.judge(with_pairs(state, [-0.06, 0.0], first=2))
    assert gate.need(state) == gate.Need(phase="confirm", paired=True, count=2, runs=1)
    state = gate.judge(with_pairs(state, [-0.06, 0.01], first=4))
    state = gate.judge(with_pairs(state, [-0.07, 0.01], first=6))
    assert gate.need(state) is None
    decision = decided(state)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.pairs == 8
    interval = decision.results[0].interval
    assert interval is not None
    assert interval.launches_to_decide is not None
    assert interval.launches_to_decide > 8
    assert f"about {interval.launches_to_decide} pairs in all would decide" in decision.reasons[1]


def test_the_state_is_immutable_and_judging_is_pure() -> None:
    state = with_pairs(screened(-0.06, capabilities=PAIRED), [-0.05, -0.05, -0.05, -0.05])
    again = gate.judge(state)
    assert state.decision is None
    assert gate.judge(state) == again


def test_a_loss_is_proven_at_the_first_planned_look() -> None:
    state = screened(-0.05, capabilities=PAIRED)
    state = gate.judge(with_pairs(state, [-0.05, -0.051]))
    state = gate.judge(with_pairs(state, [-0.049, -0.05], first=2))
    decision = decided(state)
    assert decision.verdict is Verdict.REGRESSION
    assert "lies beyond a loss of 1.5 %" in decision.reasons[1]


def test_the_early_look_never_passes_a_cell() -> None:
    state = gate.judge(with_pairs(screened(-0.06, capabilities=PAIRED), [0.0, 0.0001]))
    assert state.decision is None
    assert decided(gate.judge(with_pairs(state, [0.0, 0.0001], first=2))).verdict is Verdict.EQUIVALENT


def test_a_claim_against_stored_runs_alone_gets_half_of_the_error() -> None:
    state = screened(-0.5)
    launch = Launch(id="L1", session="now")
    decision = decided(gate.judge(gate.add_launch(state, launch=launch, runs=[run_of(-0.5, launch, state.plan)])))
    assert decision.verdict is Verdict.REGRESSION
    interval = decision.results[0].interval
    assert interval is not None
    assert interval.level == pytest.approx(1 - 2 * 0.0005)


def test_holms_share_can_keep_a_loss_open() -> None:
    state = screened(-0.05, capabilities=PAIRED)
    state = gate.judge(with_pairs(state, [-0.04, -0.06]))
    state = with_pairs(state, [-0.045, -0.055], first=2)
    assert gate.rejects(state, "throughput", gate.LOSS, 1.0)
    assert not gate.rejects(state, "throughput", gate.LOSS, 0.01)
    assert decided(gate.judge(state)).verdict is Verdict.REGRESSION
    assert gate.judge(state, shares={("throughput", gate.LOSS): 0.01}).decision is None
    assert {claim.side for claim in gate.claims(state)} == {gate.LOSS, gate.GAIN}


def test_at_the_cap_a_gain_that_is_not_shown_is_no_win() -> None:
    state = screened(0.04, capabilities=PAIRED)
    differences = (0.08, 0.0, 0.07, 0.01, 0.06, 0.0, 0.08, 0.0)
    for first in range(0, 8, 2):
        state = gate.judge(with_pairs(state, differences[first : first + 2], first=first))
    decision = decided(state)
    assert decision.verdict is Verdict.NON_INFERIOR
    assert "no win is shown" in decision.results[0].reason


def test_screen_mode_never_fails_by_itself_and_states_its_power() -> None:
    settings = replace(ONE_RUN, mode="screen")
    wide = ((0.03, -0.03), (0.04, 0.0), (-0.03, -0.02), (0.01, 0.05))
    decision = decided(screened(-0.02, settings=settings, store=wide))
    assert decision.verdict is Verdict.NO_CHANGE_SEEN
    assert "would have been caught with 95 %" in decision.reasons[1]
    outside = decided(screened(-0.6, settings=settings, store=wide))
    assert outside.verdict is Verdict.INCONCLUSIVE
    assert outside.next_steps[0].startswith("{pytest} --perf-mode=confirm")


def test_wide_sessions_end_at_once_where_no_launch_could_decide() -> None:
    wide = ((0.05, 0.05), (-0.04, -0.04), (0.02, 0.02), (-0.03, -0.03))
    decision = decided(screened(-0.02, store=wide))
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.candidate_launches == 1
    assert "more launches against the stored runs would not decide" in decision.reasons[1]
    assert any("[reference]" in step for step in decision.next_steps)


@pytest.mark.parametrize(("limit", "verdict"), [(1010.0, Verdict.REGRESSION), (900.0, Verdict.EQUIVALENT)])
def test_an_absolute_floor_is_judged_without_the_baseline(limit: float, verdict: Verdict) -> None:
    decision = decided(screened(0.0, plan=plan_of(Bound(metric="throughput", at_least=limit))))
    assert decision.verdict is verdict
    if verdict is Verdict.REGRESSION:
        assert decision.reasons[1] == (
            "Its absolute limit: at least 1010 tok/s, missed by 1.0 %. That compares nothing, so no baseline lifts it."
        )
        assert not any("--update-baselines" in step or "{accept}" in step for step in decision.next_steps)
        assert decision.next_steps[-1].splitlines()[1:] == ["@pytest.mark.throughput(at_least=900)"]


def test_an_absolute_limit_inside_the_noise_is_not_decided_by_the_screen() -> None:
    plan = plan_of(Bound(metric="throughput", at_least=1000.5))
    assert screened(0.0, plan=plan).phase == "confirm"
    decision = decided(screened(0.0, plan=plan, settings=replace(ONE_RUN, mode="screen")))
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "inside the noise of 1 launches" in decision.reasons[1]


def test_a_violated_limit_is_told_even_without_a_baseline() -> None:
    plan = plan_of(Bound(metric="throughput", at_least=2000.0), Bound(metric="tpot"))
    state = gate.start(plan, settings=ONE_RUN, capabilities=ALONE)
    state = gate.with_match(state, BaselineMatch(baseline=None))
    launch = Launch(id="L0", session="now")
    decision = decided(gate.judge(gate.add_launch(state, launch=launch, runs=[run_of(0.0, launch, plan)])))
    assert decision.verdict is Verdict.NO_BASELINE
    assert "absolute limit: at least 2000 tok/s, missed by 50 %" in " ".join(decision.reasons)


def test_a_baseline_without_this_metric_is_no_baseline_for_it() -> None:
    plan = plan_of(THROUGHPUT, Bound(metric="ttft", percentile="p99"))
    decision = decided(screened(0.0, plan=plan))
    assert decision.verdict is Verdict.NO_BASELINE
    assert "the baseline holds no usable ttft.p99, only throughput" in decision.reasons[1]
    assert decision.results[0].verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize("value", [0.0, -3.0, math.nan, math.inf])
def test_unusable_stored_values_are_left_out_and_told(value: float) -> None:
    plan = plan_of()
    match = match_of(plan, STORE)
    assert match.baseline is not None
    spoilt = replace(match.baseline.runs[0], values={"throughput": value})
    match = replace(match, baseline=replace(match.baseline, runs=(spoilt, *match.baseline.runs[1:])))
    state = gate.with_match(gate.start(plan, settings=ONE_RUN, capabilities=ALONE), match)
    assert state.stored["throughput"].launches == 7
    assert state.odd == ("1 stored runs hold no usable throughput (zero, negative or not a number): left out.",)


def test_only_unusable_stored_values_are_no_baseline() -> None:
    plan = plan_of()
    state = gate.start(plan, settings=ONE_RUN, capabilities=ALONE)
    state = gate.with_match(state, match_of(plan, STORE, values={"throughput": 0.0}))
    launch = Launch(id="L0", session="now")
    decision = decided(gate.judge(gate.add_launch(state, launch=launch, runs=[run_of(0.0, launch, plan)])))
    assert decision.verdict is Verdict.NO_BASELINE


def test_one_stored_run_is_a_provisional_baseline() -> None:
    decision = decided(screened(0.0, store=((0.0,),)))
    assert decision.provisional
    assert decision.verdict is Verdict.NON_INFERIOR
    assert "(1 launch in 1 session; 4 in 2 are needed): a session sd of 1 % is assumed." in decision.reasons[-1]


def test_against_a_provisional_baseline_a_loss_must_be_proven_by_its_whole_margin() -> None:
    sure = replace(ONE_RUN, assumed_session_sd=0.002, assumed_launch_sd=0.002)

    def after_two_launches(effect: float) -> gate.CellState:
        state = gate.start(plan_of(), settings=sure, capabilities=ALONE)
        state = replace(gate.with_match(state, match_of(plan_of(), ((0.0, 0.001),))), phase="confirm")
        for name in ("L0", "L1"):
            launch = Launch(id=name, session="now")
            state = gate.add_launch(state, launch=launch, runs=[run_of(effect, launch, state.plan)])
        return gate.judge(state)

    open_still, lost = after_two_launches(-0.045), after_two_launches(-0.08)
    assert open_still.decision is None
    assert decided(lost).verdict is Verdict.REGRESSION


def test_identical_stored_runs_say_what_is_taken_instead() -> None:
    decision = decided(screened(0.0, store=((0.0, 0.0),) * 4))
    assert decision.verdict is Verdict.EQUIVALENT
    interval = decision.results[0].interval
    assert interval is not None
    assert "0.1% is taken instead" in interval.warnings[0]


def test_bimodal_launches_are_flagged() -> None:
    state = screened(-0.05, capabilities=PAIRED)
    for first, pair in enumerate([(0.0, -0.2), (0.001, -0.201), (0.0, -0.2), (0.002, -0.199)]):
        state = gate.judge(with_pairs(state, pair, first=2 * first))
    decision = decided(state)
    assert not decision.verdict.passes
    assert any("the candidate's launches falls into two groups" in line for line in decision.odd)


def test_a_sign_flip_that_disagrees_is_told() -> None:
    state = screened(0.04, capabilities=PAIRED)
    differences = (0.08, 0.0, 0.07, 0.01, 0.06, 0.0, 0.08, 0.0)
    for first in range(0, 8, 2):
        state = gate.judge(with_pairs(state, differences[first : first + 2], first=first))
    assert any(line.startswith("throughput: the sign-flip cross-check over 8 pairs") for line in decided(state).odd)


# -- verification


def verifying(differences: Sequence[float], *, checks: tuple[Check, ...] = SOUND) -> gate.CellState:
    state = screened(0.5, capabilities=PAIRED, settings=replace(ONE_RUN, verify_wins=True))
    assert state.phase == "verify"
    return with_pairs(state, differences, checks=checks)


def test_a_win_that_shows_again_is_verified_with_the_new_estimate() -> None:
    decision = decided(gate.judge(verifying([0.30, 0.301, 0.299, 0.3])))
    assert decision.verdict is Verdict.VERIFIED_WIN
    interval = decision.results[0].interval
    assert interval is not None
    assert interval.estimate == pytest.approx(0.3, abs=0.002)
    assert "found as +65 %" in decision.results[0].reason
    assert decision.next_steps == ("{accept}    (records its verification; nothing is measured again)",)


def test_a_win_that_does_not_show_again_stays_unverified() -> None:
    decision = decided(gate.judge(verifying([0.02, -0.02, 0.03, -0.01])))
    assert not any("--perf-continue" in step for step in decision.next_steps), "these runs would end as they did"
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert "Verification failed: the win did not show again in fresh launches." in decision.reasons


def test_a_win_whose_output_was_not_looked_at_stays_unverified() -> None:
    unseen = decided(gate.judge(verifying([0.3, 0.301, 0.299, 0.3], checks=())))
    assert "Verification failed: the output was not compared with the reference's." in unseen.reasons
    unknown = (Check(name="output_sanity", status="unknown", message="the engine gives no text"),)
    untold = decided(gate.judge(verifying([0.3, 0.301, 0.299, 0.3], checks=unknown)))
    assert "Verification failed: the output could not be compared with the reference's: the engine gives no text." in (
        untold.reasons
    )
    assert {unseen.verdict, untold.verdict} == {Verdict.UNVERIFIED_WIN}


def speculating(state: gate.CellState, rates: dict[str, float | None]) -> gate.CellState:
    """Both arms speculate; accepted tokens a step, by arm."""
    server = Fingerprint(server={"speculative_algorithm": "EAGLE"})
    return replace(
        state,
        launches=tuple(
            replace(
                item,
                runs=tuple(
                    replace(
                        run,
                        fingerprint=server,
                        metrics=replace(run.metrics, accepted_per_step=rates[item.arm]),
                    )
                    for run in item.runs
                ),
            )
            for item in state.launches
        ),
    )


@pytest.mark.parametrize(
    ("candidate", "reference", "why"),
    [
        (2.5, 2.46, ""),
        (3.4, 2.5, "speculative decoding gave 3.4 tokens a step against 2.5, so the steps did unequal work"),
        (
            None,
            2.5,
            "the candidate speculates, and how many tokens its drafts gave a step is not shown by the server",
        ),
    ],
)
def test_acceptance_is_work(candidate: float | None, reference: float | None, why: str) -> None:
    state = speculating(verifying([0.3, 0.301, 0.299, 0.3]), {CANDIDATE: candidate, REFERENCE: reference})
    decision = decided(gate.judge(state))
    assert decision.verdict is (Verdict.UNVERIFIED_WIN if why else Verdict.VERIFIED_WIN)
    assert not why or f"Verification failed: {why}." in decision.reasons


def test_a_gain_beyond_the_margin_is_never_called_not_inferior() -> None:
    """Whether or not its discovery claimed it."""
    unclaimed = replace(verifying([0.3, 0.301, 0.299, 0.3]), discovery=None)
    assert decided(gate.judge(unclaimed)).verdict is Verdict.VERIFIED_WIN
    state = screened(0.04, capabilities=PAIRED)
    state = with_pairs(state, [0.1, 0.13, 0.07, 0.1, 0.12, 0.08, 0.07, 0.13])
    last = replace(state, look=len(gate.state.checkpoints(state)) - 1)
    shares = {(THROUGHPUT.key, side): 1e-9 for side in gate.SIDES}
    assert decided(gate.judge(last, shares=shares)).verdict is Verdict.INCONCLUSIVE, "chance among a billion cells"
    assert decided(gate.judge(last)).verdict is Verdict.UNVERIFIED_WIN


def test_a_win_by_less_work_stays_unverified() -> None:
    state = verifying([0.3, 0.301, 0.299, 0.3])
    lazy = tuple(
        replace(
            item,
            runs=tuple(replace(run, metrics=replace(run.metrics, output_tokens=8000)) for run in item.runs),
        )
        if item.arm == CANDIDATE
        else item
        for item in state.launches
    )
    decision = decided(gate.judge(replace(state, launches=lazy)))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert "the arms did unequal work: 8000 output tokens a run against 8192" in decision.reasons[-1]


def test_a_win_above_the_ceiling_stays_unverified() -> None:
    state = verifying([0.3, 0.301, 0.299, 0.3])
    limited = tuple(
        replace(item, runs=tuple(replace(run, ceiling_tok_s=1200.0) for run in item.runs)) for item in state.launches
    )
    decision = decided(gate.judge(replace(state, launches=limited)))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert "above the ceiling of this hardware, 1200 tok/s" in decision.reasons[-1]


def test_a_host_that_moved_is_no_win() -> None:
    state = verifying([0.3, 0.301, 0.299, 0.3])
    moved = tuple(
        replace(item, means={"throughput": replace(item.means["throughput"], mean=LEVEL + 0.1)})
        if item.arm == REFERENCE and item.pair in {2, 3}
        else item
        for item in state.launches
    )
    decision = decided(gate.judge(replace(state, launches=moved)))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert decision.reasons[-1] == (
        "Verification failed: the reference's second half differs from its first by +10.5 % (margin 5 %): the host may have moved."
    )


def with_arms(state: gate.CellState, reference: Sequence[float], candidate: Sequence[float]) -> gate.CellState:
    """Their output tok/s, in pairs."""
    for number, pair in enumerate(zip(reference, candidate, strict=True)):
        for arm, tok_s in zip((REFERENCE, CANDIDATE), pair, strict=True):
            launch = Launch(id=f"{state.phase}{arm}{number}", session="now", arm=arm)
            run = run_of(math.log(tok_s) - LEVEL, launch, state.plan)
            state = gate.add_launch(state, launch=launch, runs=[run], pair=number)
    return state


def test_a_noisy_candidate_does_not_hide_that_the_reference_stayed() -> None:
    """Means of the launches of an H200, c=1: triton_kernel (the reference) repeats itself ten times better than
    triton."""
    reference, candidate = (376.3, 371.0, 366.7, 364.0), (568.0, 662.5, 666.0, 608.4)
    assert decided(gate.judge(with_arms(verifying([]), reference, candidate))).verdict is Verdict.VERIFIED_WIN


NOISY_REFERENCE = (340.0, 380.0, 345.0, 385.0)


def test_a_quiet_candidate_does_not_vouch_for_a_noisy_reference() -> None:
    decision = decided(gate.judge(with_arms(verifying([]), NOISY_REFERENCE, (348.2, 389.1, 353.3, 394.2))))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert decision.reasons[-1] == (
        "Verification failed: the reference's second half differs from its first by +1.4 %, and by up to 10.7 % within "
        "its noise: a host that moved so far could have made this win."
    )


def test_a_win_that_is_larger_than_what_the_host_can_have_done_is_verified() -> None:
    decision = decided(gate.judge(with_arms(verifying([]), NOISY_REFERENCE, (600.0, 601.0, 602.0, 600.0))))
    assert decision.verdict is Verdict.VERIFIED_WIN


def test_what_is_stored_of_the_reference_tells_its_noise_too() -> None:
    verifying_noisy = screened(
        0.9,
        capabilities=PAIRED,
        settings=replace(ONE_RUN, verify_wins=True),
        store=((0.06, -0.06), (0.05, -0.07), (-0.06, 0.06), (-0.06, 0.06)),
    )
    assert verifying_noisy.phase == "verify"
    lucky = with_arms(verifying_noisy, (370.0, 370.1, 370.0, 370.2), (380.0, 380.1, 380.1, 380.0))
    decision = decided(gate.judge(lucky))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert "a host that moved so far could have made this win" in decision.reasons[-1]


def test_what_the_discovery_launched_of_the_reference_tells_its_noise_too() -> None:
    settings = replace(ONE_RUN, verify_wins=True)
    verdicts = []
    for reference in ((400.0, 330.0), (370.0, 370.5)):
        # Nothing is stored, so the discovery is a confirmation, whose first look is after two blocks.
        state = gate.start(plan_of(), settings=settings, capabilities=PAIRED)
        state = gate.with_match(state, BaselineMatch(baseline=None))
        launch = Launch(id="L0", session="now")
        state = gate.judge(gate.add_launch(state, launch=launch, runs=[run_of(0.9, launch, state.plan)]))
        assert state.phase == "confirm"
        four = 2 * reference
        state = gate.judge(gate.judge(with_arms(state, four, [10 * tok_s for tok_s in four])))
        assert state.phase == "verify"
        decision = decided(gate.judge(with_arms(state, (370.0, 371.0, 372.0, 371.0), (380.0, 381.0, 382.0, 381.0))))
        verdicts.append(decision.verdict)
    assert verdicts == [Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN]


def test_a_verification_that_finds_a_loss_is_a_regression() -> None:
    assert decided(gate.judge(verifying([-0.3, -0.301, -0.299, -0.3]))).verdict is Verdict.REGRESSION


def test_a_verification_is_judged_by_its_own_pairs_however_young_the_store_is() -> None:
    settings = replace(ONE_RUN, verify_wins=True)
    state = screened(0.9, capabilities=PAIRED, settings=settings, store=((0.0, 0.001),))
    assert (state.phase, state.provisional) == ("verify", True)
    decision = decided(gate.judge(with_pairs(state, [-0.03, -0.0301, -0.0299, -0.03])))
    assert decision.verdict is Verdict.REGRESSION
    assert "Proven worse: the whole 90 % interval lies beyond a loss of 1.5 %." in decision.reasons


def test_a_verification_that_can_not_be_paid_leaves_the_win_unverified() -> None:
    decision = decided(gate.conclude(replace(verifying([]), budget_wanted_s=800.0), "The budget is used up."))
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert decision.reasons[-1] == "Not verified: The budget is used up."
    assert decision.next_steps == (
        "{measure} --perf-verify-wins --perf-budget=14min --perf-continue -k {node}    (a larger budget)",
    )


def test_what_is_left_open_shows_the_interval_that_it_was_last_judged_by() -> None:
    """At a wider level than the next look's: half of the error of this look, and Holm's share of that."""
    store = ((0.02,), (-0.02,), (0.015,), (-0.015,))
    state = gate.judge(with_candidates(screened(-0.14, store=store), [-0.14]))
    judged = gate.judge(with_candidates(state, [-0.15, -0.14]), shares={("throughput", gate.LOSS): 0.5})
    assert judged.decision is None
    decision = decided(gate.conclude(judged, "The budget is used up."))
    (result,) = decision.results
    assert result.interval is not None
    assert (result.interval.n, result.interval.upper > -0.015) == (4, True)
    assert decision.reasons[1].startswith(
        "Neither a loss (interval beyond 1.5 %) nor its absence (interval within 5 %) is proven"
    )
    later = decided(gate.conclude(with_candidates(judged, [-0.14]), "The budget is used up."))
    (newer,) = later.results
    assert newer.interval is not None
    assert newer.interval.n == 5


def with_candidates(state: gate.CellState, effects: Sequence[float]) -> gate.CellState:
    first = len(state.launches)
    for number, effect in enumerate(effects, start=first):
        launch = Launch(id=f"L{number}", session="now")
        state = gate.add_launch(state, launch=launch, runs=[run_of(effect, launch, state.plan)])
    return state


# -- validity


def sorted_runs(runs: list[Run], wanted: int = 3) -> gate.Sorted:
    return gate.sort_runs(runs, bounds=(THROUGHPUT,), launch=Launch(id="L1", session="s"), wanted=wanted)


def checked(status: str, *, repeatable: bool = False, warmup: bool = False, effect: float = 0.0) -> Run:
    launch = Launch(id="L1", session="s")
    check = Check(name="no_compile_stall", status=status, message="TTFT 777 ms", repeatable=repeatable)
    return replace(run_of(effect, launch, plan_of(), checks=(check,)), warmup=warmup)


def test_warm_up_and_void_runs_are_left_out() -> None:
    found = sorted_runs(
        [checked("pass", warmup=True), checked("fail", repeatable=True), checked("pass"), checked("pass")]
    )
    assert len(found.valid) == 2
    assert found.problems == ()
    assert found.odd == ("no_compile_stall failed in 1 of 3 runs of candidate launch L1: TTFT 777 ms",)


def test_what_nothing_could_show_is_told_once() -> None:
    def of(message: str) -> Run:
        check = Check(name="same_server_process", status="unknown", message=message)
        return run_of(0.0, Launch(id="L1", session="s"), plan_of(), checks=(check,))

    found = sorted_runs([of("not shown: that one process gave all 3 answers"), of("not shown: that one gave all 4")])
    assert found.odd == ("Not shown: that one gave all 4",)
    assert sorted_runs([of("no such endpoint")] * 3).odd == ()


def test_a_lasting_failure_voids_the_cell() -> None:
    found = sorted_runs([checked("fail"), checked("pass"), checked("pass")])
    assert found.problems == ("no_compile_stall failed in 1 of 3 runs of candidate launch L1: TTFT 777 ms",)


def test_too_few_valid_runs_void_the_cell() -> None:
    assert sorted_runs([checked("pass")]).problems == ("candidate launch L1 gave 1 valid runs of 3 wanted",)
    assert sorted_runs([], wanted=1).problems == ("candidate launch L1 gave 0 valid runs of 1 wanted",)


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan])
def test_a_metric_without_a_logarithm_voids_the_cell(value: float | None) -> None:
    run = checked("pass")
    run = replace(run, metrics=replace(run.metrics, out_tps=value, out_tps_steady=value))
    (problem,) = sorted_runs([run], wanted=1).problems
    assert problem.startswith("throughput")


# -- stories


def told(concurrency: int, estimate: float, verdict: Verdict) -> Decision:
    interval = Interval(
        estimate=estimate, lower=estimate - 0.01, upper=estimate + 0.01, level=0.9, n=4, method="paired"
    )
    return Decision(
        cell=plan_of(concurrency=concurrency).cell,
        verdict=verdict,
        results=(BoundResult(bound=THROUGHPUT, verdict=verdict, interval=interval),),
    )


def test_a_win_is_told_what_its_neighbours_did() -> None:
    decisions = {
        "c2": told(2, -0.002, Verdict.EQUIVALENT),
        "c10": told(10, math.log(1.67), Verdict.UNVERIFIED_WIN),
        "c64": told(64, math.log(0.86), Verdict.REGRESSION),
        "c256": told(256, math.log(0.72), Verdict.REGRESSION),
    }
    found = tell_stories(decisions, {})
    assert found["c10"].odd == (
        "The neighbour c=2 did not move (-0.2 %).",
        "The neighbour c=64 moved the other way (-14.0 %).",
    )
    assert found["c256"].odd == ()


def test_a_win_that_its_neighbours_share_is_not_odd() -> None:
    decisions = {
        "c10": told(10, 0.3, Verdict.UNVERIFIED_WIN),
        "c64": told(64, 0.25, Verdict.UNVERIFIED_WIN),
    }
    assert all(decision.odd == () for decision in tell_stories(decisions, {}).values())


def test_a_control_cell_is_quoted() -> None:
    control = gate.start(plan_of(concurrency=1), settings=ONE_RUN, capabilities=PAIRED)
    control = with_pairs(replace(control, phase="verify"), [-0.1, -0.101, -0.099, -0.1])
    found = tell_stories({"c10": told(10, 0.3, Verdict.VERIFIED_WIN)}, {"c1": control})
    assert found["c10"].odd == (
        "Control cell c=1, measured in the same launches: got worse (-9.5 %) while the claim is a gain.",
    )


def with_runs(state: gate.CellState, launches: Sequence[Sequence[float]]) -> gate.CellState:
    """Candidate launches of several runs each."""
    for number, effects in enumerate(launches):
        launch = Launch(id=f"several{number}", session="now")
        runs = [run_of(effect, launch, state.plan, index=index) for index, effect in enumerate(effects)]
        state = gate.add_launch(state, launch=launch, runs=runs)
    return state


NOISY_RUNS = ((-0.06, 0.03, -0.01), (0.05, -0.04, -0.03), (0.0, -0.07, 0.04))
QUIET_RUNS = ((-0.06, -0.06, -0.059), (0.05, 0.049, 0.05), (0.0, 0.001, 0.0))


@pytest.mark.parametrize(("launches", "told"), [(NOISY_RUNS, True), (QUIET_RUNS, False), (NOISY_RUNS[:2], False)])
def test_where_the_runs_are_what_differs_longer_ones_are_advised(
    launches: Sequence[Sequence[float]], told: bool
) -> None:
    state = gate.start(plan_of(), settings=replace(ONE_RUN, runs_per_launch=3), capabilities=ALONE)
    state = with_runs(gate.with_match(state, match_of(plan_of(), STORE)), launches)
    decision = decided(gate.conclude(state, "The budget is used up."))
    advice = "or longer runs (num_prompts): those of one launch differ by 5 %, most of what launches differ by"
    assert (advice in decision.next_steps) is told, decision.next_steps


def test_what_the_arms_differ_by_is_no_noise_of_launches() -> None:
    state = gate.start(plan_of(), settings=replace(ONE_RUN, runs_per_launch=3), capabilities=PAIRED)
    state = with_runs(gate.with_match(state, match_of(plan_of(), STORE)), NOISY_RUNS)
    for number, effects in enumerate(NOISY_RUNS):
        launch = Launch(id=f"reference{number}", session="now", arm=REFERENCE)
        runs = [run_of(effect - 0.7, launch, state.plan, index=index) for index, effect in enumerate(effects)]
        state = gate.add_launch(state, launch=launch, runs=runs)
    decision = decided(gate.conclude(state, "The budget is used up."))
    assert any("those of one launch differ by 5 %" in step for step in decision.next_steps), decision.next_steps


def test_a_value_that_is_not_defined_says_why() -> None:
    tpot = Bound(metric="tpot")
    plan = plan_of(THROUGHPUT, tpot)
    launch = Launch(id="L0", session="now")
    run = run_of(0.0, launch, plan)
    for undefined, why in (({}, "too few requests or tokens for this metric"), ({"tpot": "held back"}, "held back")):
        metrics = replace(run.metrics, tpot_ms=Distribution(n=0), undefined=undefined)
        runs = [replace(run, metrics=metrics), replace(run, id="L0/1", metrics=metrics)]
        assert sort_runs(runs, bounds=[tpot], launch=launch, wanted=2).problems == (
            f"TPOT is not defined in 2 of 2 runs of candidate launch L0: {why}",
        )
        assert sort_runs(runs, bounds=[THROUGHPUT], launch=launch, wanted=2).problems == ()


@pytest.mark.parametrize(("reference", "tells"), [("", True), ("triton", True), ("cutlass", False)])
def test_stored_launches_of_another_backend_tell_nothing_of_the_candidates(reference: str, tells: bool) -> None:
    state = screened(-0.06, plan=replace(plan_of(), reference=reference), capabilities=PAIRED)
    assert (stored_pair_sd(state, THROUGHPUT) is not None) == tells
