"""From a cell's result to a test's outcome; with ``--update-baselines``, to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pytest_moeperf.baselines.recording import runs_to_record, stored_runs
from pytest_moeperf.baselines.rules import Refusal
from pytest_moeperf.baselines.store import BaselineStore
from pytest_moeperf.baselines.updates import propose_update
from pytest_moeperf.campaign import CellResult
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.fingerprint import how_to_say, unknown_fields
from pytest_moeperf.markers.read import bounds_of, workload_of
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import CANDIDATE, Evidence, Run
from pytest_moeperf.model.verdict import SEVERITY, Decision, Outcome, Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.session.command import shown_path
from pytest_moeperf.session.group import Group
from pytest_moeperf.session.last_report import commands_after
from pytest_moeperf.session.limits import check_measurable

UNPLANNED = (
    "this workload was not known at collection, so it was measured on its own, outside of the shared launches; "
    "put it into the perf marker or a parameter of the test"
)

SAY_FIRST = "State in the configuration what is not shown, then record: {pytest} --update-baselines -k {node}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One ``measure()`` call, until its test has ended: a test that fails for another reason records nothing."""

    outcome: Outcome
    result: CellResult
    group: Group
    bounds: tuple[Bound, ...]


def judge_item(item: pytest.Item, group: Group, overrides: Mapping[str, Any], *, store: BaselineStore) -> Judged:
    """The outcome of one ``measure()`` call. Of an update it says what will be recorded, or why not.

    :raises UsageProblem: the arguments make no workload.
    :raises MoeperfError: an unplanned cell's server does not start, or a baseline can't be read.
    """
    settings = group.settings
    try:
        workload = workload_of(item, overrides)
    except UsageProblem as problem:
        # What markers and parameters say was checked at collection.
        raise replace(problem, where=f"{item.nodeid}: measure()") from None
    if workload is None:
        raise UsageProblem(
            where=f"{item.nodeid}: measure()",
            problem="no concurrency is given",
            allowed="measure(concurrency=64), perf(concurrency=64), or a parameter of that name",
        )
    cell = Cell(backend=group.spec.backend, workload=workload)
    bounds = bounds_of(item, settings.gate)
    check_measurable(item, workload, bounds, spec=group.spec)
    result, planned = group.result(cell, bounds)
    decision = own_part(result.decision, bounds)
    if not planned:
        decision = replace(decision, odd=(*decision.odd, UNPLANNED))
    after = commands_after(
        cell, stored=result.match.path, settings=settings, invoked_in=item.config.invocation_params.dir
    )
    outcome = outcome_of(decision, result, group, item.nodeid, after)
    judged = Judged(outcome=outcome, result=result, group=group, bounds=bounds)
    return replace(judged, outcome=update(judged, store=store, save=False)) if settings.update_baselines else judged


NOT_RECORDED = "its test failed after measure()"


def settle(judged: Judged, *, store: BaselineStore, test_passed: bool) -> Outcome:
    """The test has ended: what was to be recorded is, if nothing in the test failed.

    :raises BaselineError: it can't be written. The runs are then kept for ``--perf-continue``.
    """
    outcome = judged.outcome
    if outcome.recorded is not None:
        if not test_passed:
            return replace(outcome, recorded=None, refused=NOT_RECORDED)
        outcome = update(replace(judged, outcome=replace(outcome, recorded=None)), store=store, save=True)
    judged.group.settle(outcome)
    return outcome


def own_part(decision: Decision, bounds: Sequence[Bound]) -> Decision:
    """A test answers for its own bounds; others of the cell belong to other tests."""
    results = tuple(result for result in decision.results if result.bound in bounds)
    if not results or len(results) == len(decision.results):
        return decision
    verdict = min((result.verdict for result in results), key=SEVERITY.index)
    return replace(decision, results=results, verdict=verdict)


def outcome_of(
    decision: Decision, result: CellResult, group: Group, node_id: str, commands: Mapping[str, str]
) -> Outcome:
    last = _last_candidate(result.runs)
    ceiling = last.ceiling_tok_s if last else None
    measured = last.metrics.out_tps_steady if last else None
    place = group.bench.place()
    return Outcome(
        decision=decision,
        runs=result.runs,
        node_id=node_id,
        evidence=last.evidence if last else Evidence(),
        ceiling_tok_s=ceiling,
        efficiency=measured / ceiling if measured and ceiling else None,
        session={
            "engine": group.spec.engine,
            "model": place.model_name,
            "hardware": place.label,
            "baseline": result.match.path,
            **commands,
        },
    )


def _last_candidate(runs: Sequence[Run]) -> Run | None:
    return next((run for run in reversed(runs) if run.launch.arm == CANDIDATE and not run.warmup), None)


def update(judged: Judged, *, store: BaselineStore, save: bool) -> Outcome:
    """Record the runs as this backend's own baseline, if the rules allow it; without ``save`` nothing is written."""
    outcome, group, bounds, settings = judged.outcome, judged.group, judged.bounds, judged.group.settings
    runs = runs_to_record(judged.result.runs, outcome.decision)
    stored = stored_runs(runs, bounds)
    last = _last_candidate(runs)
    if last is None:
        return replace(outcome, refused="no run was made")
    if unknown := [how_to_say(field) for field in unknown_fields(last.fingerprint)]:
        why = f"not shown: {', '.join(unknown)}. Nothing could ever be compared with such a baseline"
        return replace(outcome, refused=why, decision=replace(outcome.decision, next_steps=(SAY_FIRST,)))
    match = group.bench.own_baseline_for(last)
    if match.baseline is not None and stored and {run.id for run in stored} <= {run.id for run in match.baseline.runs}:
        # Continued from an invocation that was interrupted after it had recorded this cell.
        return replace(outcome, recorded=shown_path(match.path))
    # A comparable baseline may be that of another seed; this cell then gets one of its own.
    own = match.comparable and match.baseline is not None and match.baseline.cell == last.cell
    proposal = propose_update(
        match.baseline if own else None,
        stored,
        engine=group.spec.engine,
        model=group.bench.place().model_name,
        bounds=bounds,
        decision=outcome.decision,
        fingerprint=last.fingerprint,
        evidence=last.evidence,
        max_drift=settings.gate.max_drift,
        by="--update-baselines",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        reason=settings.reason,
        verified=outcome.verdict is Verdict.VERIFIED_WIN,
    )
    if isinstance(proposal, Refusal):
        steps = outcome.decision.next_steps
        if outcome.verdict.passes or outcome.verdict is Verdict.INCONCLUSIVE:
            steps = (proposal.next_step, *steps)
        return replace(outcome, refused=proposal.reason, decision=replace(outcome.decision, next_steps=steps))
    path = store.save(proposal.baseline).path if save else store.path_of(proposal.baseline)
    return replace(outcome, recorded=shown_path(path))
