"""The campaign over scripted benches: which launches it asks for, and what the cells end as."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from pytest_moeperf.campaign import Campaign, CampaignEvent, CellResult, plan_campaign
from pytest_moeperf.errors import ServerError
from pytest_moeperf.gate.state import CONFIRM_ALPHA, GROSS_ALPHA
from pytest_moeperf.model.baseline import Baseline, BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Check, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import Difference, Verdict
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import LEVEL, SOUND, Noise, metrics_of, stored_baseline
from pytest_moeperf.units import parse_duration_s

THROUGHPUT = Bound(metric="throughput")
TPOT = Bound(metric="tpot")
DEFAULTS = GateSettings()
QUIET = Noise(session_sd=0.003, launch_sd=0.003, run_sd=0.001)


def plan_of(concurrency: int = 64, bounds: tuple[Bound, ...] = (THROUGHPUT, TPOT)) -> CellPlan:
    return CellPlan(cell=Cell(backend="triton", workload=Workload(concurrency=concurrency)), bounds=bounds)


@dataclass
class ScriptedBench:
    """A server whose every value is known: ``LEVEL`` + the arm's change + a small wobble from a seed."""

    change: dict[int, float] = field(default_factory=dict)
    """Effect of the candidate by concurrency."""
    stored: dict[int, Baseline] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    can_launch_reference: bool = False
    can_relaunch: bool = True
    warm: bool = False
    """The first launch finds a server that is up."""
    wobble: float = 0.002
    checks: tuple[Check, ...] = SOUND
    fails: dict[int, BaseException] = field(default_factory=dict)
    """By number of the launch, from 1."""
    reference_error: Exception | None = None
    asked: list[tuple[str, bool]] = field(default_factory=list)
    measured: list[tuple[str, int]] = field(default_factory=list)
    session: str = "now"
    now_s: float = 0.0
    tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = random.Random(7)

    def clock(self) -> float:
        return self.now_s

    def running(self, arm: str) -> str:
        return "warm server, pid 12" if self.warm and arm == CANDIDATE and not self.asked else ""

    @contextmanager
    def launch(self, arm: str, *, fresh: bool) -> Iterator[ScriptedServer]:
        self.asked.append((arm, fresh))
        error = self.fails.get(len(self.asked)) or (self.reference_error if arm == REFERENCE else None)
        if error is not None:
            raise error
        self.now_s += 60
        number = len(self.asked) if self.can_relaunch else 1
        launch = Launch(id=f"{self.session}-{number}", session=self.session, arm=arm, reused=self.warm and not fresh)
        yield ScriptedServer(self, launch)

    def run(self, cell: Cell, launch: Launch, index: int) -> Run:
        self.now_s += 10
        concurrency = cell.workload.concurrency
        shift = self.change.get(concurrency, 0.0) if launch.arm == CANDIDATE else 0.0
        metrics = metrics_of(LEVEL + shift + self.source.gauss(0, self.wobble), (THROUGHPUT, TPOT))
        return Run(
            id=f"{launch.id}/{concurrency}/{index}",
            cell=cell,
            launch=launch,
            index=index,
            started_at="",
            metrics=replace(metrics, output_tokens=self.tokens.get(launch.arm, metrics.output_tokens)),
            client=ClientReport(clock="user"),
            checks=self.checks,
        )

    def baseline_for(self, run: Run) -> BaselineMatch:
        return BaselineMatch(baseline=self.stored.get(run.cell.workload.concurrency), differences=self.differences)

    def expected_launch_s(self, arm: str) -> float:
        del arm
        return 60.0

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        del cell
        return 10.0 * runs


@dataclass
class ScriptedServer:
    bench: ScriptedBench
    launch: Launch

    def measure(self, cell: Cell, *, runs: int) -> Sequence[Run]:
        self.bench.measured.append((self.launch.arm, cell.workload.concurrency))
        return [self.bench.run(cell, self.launch, index) for index in range(runs)]


def stored(sessions: int, launches: int, *, concurrency: int = 64, noise: Noise = QUIET, seed: int = 3) -> Baseline:
    return stored_baseline(
        noise,
        cell=plan_of(concurrency).cell,
        bounds=(THROUGHPUT, TPOT),
        source=random.Random(seed),
        sessions=sessions,
        launches=launches,
        runs=3,
    )


def run_one(
    bench: ScriptedBench, settings: GateSettings = DEFAULTS, *, bounds: tuple[Bound, ...] = (THROUGHPUT, TPOT)
) -> CellResult:
    plan = plan_of(bounds=bounds)
    return Campaign([plan], bench=bench, settings=settings, clock=bench.clock).run()[plan.cell.key]


def test_without_a_baseline_the_cell_names_the_way_to_one() -> None:
    decision = run_one(ScriptedBench()).decision
    assert decision.verdict is Verdict.NO_BASELINE
    assert decision.reasons[0] == "throughput at c=64 512/128: 1000 tok/s."
    assert decision.next_steps == ("{pytest} --update-baselines -k {node}    (records this cell)",)
    assert [result.verdict for result in decision.results] == [Verdict.NO_BASELINE] * 2


def test_a_blocking_difference_is_named_with_both_values_and_the_way_out() -> None:
    blocking = Difference(field="workload.num_prompts", baseline="40", here="256", blocking=True)
    bench = ScriptedBench(stored={64: stored(4, 2)}, differences=(blocking,))
    result = run_one(bench)
    assert result.decision.verdict is Verdict.INCOMPARABLE
    assert "number of prompts in a run: 40 in the baseline, 256 here." in result.decision.reasons
    assert result.decision.differences == (blocking,)
    again, beside, own = result.decision.next_steps
    assert again == "Once what differs is set back, or on the machine of the baseline: {pytest} -k {node}"
    assert beside.endswith(': {pytest} -k {node}\n[reference]\npython = "/opt/sglang-before/bin/python"')
    assert own.startswith("If these conditions stay")
    assert not result.match.comparable
    assert len(bench.asked) == 1


def test_an_incomparable_baseline_is_no_obstacle_where_a_reference_can_be_launched() -> None:
    blocking = Difference(field="software.cuda", baseline="12", here="13", blocking=True)
    bench = ScriptedBench(stored={64: stored(4, 2)}, differences=(blocking,), can_launch_reference=True)
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.EQUIVALENT
    assert (decision.phase, decision.pairs) == ("confirm", 4)
    assert (decision.candidate_launches, decision.reference_launches) == (4, 4), "the screen is half of the first pair"


def test_a_non_blocking_difference_is_shown_and_compared() -> None:
    note = Difference(field="environment.governor", baseline="performance", here="powersave", blocking=False)
    decision = run_one(ScriptedBench(stored={64: stored(4, 2)}, differences=(note,))).decision
    assert decision.verdict is Verdict.EQUIVALENT
    assert decision.differences == (note,)


def test_a_quiet_host_decides_in_one_launch_that_need_not_be_fresh() -> None:
    bench = ScriptedBench(stored={64: stored(4, 2)})
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.EQUIVALENT
    assert bench.asked == [(CANDIDATE, False)]
    assert decision.phase == "screen"
    interval = decision.results[0].interval
    assert interval is not None
    assert interval.method == "prediction interval, 4 sessions x 2 launches stored"
    assert interval.level == pytest.approx(0.98)


def test_one_launch_serves_every_cell_and_only_the_open_ones_go_on() -> None:
    bench = ScriptedBench(
        change={10: math.log(0.5)},
        stored={c: stored(4, 2, concurrency=c) for c in (1, 10, 64)},
        can_launch_reference=True,
    )
    plans = [plan_of(c) for c in (1, 10, 64)]
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()
    assert [results[plan.cell.key].decision.verdict for plan in plans] == [
        Verdict.EQUIVALENT,
        Verdict.REGRESSION,
        Verdict.EQUIVALENT,
    ]
    assert bench.measured[:3] == [(CANDIDATE, 1), (CANDIDATE, 10), (CANDIDATE, 64)]
    assert {concurrency for _, concurrency in bench.measured[3:]} == {10}
    assert len(bench.asked) == 5, "one screen and one ABBA block: -50 % is a gross change"


def test_blocks_are_balanced_fresh_and_seeded() -> None:
    def slower() -> ScriptedBench:
        return ScriptedBench(change={64: math.log(0.95)}, stored={64: stored(4, 2)}, can_launch_reference=True)

    orders = set()
    for seed in range(8):
        bench = slower()
        run_one(bench, GateSettings(seed=seed))
        block = tuple(arm for arm, _ in bench.asked[1:5])
        assert block in {(REFERENCE, CANDIDATE, CANDIDATE, REFERENCE), (CANDIDATE, REFERENCE, REFERENCE, CANDIDATE)}
        assert all(fresh for _, fresh in bench.asked[1:])
        orders.add(block)
        again = slower()
        run_one(again, GateSettings(seed=seed))
        assert again.asked == bench.asked
    assert len(orders) == 2


def test_where_nothing_is_stored_the_screen_opens_the_first_block() -> None:
    """Nothing was read off its launch, so it is as good as any other."""
    bench = ScriptedBench(change={64: math.log(0.5)}, can_launch_reference=True)
    decision = run_one(bench).decision
    assert (decision.verdict, decision.pairs) == (Verdict.REGRESSION, 4)
    assert bench.asked[:4] == [(CANDIDATE, False), (REFERENCE, True), (REFERENCE, True), (CANDIDATE, True)]


def test_a_screen_that_was_judged_or_not_launched_afresh_opens_no_block() -> None:
    change = {64: math.log(0.5)}
    limited = replace(THROUGHPUT, at_least=1.0)
    judged = ScriptedBench(change=change, can_launch_reference=True)
    assert run_one(judged, bounds=(limited,)).decision.pairs == 4
    compared = ScriptedBench(change=change, stored={64: stored(4, 2)}, can_launch_reference=True)
    assert run_one(compared).decision.pairs == 2
    warm = ScriptedBench(change=change, can_launch_reference=True, warm=True)
    assert run_one(warm).decision.pairs == 4
    assert [len(bench.asked) for bench in (judged, compared, warm)] == [9, 5, 9]


@pytest.mark.parametrize("change", [1.0, 0.5])
def test_a_screen_opens_no_block_of_some_of_its_cells(change: float) -> None:
    """A server that has measured another cell in between is not the one that the fresh launches are."""
    bench = ScriptedBench(
        change={1: math.log(0.5), 64: math.log(change)},
        stored={64: stored(4, 2)},
        can_launch_reference=True,
    )
    plans = [plan_of(c) for c in (1, 64)]
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()
    assert results[plans[0].cell.key].decision.verdict is Verdict.REGRESSION
    assert len(bench.asked) == 1 + 8, "two blocks: without stored launches one shows no change among several bounds"


def test_a_screen_opens_the_block_of_all_its_cells() -> None:
    change = {c: math.log(0.5) for c in (1, 64)}
    bench = ScriptedBench(change=change, can_launch_reference=True)
    plans = [plan_of(c) for c in (1, 64)]
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()
    assert [results[plan.cell.key].decision.verdict for plan in plans] == [Verdict.REGRESSION] * 2
    assert len(bench.asked) == 8
    assert len(bench.measured) == 16


def test_an_interrupted_block_that_the_screen_had_opened_goes_on() -> None:
    change = {64: math.log(0.5)}
    for fails, resumed, missing in ((2, 3, 8), (3, 6, 6), (4, 9, 6)):
        bench = ScriptedBench(change=change, can_launch_reference=True, fails={fails: KeyboardInterrupt()})
        plan = plan_of()
        interrupted = Campaign([plan], bench=bench, settings=GateSettings(), clock=bench.clock)
        with pytest.raises(KeyboardInterrupt):
            interrupted.run()
        assert len(interrupted.runs) == resumed
        later = ScriptedBench(change=change, can_launch_reference=True, session="later")
        campaign = Campaign(
            [plan], bench=later, settings=GateSettings(), clock=later.clock, resume_runs=interrupted.runs
        )
        assert campaign.run()[plan.cell.key].decision.verdict is Verdict.REGRESSION
        assert len(later.asked) == missing, "a launch without its partner of the same session is of no use"


def test_against_stored_runs_a_gross_loss_takes_two_launches() -> None:
    bench = ScriptedBench(change={64: math.log(0.5)}, stored={64: stored(1, 2)})
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.REGRESSION
    assert decision.provisional
    assert decision.candidate_launches == 2
    assert bench.asked == [(CANDIDATE, False), (CANDIDATE, True)]
    assert any("provisional (2 launches in 1 session; 4 in 2 are needed)" in reason for reason in decision.reasons)
    assert "lies beyond a loss of 5 %" in decision.reasons[2]


def test_a_provisional_baseline_does_not_cry_wolf_at_four_percent() -> None:
    bench = ScriptedBench(change={64: math.log(0.96)}, stored={64: stored(1, 2)})
    decision = run_one(bench).decision
    assert decision.verdict is not Verdict.REGRESSION
    assert not decision.verdict.passes


def test_a_win_fails_until_it_is_verified() -> None:
    bench = ScriptedBench(change={64: math.log(1.67)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert decision.next_steps == ("{measure} --perf-verify-wins --perf-continue    (8 more launches)",)
    assert decision.reasons[2].startswith("Better than the baseline by more than the win margin (3 %)")


def test_an_attached_server_gets_more_runs_in_its_one_launch() -> None:
    bench = ScriptedBench(change={64: math.log(0.6)}, stored={64: stored(1, 2)}, can_relaunch=False)
    result = run_one(bench)
    assert result.decision.verdict is Verdict.REGRESSION
    assert result.decision.candidate_launches == 1
    assert len(result.runs) == 3 + 6
    assert not any(fresh for _, fresh in bench.asked)


def test_invalid_runs_name_their_check() -> None:
    failed = Check(name="no_failed_requests", status="fail", message="3 of 64 requests failed: in_band_error")
    decision = run_one(ScriptedBench(stored={64: stored(4, 2)}, checks=(failed,))).decision
    assert decision.verdict is Verdict.INVALID
    assert decision.reasons[0] == (
        "The runs can't be trusted: no_failed_requests failed in 3 of 3 runs of candidate launch now-1: "
        "3 of 64 requests failed: in_band_error."
    )


def test_a_crashing_candidate_propagates_and_keeps_what_was_measured() -> None:
    bench = ScriptedBench(
        change={64: math.log(0.5)},
        stored={64: stored(1, 2)},
        fails={2: ServerError(what="exited with code 1 after 3.2 s")},
    )
    campaign = Campaign([plan_of()], bench=bench, settings=GateSettings(), clock=bench.clock)
    with pytest.raises(ServerError, match="exited with code 1"):
        campaign.run()
    assert len(campaign.runs) == 3


def test_a_reference_that_does_not_start_leaves_the_stored_runs() -> None:
    error = ServerError(what="reference not ready after 60 s", hint="out of memory")
    bench = ScriptedBench(
        change={64: math.log(0.5)},
        stored={64: stored(4, 2)},
        can_launch_reference=True,
        reference_error=error,
    )
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.REGRESSION
    assert decision.pairs == 0
    assert (
        "The reference arm could not be launched: reference not ready after 60 s (out of memory)." in decision.reasons
    )


def test_a_reference_that_does_not_start_without_a_baseline_is_never_green() -> None:
    error = ServerError(what="reference exited with code 1")
    bench = ScriptedBench(can_launch_reference=True, reference_error=error)
    decision = run_one(bench).decision
    assert decision.verdict is Verdict.NO_BASELINE
    assert "The reference arm could not be launched: reference exited with code 1." in decision.reasons


def test_recording_launches_afresh_and_says_how_it_compares() -> None:
    plan = plan_of()
    bench = ScriptedBench(change={64: math.log(0.8)}, stored={64: stored(4, 2)})
    settings = GateSettings(record_launches=2)
    result = Campaign([plan], bench=bench, settings=settings, record=True, clock=bench.clock).run()[plan.cell.key]
    assert bench.asked == [(CANDIDATE, True), (CANDIDATE, True)]
    assert (result.decision.phase, result.decision.verdict) == ("record", Verdict.REGRESSION)
    assert len(result.runs) == 6


def test_recording_without_a_baseline() -> None:
    plan = plan_of()
    bench = ScriptedBench()
    result = Campaign([plan], bench=bench, settings=GateSettings(), record=True, clock=bench.clock).run()[plan.cell.key]
    assert (result.decision.phase, result.decision.verdict) == ("record", Verdict.NO_BASELINE)
    assert result.decision.candidate_launches == 2


@pytest.mark.parametrize("budget_s", [0.0, 30.0])
def test_a_budget_too_small_for_anything_is_inconclusive(budget_s: float) -> None:
    bench = ScriptedBench(stored={64: stored(4, 2)})
    decision = run_one(bench, GateSettings(budget_s=budget_s)).decision
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert bench.asked == []
    assert any("--perf-budget" in reason for reason in decision.reasons)
    enough = re.fullmatch(r"\{pytest\} --perf-budget=(\S+) -k \{node\}    \(a larger budget\)", decision.next_steps[0])
    assert enough is not None
    assert run_one(bench, GateSettings(budget_s=parse_duration_s(enough[1]))).decision.verdict is Verdict.EQUIVALENT


def test_a_budget_that_was_not_what_ended_it_is_not_advised() -> None:
    bench = ScriptedBench(change={64: math.log(0.96)}, stored={64: stored(1, 1)})
    decision = run_one(bench, GateSettings(budget_s=9000.0)).decision
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert not any("--perf-budget" in text for text in (*decision.reasons, *decision.next_steps))


@pytest.mark.parametrize(
    ("budget_s", "told"),
    [
        (200.0, "3 min (--perf-budget) is used up: 2 min is left, and 4 more launches would take about 6 min."),
        # Both are 6 minutes, which would read as if they fitted.
        (440.0, "7 min (--perf-budget) is used up: 350 s is left, and 4 more launches would take about 360 s."),
    ],
)
def test_a_budget_for_the_screen_alone_stops_before_the_first_block(budget_s: float, told: str) -> None:
    bench = ScriptedBench(change={64: math.log(0.95)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    decision = run_one(bench, GateSettings(budget_s=budget_s)).decision
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert len(bench.asked) == 1
    assert decision.reasons[-1] == f"The budget of {told}"


@pytest.mark.parametrize(("reference", "option"), [(True, "--perf-mode=confirm"), (False, "[reference]")])
def test_the_way_to_a_head_to_head_is_the_one_that_is_missing(reference: bool, option: str) -> None:
    blocking = Difference(field="workload.num_prompts", baseline="40", here="256", blocking=True)
    bench = ScriptedBench(stored={64: stored(4, 2)}, differences=(blocking,), can_launch_reference=reference)
    decision = run_one(bench, GateSettings(mode="screen")).decision
    assert decision.verdict is Verdict.INCOMPARABLE
    (step,) = [step for step in decision.next_steps if "head to head" in step.lower()]
    assert option in step


class Pessimist(ScriptedBench):
    """Its store is empty or old: it expects a hundred times what runs take."""

    def expected_measuring_s(self, cell: Cell, *, runs: int) -> float:
        del cell
        return 1000.0 * runs


class SlowToExpect(ScriptedBench):
    """Likewise of launches; the server says how long it took."""

    def expected_launch_s(self, arm: str) -> float:
        del arm
        return 1000.0

    @contextmanager
    def launch(self, arm: str, *, fresh: bool) -> Iterator[ScriptedServer]:
        with super().launch(arm, fresh=fresh) as server:
            server.launch = replace(server.launch, start_s=60.0)
            yield server


def test_a_launch_that_was_seen_counts_more_than_one_that_was_expected() -> None:
    events: list[CampaignEvent] = []
    bench = SlowToExpect(change={64: math.log(0.8)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    campaign = Campaign([plan_of()], bench=bench, settings=GateSettings(), on_event=events.append, clock=bench.clock)
    campaign.run()
    screen, *pairs = [event for event in events if event.kind == "launch"]
    assert screen.left_s == 1000.0 + 3 * 10.0
    assert len(pairs) == 4
    # Of a block's four launches, two candidates were seen before; a reference is, from the first one on.
    assert pairs[0].left_s == 2 * 60.0 + 2 * 1000.0 + 4 * 3 * 10.0
    assert pairs[-1].left_s == 60.0 + 3 * 10.0


def test_what_was_seen_here_counts_more_than_what_was_expected() -> None:
    bench = Pessimist(change={64: math.log(0.8)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    decision = run_one(bench, GateSettings(budget_s=3500.0)).decision
    assert decision.verdict is Verdict.REGRESSION
    assert len(bench.asked) == 5


def test_events_carry_every_run_as_it_finishes() -> None:
    events: list[CampaignEvent] = []
    bench = ScriptedBench(stored={64: stored(4, 2)})
    campaign = Campaign([plan_of()], bench=bench, settings=GateSettings(), on_event=events.append, clock=bench.clock)
    campaign.run()
    assert [event.kind for event in events] == ["launch", "ready", "run", "run", "run", "decided"]
    assert [event.run for event in events if event.run is not None] == campaign.runs
    assert [event.left_s for event in events[:3]] == [90.0, 30.0, 0.0]
    assert events[-1].decision is not None


def test_two_plans_of_one_cell_share_its_runs() -> None:
    bench = ScriptedBench(stored={64: stored(4, 2)})
    plans = [plan_of(bounds=(THROUGHPUT,)), plan_of(bounds=(TPOT,))]
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()
    assert len(results) == 1
    assert [result.bound.key for result in results[plans[0].cell.key].decision.results] == ["throughput", "tpot"]


def test_a_cell_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="cell triton/c64-in512-out128 has no bound"):
        Campaign([plan_of(bounds=())], bench=ScriptedBench(), settings=GateSettings())


def test_workloads_that_differ_in_anything_are_cells_of_their_own() -> None:
    others = [
        Workload(concurrency=64, seed=9),
        Workload(concurrency=64, num_prompts=64),
        Workload(concurrency=64, shared_prefix_len=128),
    ]
    plans = [plan_of()] + [
        CellPlan(cell=Cell(backend="triton", workload=other), bounds=(THROUGHPUT,)) for other in others
    ]
    bench = ScriptedBench(stored={64: stored(4, 2)})
    assert len(Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()) == 4


def test_ctrl_c_keeps_the_finished_runs_and_the_next_invocation_goes_on_from_them() -> None:
    change = {64: math.log(0.95)}
    bench = ScriptedBench(
        change=change,
        stored={64: stored(4, 2)},
        can_launch_reference=True,
        fails={4: KeyboardInterrupt()},
        wobble=0.006,
    )
    plan = plan_of(bounds=(THROUGHPUT,))
    interrupted = Campaign([plan], bench=bench, settings=GateSettings(seed=3), clock=bench.clock)
    with pytest.raises(KeyboardInterrupt):
        interrupted.run()
    assert [arm for arm, _ in bench.asked] == [CANDIDATE, REFERENCE, CANDIDATE, CANDIDATE]
    assert len(interrupted.runs) == 9

    events: list[CampaignEvent] = []
    later = ScriptedBench(change=change, stored=bench.stored, can_launch_reference=True, session="later", wobble=0.006)
    campaign = Campaign(
        [plan],
        bench=later,
        settings=GateSettings(seed=3),
        clock=later.clock,
        resume_runs=interrupted.runs,
        on_event=events.append,
    )
    decision = campaign.run()[plan.cell.key].decision
    assert decision.verdict is Verdict.REGRESSION
    assert sum(event.kind == "resumed" for event in events) == 9
    assert len(later.asked) == 2 * decision.pairs - 2, "the screen and one whole pair were there already"
    assert campaign.runs[:9] == interrupted.runs


def test_a_larger_budget_pays_for_what_is_missing_only() -> None:
    change = {64: math.log(0.95)}
    first = ScriptedBench(change=change, stored={64: stored(4, 2)}, can_launch_reference=True, wobble=0.006)
    plan = plan_of(bounds=(THROUGHPUT,))
    small = Campaign([plan], bench=first, settings=GateSettings(seed=3, budget_s=200.0), clock=first.clock)
    decision = small.run()[plan.cell.key].decision
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert re.fullmatch(
        r"\{pytest\} --perf-budget=\d+min --perf-continue -k \{node\}    \(a larger budget, on from these runs\)",
        decision.next_steps[0],
    )

    later = ScriptedBench(change=change, stored=first.stored, can_launch_reference=True, session="later", wobble=0.006)
    large = Campaign([plan], bench=later, settings=GateSettings(seed=3), clock=later.clock, resume_runs=small.runs)
    decision = large.run()[plan.cell.key].decision
    assert decision.verdict is Verdict.REGRESSION
    assert len(first.asked) == 1
    assert len(later.asked) == 2 * decision.pairs, "the screen was there already"


def test_a_found_win_is_verified_by_the_fresh_launches_alone() -> None:
    change = {64: math.log(1.67)}
    first = ScriptedBench(change=change, can_launch_reference=True)
    plan = plan_of(bounds=(THROUGHPUT,))
    found = Campaign([plan], bench=first, settings=GateSettings(), clock=first.clock)
    assert found.run()[plan.cell.key].decision.verdict is Verdict.UNVERIFIED_WIN

    later = ScriptedBench(change=change, can_launch_reference=True, session="later")
    verified = Campaign(
        [plan], bench=later, settings=GateSettings(verify_wins=True), clock=later.clock, resume_runs=found.runs
    )
    assert verified.run()[plan.cell.key].decision.verdict is Verdict.VERIFIED_WIN
    assert len(later.asked) == 8
    assert all(fresh for _, fresh in later.asked)


def test_a_screen_that_was_cut_short_measures_only_the_missing_cells() -> None:
    plans = [plan_of(c) for c in (1, 10)]
    baselines = {c: stored(4, 2, concurrency=c) for c in (1, 10)}
    first = ScriptedBench(stored=baselines)
    with first.launch(CANDIDATE, fresh=False) as server:
        runs = server.measure(plans[0].cell, runs=3)
    bench = ScriptedBench(stored=baselines, session="later")
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock, resume_runs=runs).run()
    assert [results[plan.cell.key].decision.verdict for plan in plans] == [Verdict.EQUIVALENT] * 2
    assert bench.measured == [(CANDIDATE, 10)]


def test_a_win_is_verified_in_a_new_order_with_its_control_cell() -> None:
    bench = ScriptedBench(
        change={10: math.log(1.67)}, stored={c: stored(4, 2, concurrency=c) for c in (1, 10)}, can_launch_reference=True
    )
    plans = [plan_of(c) for c in (1, 10)]
    settings = GateSettings(verify_wins=True)
    campaign = Campaign(plans, bench=bench, settings=settings, clock=bench.clock, reason="a kernel for batches of 10")
    result = campaign.run()[plans[1].cell.key]
    assert result.decision.verdict is Verdict.VERIFIED_WIN
    assert result.decision.odd[-1] == "No other cell moved along; the reason that was given: a kernel for batches of 10"
    order = {"A": REFERENCE, "B": CANDIDATE}
    assert [arm for arm, _ in bench.asked[1:]] == [order[letter] for letter in "ABBABAAB"]
    assert {concurrency for _, concurrency in bench.measured[2:]} == {1, 10}
    assert any(line.startswith("Control cell c=1, measured in the same launches:") for line in result.decision.odd)
    assert "The neighbour c=1 did not move" in result.decision.odd[0]


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({10: 1.67}, Verdict.UNVERIFIED_WIN),
        ({10: 1.67, 64: 1.02}, Verdict.UNVERIFIED_WIN),
        ({10: 1.67, 64: 1.4}, Verdict.VERIFIED_WIN),
        ({10: 1.67, 1: 1.3}, Verdict.VERIFIED_WIN),
    ],
)
def test_a_win_in_one_cell_alone_is_not_verified(gains: dict[int, float], verdict: Verdict) -> None:
    """Its neighbours c=1 and c=64 decide; one that moves along is enough."""
    bench = ScriptedBench(
        change={concurrency: math.log(gain) for concurrency, gain in gains.items()},
        stored={c: stored(4, 2, concurrency=c) for c in (1, 10, 64)},
        can_launch_reference=True,
    )
    plans = [plan_of(c) for c in (1, 10, 64)]
    campaign = Campaign(plans, bench=bench, settings=GateSettings(verify_wins=True), clock=bench.clock)
    decision = campaign.run()[plans[1].cell.key].decision
    assert decision.verdict is verdict, decision.odd
    if verdict is Verdict.UNVERIFIED_WIN:
        assert decision.reasons[-1] == (
            "Verification failed: it showed again in fresh launches, but in this cell alone; no neighbour or control "
            "moved along."
        )
        assert not any("and verified" in text for text in decision.reasons)
        assert "--perf-reason=" in decision.next_steps[0]


def test_a_win_without_a_neighbour_says_so() -> None:
    bench = ScriptedBench(change={64: math.log(1.67)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    decision = run_one(bench, GateSettings(verify_wins=True)).decision
    assert decision.verdict is Verdict.VERIFIED_WIN
    assert decision.odd[-1] == (
        "No neighbour or control cell was measured beside it, so whether this cell alone gained is not shown."
    )


def test_a_win_by_fewer_tokens_is_not_verified() -> None:
    bench = ScriptedBench(
        change={64: math.log(1.67)},
        stored={64: stored(4, 2)},
        can_launch_reference=True,
        tokens={CANDIDATE: 6000, REFERENCE: 8192},
    )
    decision = run_one(bench, GateSettings(verify_wins=True)).decision
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    assert "unequal work: 6000 output tokens a run against 8192" in decision.reasons[-1]


def test_a_verification_needs_a_reference_and_says_so() -> None:
    bench = ScriptedBench(change={64: math.log(1.67)}, stored={64: stored(4, 2)})
    decision = run_one(bench, GateSettings(verify_wins=True)).decision
    assert decision.verdict is Verdict.UNVERIFIED_WIN
    (step,) = decision.next_steps
    assert step.startswith("Verified beside the installation before, once moeperf.toml names it ")
    assert step.endswith(
        ': {measure} --perf-verify-wins -k {node}\n[reference]\npython = "/opt/sglang-before/bin/python"'
    )


def test_regressions_and_wins_are_separate_families_over_all_entered_cells() -> None:
    concurrencies = (1, 10, 64, 256)
    bench = ScriptedBench(
        change={1: math.log(0.94), 10: math.log(1.08), 64: math.log(0.94), 256: math.log(1.08)},
        stored={c: stored(4, 2, concurrency=c) for c in concurrencies},
        can_launch_reference=True,
    )
    plans = [plan_of(c) for c in concurrencies]
    results = Campaign(plans, bench=bench, settings=GateSettings(), clock=bench.clock).run()
    assert [results[plan.cell.key].decision.verdict for plan in plans] == [
        Verdict.REGRESSION,
        Verdict.UNVERIFIED_WIN,
        Verdict.REGRESSION,
        Verdict.UNVERIFIED_WIN,
    ]
    shares = sorted(
        round((1 - result.interval.level) / 2 / GROSS_ALPHA, 3)
        for plan in plans
        for result in results[plan.cell.key].decision.results
        if result.interval is not None
    )
    assert set(shares) == {1.0, CONFIRM_ALPHA / GROSS_ALPHA}, "how large a change is, is asked of each bound alone"


@pytest.mark.parametrize(("others", "verdict"), [(0, Verdict.REGRESSION), (10**12, Verdict.INCONCLUSIVE)])
def test_that_there_is_a_change_must_be_more_than_chance_among_all_cells_of_the_invocation(
    others: int, verdict: Verdict
) -> None:
    bench = ScriptedBench(change={64: math.log(0.94)}, stored={64: stored(4, 2)}, can_launch_reference=True)
    plan = plan_of()
    campaign = Campaign([plan], bench=bench, settings=GateSettings(), clock=bench.clock, others=others)
    assert campaign.run()[plan.cell.key].decision.verdict is verdict


# -- the plan


def test_the_plan_counts_launches_and_minutes() -> None:
    bench = ScriptedBench(can_launch_reference=True)
    plans = [plan_of(c) for c in (1, 64)]
    found = plan_campaign(plans, bench=bench, settings=GateSettings(verify_wins=True))
    assert [(stage.name, stage.launches_least, stage.launches_most) for stage in found.stages] == [
        ("screen", 1, 1),
        ("confirm", 3, 16),
        ("verify", 8, 8),
    ]
    assert found.least_s == 60 + 2 * 3 * 10
    assert found.most_s == 25 * 120
    assert list(found.lines()) == [
        "screen: 1 launch, 2 min",
        "confirm: 3 to 16 launches, 6 min to 32 min",
        "verify: 8 launches, 16 min",
        "No budget is set: every cell is taken to its verdict or its cap.",
    ]


def test_the_plan_against_stored_runs_and_for_recording() -> None:
    plans = [plan_of()]
    alone = plan_campaign(plans, bench=ScriptedBench(), settings=GateSettings())
    assert [(stage.name, stage.launches_most) for stage in alone.stages] == [("screen", 1), ("confirm", 7)]
    record = plan_campaign(plans, bench=ScriptedBench(), settings=GateSettings(record_launches=3), record=True)
    assert [(stage.name, stage.launches_most) for stage in record.stages] == [("record", 3)]
    attached = plan_campaign(plans, bench=ScriptedBench(can_relaunch=False), settings=GateSettings())
    assert [stage.name for stage in attached.stages] == ["screen"]
    with pytest.raises(ValueError, match="no cell"):
        plan_campaign([], bench=ScriptedBench(), settings=GateSettings())


@pytest.mark.parametrize(
    ("budget_s", "text"),
    [
        (30.0, "The budget of 30 s is too small for anything: the screen of all cells takes about 2 min."),
        (
            120.0,
            "The budget of 2 min is enough for the screen alone: it can show that a cell is not worse, and proves no ",
        ),
        (500.0, "The budget of 8 min is enough for 2 pairs: a gross change is proven, nothing smaller."),
        (1000.0, "The budget of 17 min is enough for 4 pairs of 8: what is still open then ends INCONCLUSIVE."),
        (9000.0, "The budget of 2 h 30 min is enough for every cell to reach its verdict or its cap."),
    ],
)
def test_the_plan_says_what_a_budget_can_prove(budget_s: float, text: str) -> None:
    bench = ScriptedBench(can_launch_reference=True)
    found = plan_campaign([plan_of()], bench=bench, settings=GateSettings(budget_s=budget_s))
    assert found.proves[0].startswith(text)
