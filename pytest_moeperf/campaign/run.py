"""The campaign: which launch measures which cells next. Owns the budget and the order; the gate decides."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from pytest_moeperf import gate
from pytest_moeperf.campaign.cells import control_with, is_control, merge_plans
from pytest_moeperf.campaign.events import CampaignEvent, CellResult
from pytest_moeperf.campaign.resume import OldLaunch, Resumable
from pytest_moeperf.errors import LoadError, ServerError
from pytest_moeperf.gate.story import tell_stories
from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bench import Bench, CellPlan, Launched
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Launch, Run
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.stats.holm import step_down
from pytest_moeperf.units import format_duration

ABBA = (REFERENCE, CANDIDATE, CANDIDATE, REFERENCE)
BAAB = (CANDIDATE, REFERENCE, REFERENCE, CANDIDATE)
BLOCK_PAIRS = (0, 0, 1, 1)
"""Neighbours make a pair, so that a slow drift moves both arms alike; two pairs a block, so that its direction
cancels."""
VERIFY_ORDER = (*ABBA, *BAAB)
VERIFY_PAIRS = (0, 0, 1, 1, 2, 2, 3, 3)
BUDGET_ROOM = 1.5
"""Times what all launches are expected to take: launches differ, and a void run is made again."""


class Campaign:
    """Takes cells to their verdicts.

    >>> campaign = Campaign(plans, bench=bench, settings=settings.gate, on_event=print)     # doctest: +SKIP
    >>> results = campaign.run()                                                             # doctest: +SKIP
    >>> results[plans[0].cell.key].decision.verdict                                          # doctest: +SKIP

    :param plans: the cells; two plans of one cell share its runs and keep both their bounds.
    :param record: measure for ``--update-baselines``.
    :param resume_runs: of an interrupted or undecided invocation, in the order in which they were made.
    :param reason: why a win may stand in one cell alone.
    :param others: bounds of cells that other campaigns of this invocation judge: all share the error of one family.
    :param on_event: called at every step; a finished run arrives as ``event.run``.

    ``run()`` raises ServerError or LoadError if the *candidate* does not come up; what was measured until
    then, or until a KeyboardInterrupt, is in ``runs``.
    """

    def __init__(
        self,
        plans: Sequence[CellPlan],
        *,
        bench: Bench,
        settings: GateSettings,
        record: bool = False,
        on_event: Callable[[CampaignEvent], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        resume_runs: Sequence[Run] = (),
        reason: str = "",
        others: int = 0,
    ) -> None:
        self.runs: list[Run] = []
        self._bench = bench
        self._settings = settings
        self._record = record
        self._reason = reason
        self._others = others
        self._tell = on_event
        self._clock = clock
        self._started = clock()
        self._order = random.Random(settings.seed)
        self._old = Resumable.of(resume_runs)
        self._launches = 0
        self._fresh: set[str] = set()
        """Launches that began here."""
        self._until_s: float | None = None
        """When the launches that are decided on will be over, on the clock of ``elapsed_s``."""
        self._launch_took_s: dict[str, float] = {}
        """By arm; what was seen here is a better guess than what the bench expects."""
        self._cell_took_s: dict[str, tuple[int, float]] = {}
        """By cell: runs that were wanted, and how long they took with their warm-up."""
        self._families: dict[str, set[tuple[str, str]]] = {}
        self._rejected: dict[str, set[tuple[str, str]]] = {}
        self._controls: dict[str, gate.CellState] = {}
        capabilities = gate.Capabilities(reference=bench.can_launch_reference, relaunch=bench.can_relaunch)
        self._states = {
            plan.cell.key: gate.start(plan, settings=settings, capabilities=capabilities, record=record)
            for plan in merge_plans(plans)
        }

    def run(self) -> dict[str, CellResult]:
        """Measure until every cell has its verdict. Results by ``cell.key``."""
        first = gate.RECORD if self._record else gate.SCREEN
        while wanting := self._wanting(first):
            self._single(wanting, fresh=self._record)
            self._judge_ready(wanting)
        while wanting := self._wanting(gate.CONFIRM):
            if self._states[wanting[0]].paired:
                self._block(wanting)
            else:
                self._single(wanting, fresh=self._bench.can_relaunch)
            self._judge_ready(wanting)
        if wanting := self._wanting(gate.VERIFY):
            self._verify(wanting)
        return self.results()

    def results(self) -> dict[str, CellResult]:
        """Of the cells decided so far."""
        decisions = {key: state.decision for key, state in self._states.items() if state.decision is not None}
        told = tell_stories(decisions, self._controls, reason=self._reason)
        by_cell: dict[str, list[Run]] = {}
        for run in self.runs:
            by_cell.setdefault(run.cell.key, []).append(run)
        return {
            key: CellResult(
                decision=decision,
                runs=tuple(by_cell.get(key, ())),
                match=self._states[key].match or BaselineMatch(baseline=None),
            )
            for key, decision in told.items()
        }

    # -- rounds

    def _single(self, keys: Sequence[str], *, fresh: bool) -> None:
        """One candidate launch over all these cells."""
        runs = self._wanted_runs(keys[0])
        old = self._old.take_single(CANDIDATE, [self._states[key].plan.cell for key in keys], runs)
        if old is not None:
            usable = [key for key in keys if old.enough(self._states[key].plan.cell, runs)]
            self._replay(old, usable, pair=None)
            return
        if not self._afford(keys, (CANDIDATE,), at_least_one_cell=True):
            return
        self._launch(CANDIDATE, keys, fresh=fresh, pair=None)

    def _block(self, keys: Sequence[str]) -> None:
        """Two pairs, four fresh launches, over all these cells; fewer where the screen or an interrupted invocation
        left some."""
        done = max(len(self._states[key].pair_numbers(gate.CONFIRM)) for key in keys)
        cells = [self._states[key].plan.cell for key in keys]
        runs = self._wanted_runs(keys[0])
        order = self._order.choice((ABBA, BAAB))
        opening = self._opening(keys)
        if opening is not None and opening.id in self._fresh:
            self._open_pair(keys)
            self._steps(keys, list(zip(BAAB, BLOCK_PAIRS, strict=True))[1:])
            return
        resumed = 0
        if opening is not None and (partner := self._old.take_partner(opening, cells, runs)) is not None:
            self._open_pair(keys)
            self._replay(partner, keys, pair=done)
            resumed = 1
        while resumed < 2 and (pair := self._old.take_pair(cells, runs)) is not None:
            for old in pair:
                self._replay(old, keys, pair=done + resumed)
            resumed += 1
        self._steps(keys, [(arm, done + number) for arm, number in zip(order, BLOCK_PAIRS, strict=True)][2 * resumed :])

    def _opening(self, keys: Sequence[str]) -> Launch | None:
        """The launch of the screen, if it measured these cells and no other, and none was judged by it."""
        launches = {gate.opening(self._states[key]) for key in keys}
        launch = launches.pop() if len(launches) == 1 else None
        measured = {run.cell.key for run in self.runs if launch is not None and run.launch.id == launch.id}
        return launch if measured == set(keys) else None

    def _open_pair(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._states[key] = gate.with_opening(self._states[key])

    def _steps(self, keys: Sequence[str], steps: Sequence[tuple[str, int]]) -> None:
        if steps and self._afford(keys, [arm for arm, _ in steps]):
            self._sequence(keys, steps)

    def _verify(self, keys: Sequence[str]) -> None:
        """A B B A B A A B over the cells that claim a win, with their neighbours and the control cells beside
        them."""
        if not self._afford(keys, VERIFY_ORDER):
            return
        for key, state in self._states.items():
            if key not in keys and is_control(state.plan, [self._states[other].plan for other in keys]):
                self._controls[key] = replace(
                    gate.start(state.plan, settings=self._settings, capabilities=state.capabilities), phase=gate.VERIFY
                )
        self._sequence(keys, list(zip(VERIFY_ORDER, VERIFY_PAIRS, strict=True)), controls=tuple(self._controls))
        self._judge([key for key in keys if self._states[key].decision is None])

    def _sequence(self, keys: Sequence[str], steps: Sequence[tuple[str, int]], *, controls: Sequence[str] = ()) -> None:
        """Fresh launches in this order; stops early where the reference does not come up or no cell is left."""
        for position, (arm, number) in enumerate(steps):
            open_keys = [key for key in keys if self._states[key].decision is None]
            if not open_keys:
                return
            try:
                later = [other for other, _ in steps[position + 1 :]]
                self._launch(arm, open_keys, fresh=True, pair=number, controls=controls, later=later)
            except (ServerError, LoadError) as error:
                if arm != REFERENCE:
                    raise
                self._without_reference(open_keys, error)
                return

    def _without_reference(self, keys: Sequence[str], error: ServerError | LoadError) -> None:
        hint = f" ({error.hint})" if isinstance(error, ServerError) and error.hint else ""
        why = f"The reference arm could not be launched: {error.what}{hint}."
        self._say("note", why, arm=REFERENCE)
        for key in keys:
            state = self._states[key]
            lost = replace(
                state,
                capabilities=replace(state.capabilities, reference=False, reference_problem=why),
                look=0,
            )
            if state.phase == gate.VERIFY:
                self._set(key, gate.conclude(lost, why))
            elif state.comparable:
                self._set(key, lost)
            else:
                self._set(key, gate.judge(replace(lost, phase=gate.SCREEN)))

    # -- one launch

    def _launch(
        self,
        arm: str,
        keys: Sequence[str],
        *,
        fresh: bool,
        pair: int | None,
        controls: Sequence[str] = (),
        later: Sequence[str] = (),
    ) -> None:
        """:param later: arms of the launches that follow."""
        self._launches += 1
        phase = self._states[keys[0]].phase
        cells = [*keys, *controls]
        count = f"{len(cells)} cell{'s' * (len(cells) > 1)}"
        self._expect([arm, *later], cells * (1 + len(later)))
        running = "" if fresh else self._bench.running(arm)
        doing = f"reusing {running}, as the {arm}" if running else f"launching the {arm}"
        self._say("launch", f"{phase}: {doing} for {count}", arm=arm, phase=phase)
        with self._bench.launch(arm, fresh=fresh) as launched:
            if launched.launch.start_s is not None:
                self._launch_took_s[arm] = launched.launch.start_s
            if not launched.launch.reused:
                self._fresh.add(launched.launch.id)
            self._say("ready", f"{phase}: {arm} is up", arm=arm, phase=phase)
            for position, key in enumerate(keys):
                runs = self._wanted_runs(key)
                if pair is None and not self._afford_runs(key, runs):
                    continue
                self._expect(later, cells[position:] + cells * len(later))
                self._observe(key, launched.launch, self._measure(launched, key, runs), pair)
            for position, key in enumerate(controls, start=len(keys)):
                control = self._controls[key]
                self._expect(later, cells[position:] + cells * len(later))
                runs_made = self._measure(launched, key, self._settings.runs_per_launch)
                self._finish(runs_made)
                self._controls[key] = control_with(control, launched.launch, runs_made, pair)

    def _measure(self, launched: Launched, key: str, runs: int) -> Sequence[Run]:
        began = self._clock()
        made = launched.measure(self._states[key].plan.cell, runs=runs)
        self._cell_took_s[key] = runs, self._clock() - began
        return made

    def _replay(self, old: OldLaunch, keys: Iterable[str], *, pair: int | None) -> None:
        self._say("note", f"continuing with launch {old.launch.id}", arm=old.launch.arm)
        for key in keys:
            if self._states[key].decision is None:
                self._observe(key, old.launch, old.of(self._states[key].plan.cell), pair, kind="resumed")

    def _observe(self, key: str, launch: Launch, runs: Sequence[Run], pair: int | None, *, kind: str = "run") -> None:
        self._finish(runs, kind)
        state = self._states[key]
        wanted = self._wanted_runs(key)
        kept = gate.sort_runs(runs, bounds=state.bounds, launch=launch, wanted=wanted)
        if state.match is None and launch.arm == CANDIDATE and runs:
            state = gate.with_match(state, self._bench.baseline_for(kept.valid[0] if kept.valid else runs[0]))
        state = replace(state, odd=tuple(dict.fromkeys(state.odd + kept.odd))) if kept.odd else state
        if kept.problems:
            self._set(key, gate.invalid(state, kept.problems))
        else:
            self._set(key, gate.add_launch(state, launch=launch, runs=kept.valid, pair=pair))

    def _finish(self, runs: Sequence[Run], kind: str = "run") -> None:
        for run in runs:
            self.runs.append(run)
            if self._tell is not None:
                self._say(kind, f"{run.cell.label}: run {run.index + 1}", arm=run.launch.arm, run=run)

    # -- deciding

    def _wanting(self, phase: str) -> list[str]:
        """Undecided cells of a phase that want the same kind of launch as the first of them."""
        open_keys = [key for key, state in self._states.items() if state.decision is None and state.phase == phase]
        if not open_keys:
            return []
        paired = self._states[open_keys[0]].paired
        return [key for key in open_keys if self._states[key].paired == paired]

    def _wanted_runs(self, key: str) -> int:
        wanted = gate.need(self._states[key])
        return wanted.runs if wanted is not None else self._settings.runs_per_launch

    def _judge_ready(self, keys: Sequence[str]) -> None:
        """Look at the cells that have what they asked for; again, where that is already enough for the next look."""
        phase = self._states[keys[0]].phase
        while ready := [key for key in keys if self._ready(key, phase)]:
            self._judge(ready)

    def _ready(self, key: str, phase: str) -> bool:
        state = self._states[key]
        return state.decision is None and state.phase == phase and gate.enough(state)

    def _judge(self, keys: Sequence[str]) -> None:
        """Look at these cells together: those in confirmation share the error of their family."""
        shares = self._shares(keys)
        for key in keys:
            self._set(key, gate.judge(self._states[key], shares=shares.get(key, {})))

    def _shares(self, keys: Sequence[str]) -> dict[str, dict[tuple[str, str], float]]:
        found: dict[str, dict[tuple[str, str], float]] = {key: {} for key in keys}
        claims = {
            side: {
                (key, claim.key): claim.p
                for key in keys
                for claim in gate.claims(self._states[key])
                if claim.side == side
            }
            for side in gate.SIDES
        }
        for side, p_values in claims.items():
            if not p_values:
                continue
            family = self._families.setdefault(side, set())
            rejected = self._rejected.setdefault(side, set())
            family.update(p_values)
            # What was rejected stays so, and has no share to divide any more.
            levels = dict.fromkeys(rejected & p_values.keys(), 1.0) | step_down(
                {item: p for item, p in p_values.items() if item not in rejected},
                left=len(family) + self._others - len(rejected),
                alpha=1.0,
                rejects=partial(self._rejects, side),
            )
            for (key, bound_key), share in levels.items():
                found[key][bound_key, side] = share
                if self._rejects(side, (key, bound_key), share):
                    rejected.add((key, bound_key))
        return found

    def _rejects(self, side: str, hypothesis: tuple[str, str], share: float) -> bool:
        key, bound_key = hypothesis
        return gate.rejects(self._states[key], bound_key, side, share)

    def _set(self, key: str, state: gate.CellState) -> None:
        before = self._states[key]
        self._states[key] = state
        if self._tell is None:
            return
        if state.decision is not None and before.decision is None:
            text = f"{state.plan.cell.label}: {state.decision.verdict}"
            self._say("decided", text, cell=state.plan.cell, decision=state.decision, phase=state.phase)
        elif state.phase != before.phase:
            self._say(
                "phase",
                f"{state.plan.cell.label}: {before.phase} -> {state.phase}",
                cell=state.plan.cell,
                phase=state.phase,
            )

    # -- budget

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    def _left_s(self) -> float | None:
        budget = self._settings.budget_s
        return None if budget is None else budget - self.elapsed_s

    def _expect(self, arms: Sequence[str], keys: Sequence[str]) -> None:
        """These launches and measurements are to come."""
        self._until_s = self.elapsed_s + self._launching_s(arms) + sum(map(self._measuring_s, keys))

    def _launching_s(self, arms: Sequence[str]) -> float:
        return sum(self._launch_took_s.get(arm, self._bench.expected_launch_s(arm)) for arm in arms)

    def _measuring_s(self, key: str) -> float:
        wanted = self._wanted_runs(key)
        if key in self._cell_took_s:
            runs, took_s = self._cell_took_s[key]
            return took_s * wanted / runs
        return self._bench.expected_measuring_s(self._states[key].plan.cell, runs=wanted)

    def _afford(self, keys: Sequence[str], arms: Sequence[str], *, at_least_one_cell: bool = False) -> bool:
        """Whether these launches fit into what is left of the budget; closes the cells if not."""
        left = self._left_s()
        if left is None:
            return True
        cost = self._launching_s(arms)
        per_cell = [self._measuring_s(key) for key in keys]
        cost += (min(per_cell) if at_least_one_cell else sum(per_cell)) * len(arms)
        if left > 0 and cost <= left:
            return True
        for key in keys:
            self._over_budget(key, cost, f"{len(arms)} more launch{'es' * (len(arms) > 1)}")
        return False

    def _afford_runs(self, key: str, runs: int) -> bool:
        left = self._left_s()
        cost = self._measuring_s(key)
        if left is None or cost <= left:
            return True
        self._over_budget(key, cost, f"its {runs} runs")
        return False

    def _over_budget(self, key: str, cost: float, what: str) -> None:
        budget, left = self._settings.budget_s or 0.0, max(0.0, self._left_s() or 0.0)
        left_text, cost_text = format_duration(left), format_duration(cost)
        if left_text == cost_text:  # 231 s and 264 s are both 4 min
            left_text, cost_text = f"{left:.0f} s", f"{cost:.0f} s"
        why = (
            f"The budget of {format_duration(budget)} (--perf-budget) is used up: {left_text} is left, and {what} "
            f"would take about {cost_text}."
        )
        self._set(key, gate.conclude(replace(self._states[key], budget_wanted_s=self._enough_s(key)), why))

    def _enough_s(self, key: str) -> float:
        """For all launches that this cell could come to need, were it alone, and some more."""
        state = self._states[key]
        pairs = state.settings.looks[-1] + (gate.VERIFY_PAIRS if state.settings.verify_wins else 0)
        launches = max(2 * pairs + 1, state.settings.record_launches)
        seen = self._launching_s((CANDIDATE,)) + self._measuring_s(key)
        return max(BUDGET_ROOM * launches * seen, 2 * (self._settings.budget_s or 0.0))

    # -- telling

    def _say(self, kind: str, text: str, **fields: object) -> None:
        if self._tell is not None:
            elapsed = self.elapsed_s
            left = None if self._until_s is None else max(0.0, self._until_s - elapsed)
            self._tell(
                CampaignEvent(
                    kind=kind,
                    text=text,
                    elapsed_s=elapsed,
                    launches=self._launches,
                    left_s=left,
                    **fields,  # type: ignore[arg-type]
                )
            )
