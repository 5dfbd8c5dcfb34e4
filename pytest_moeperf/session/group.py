"""All cells that share a server: measured together, when the first of their tests is set up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.campaign import Campaign, CampaignEvent, CellResult
from pytest_moeperf.fingerprint import describe
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Run
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.session.journal import Journal

ASK_FOR_MORE = {Verdict.UNVERIFIED_WIN, Verdict.INCONCLUSIVE}
"""A verification or a larger budget goes on from what these were found by."""


class Group:
    """One backend's cells under one server spec."""

    def __init__(
        self,
        *,
        spec: ServerSpec,
        plans: Sequence[CellPlan],
        bench: ServerBench,
        settings: Settings,
        on_event: Callable[[CampaignEvent], None],
        journal: Journal,
        is_heard: Callable[[], bool] = lambda: True,
        others: int = 0,
    ) -> None:
        self.spec = spec
        self.bench = bench
        self._plans = tuple(plans)
        self.settings = settings
        self._on_event = on_event
        self._journal = journal
        self._is_heard = is_heard
        self._others = others
        """Bounds of the cells that other groups judge."""
        self._results: dict[Cell, CellResult] = {}
        self._bounds: dict[Cell, tuple[Bound, ...]] = {}
        self._begun: set[Cell] = set()
        self._settled: set[Cell] = set()
        self._undecided: set[Cell] = set()
        self._earlier: tuple[Run, ...] | None = None
        self._error: BaseException | None = None
        self._ran = False
        self._journal_lost = False

    def run_campaign(self) -> None:
        """Measure every planned cell, once.

        Whatever goes wrong is raised again for each further test, without another try: a launch costs minutes.

        :raises MoeperfError: the server does not start.
        """
        if self._error is not None:
            raise self._error
        if self._ran or not self._plans:
            return
        try:
            self._foretell()
            self._measure(self._plans)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest's own outcomes, that a hook may raise, are no Exceptions
            self._error = error
            raise
        self._ran = True

    def result(self, cell: Cell, bounds: tuple[Bound, ...]) -> tuple[CellResult, bool]:
        """The cell's result, and whether it was planned. One that was not is measured now, on its own; one whose other
        bounds were judged before is judged by the same runs, and by further ones where those don't decide."""
        known = self._results.get(cell)
        if known is None or not set(bounds) <= set(self._bounds[cell]):
            self._measure((CellPlan(cell=cell, bounds=bounds),), again=known.runs if known is not None else ())
        return self._results[cell], known is not None

    def url(self) -> str:
        return self.bench.live().url

    def settle(self, outcome: Outcome) -> None:
        """The cell's verdict is out, and recorded where that was asked for."""
        self._settled.add(outcome.decision.cell)
        if outcome.recorded is None and outcome.verdict in ASK_FOR_MORE:
            self._undecided.add(outcome.decision.cell)

    def close(self) -> None:
        """Give the server back. While a verdict is missing, or nobody listens any more, the journal stays: who goes on
        from it pays for nothing twice."""
        self.bench.close()
        if self._begun and self._settled >= self._begun and self._is_heard():
            self._keep(partial(self._journal.finish, undecided=self._undecided))
        self._journal.release()

    def _event(self, event: CampaignEvent) -> None:
        # A resumed run is in the journal already.
        if event.run is not None and event.kind == "run":
            self._keep(partial(self._journal.add, event.run))
        self._on_event(event)

    def _gone_on_from(self) -> tuple[Run, ...]:
        runs, left_out = self._journal.gone_on_from()
        if left_out:
            self._note(left_out)
        return runs

    def _note(self, text: str) -> None:
        self._on_event(CampaignEvent(kind="note", text=text, elapsed_s=0.0))

    def _keep(self, write: Callable[[], None]) -> None:
        """A journal that can't be written (a full disk, a read-only checkout) must not stop the measurement."""
        if self._journal_lost:
            return
        try:
            write()
        except OSError as error:
            self._journal_lost = True
            text = f"runs are not kept for --perf-continue: {self._journal.path}: {error.strerror or error}"
            self._note(text)

    def _foretell(self) -> None:
        """Say which cells will have nothing to be compared with before the first launch: it costs minutes.

        :raises BaselineError: a baseline that will be needed can't be read.
        """
        for plan in self._plans:
            match = self.bench.foreseen(plan.cell)
            if self.settings.update_baselines or self.bench.can_launch_reference:
                continue
            text = ""
            if match.baseline is None and self.settings.reference:
                text = f"nothing is stored of its reference {self.settings.reference}, which can't be launched here"
            elif match.baseline is not None and not match.comparable:
                why = "; ".join(describe(item for item in match.differences if item.blocking))
                text = f"its baseline can't be compared: {why}"
            if text:
                self._note(f"{plan.cell.label}: {text}")

    @property
    def _compared_with(self) -> str:
        """The other backend whose baseline decides; an update is about this one's own."""
        other = "" if self.settings.update_baselines else self.settings.reference
        return "" if other == self.spec.backend else other

    def _measure(self, plans: Sequence[CellPlan], *, again: Sequence[Run] = ()) -> None:
        self._begun |= {plan.cell for plan in plans}
        self._keep(self._journal.take)
        if self._earlier is None:
            self._earlier = self._gone_on_from() if self.settings.resume and not self._journal_lost else ()
            self._keep(partial(self._journal.start, self._earlier))
        campaign = Campaign(
            [replace(plan, reference=self._compared_with) for plan in plans],
            bench=self.bench,
            settings=self.settings.gate,
            record=self.settings.update_baselines,
            on_event=self._event,
            resume_runs=again or self._earlier,
            reason=self.settings.reason,
            others=self._others,
        )
        results = campaign.run()
        for plan in plans:
            self._results[plan.cell] = results[plan.cell.key]
            self._bounds[plan.cell] = plan.bounds
