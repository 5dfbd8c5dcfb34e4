"""From a cell's result to a test's outcome; with ``--update-baselines``, to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import SEVERITY, Decision, Outcome, Verdict
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.session.group import Group
from pytest_moeperf.session.last_report import commands_after, shown_path
from pytest_moeperf.session.limits import check_measurable

UNPLANNED = (
    "this workload was not known at collection, so it was measured on its own, outside of the shared launches; "
    "put it into the perf marker or a parameter of the test"
)

SAY_FIRST = "State in the configuration what is not shown, then record: {pytest} --update-baselines -k {node}"


def judge_item(
    item: pytest.Item, group: Group, overrides: Mapping[str, Any], *, settings: Settings, store: BaselineStore
) -> Outcome:
    """The outcome of one ``measure()`` call.

    :raises UsageProblem: the arguments make no workload.
    :raises MoeperfError: an unplanned cell's server does not start, or the baseline can't be written. The runs are
        then kept for ``--perf-continue``.
    """
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
    if settings.update_baselines:
        outcome = update(outcome, result=result, group=group, bounds=bounds, settings=settings, store=store)
    group.settle(outcome)
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


def update(
    outcome: Outcome,
    *,
    result: CellResult,
    group: Group,
    bounds: Sequence[Bound],
    settings: Settings,
    store: BaselineStore,
) -> Outcome:
    """Record the runs as this backend's own baseline, if the rules allow it."""
    runs = runs_to_record(result.runs, outcome.decision)
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
    entry = store.save(proposal.baseline)
    return replace(outcome, recorded=shown_path(entry.path))
