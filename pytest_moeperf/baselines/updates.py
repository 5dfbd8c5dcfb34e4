"""When and how a baseline may move. Pure rules; nothing is read or written here.

- None comparable stored: *recorded*, the first level and the anchor, frozen from then on.
- EQUIVALENT, NON_INFERIOR, NO_CHANGE_SEEN: *extended*, the new runs join the level.
- INCONCLUSIVE with every estimate inside the margins or the noise: extended, so that a provisional baseline can become
  a known one.
- INCONCLUSIVE with an estimate outside both: *moved* with a reason if that looks worse, refused if it looks better.
- REGRESSION: moved, with a reason.
- VERIFIED_WIN: moved, by the verification runs alone.
- UNVERIFIED_WIN, INVALID: refused.

Sessions: invocations within an hour of each other are one (``sessions.py``).

Drift: many small steps must not add up to a large one that nobody accepted. Without a reason an update may leave the
level at most ``max_drift`` worse than the anchor, or than the last level accepted with a reason if that is lower; an
extension may leave it at most ``max_drift`` better than the anchor, or than the best level ever moved to or accepted.
A reason overrides the bound; the history keeps it beside the drift that it accepted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_moeperf.baselines.levels import all_runs, change, cumulative_drift, rounded
from pytest_moeperf.baselines.merge import SESSION_LIMIT, keep_sessions
from pytest_moeperf.baselines.rules import (
    GIVE_REASON,
    Refusal,
    kind_of,
    steps_of,
    unfit_to_join,
    unfit_to_record,
)
from pytest_moeperf.baselines.sessions import joined
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.verdict import Decision, Verdict
from pytest_moeperf.model.workload import SIMULATED
from pytest_moeperf.units import format_change, format_percent, format_quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """What to save, and what it changes."""

    baseline: Baseline
    event: BaselineEvent
    """The last one of ``baseline.history``; its ``drift`` is to be shown."""


def propose_update(
    existing: Baseline | None,
    new_runs: Sequence[StoredRun],
    *,
    engine: str,
    model: str,
    bounds: Sequence[Bound],
    decision: Decision,
    fingerprint: Fingerprint,
    evidence: Evidence,
    max_drift: float,
    by: str,
    at: str,
    reason: str = "",
    verified: bool = False,
    session_limit: int = SESSION_LIMIT,
) -> Update | Refusal:
    """What an update with ``new_runs`` would be, under the rules above.

    :param existing: the comparable baseline that ``decision`` was made against; None records a new one, beside any
        that is not comparable.
    :param new_runs: from ``stored_runs``; for a VERIFIED_WIN those of the verification alone.
    :param bounds: those that the test gates on.
    :param reason: of ``--perf-reason`` or ``moeperf accept --reason``.
    :param verified: the win went through verification (design 4.4), not only through a proof.
    :param max_drift: relative, 0..1.
    :param by: what asked for it: ``--update-baselines``, ``moeperf accept``.
    :param at: now, ISO 8601, UTC.
    """
    occasion = _Occasion(reason=reason, by=by, at=at)
    refusal = unfit_to_record(new_runs, bounds=bounds, decision=decision, evidence=evidence)
    if refusal is not None:
        return refusal
    if engine != SIMULATED:
        new_runs = joined(existing.runs if existing is not None else (), new_runs)
    if existing is None or decision.verdict is Verdict.INCOMPARABLE:
        runs, older = keep_sessions(_sorted(new_runs), limit=session_limit)
        first = Baseline(
            engine=engine,
            model=model,
            cell=decision.cell,
            fingerprint=fingerprint,
            evidence=evidence,
            runs=runs,
            anchor=runs,
            retired=older,
        )
        return _updated(first, before=(), added=runs, kind="recorded", why=_why_first(decision), occasion=occasion)
    known = {run.id for run in all_runs(existing)}
    added = tuple(run for run in _sorted(new_runs) if run.id not in known)
    refusal = unfit_to_join(existing, added, decision=decision, evidence=evidence)
    if refusal is not None:
        return refusal
    steps = steps_of(existing, added, bounds=bounds, decision=decision)
    kind = kind_of(steps, decision=decision, reason=reason, verified=verified)
    if isinstance(kind, Refusal):
        return kind
    after = _with_runs(existing, added, kind=kind, evidence=evidence, session_limit=session_limit)
    update = _updated(after, before=existing.runs, added=added, kind=kind, why=str(decision.verdict), occasion=occasion)
    if reason:
        return update
    return _drift_refusal(existing, update, bounds=bounds, max_drift=max_drift) or update


@dataclass(frozen=True, kw_only=True, slots=True)
class _Occasion:
    reason: str
    by: str
    at: str


def _why_first(decision: Decision) -> str:
    blocking = [difference.field for difference in decision.differences if difference.blocking]
    return f"first under this fingerprint; the nearest differs in {', '.join(blocking)}" if blocking else "first"


def _with_runs(
    existing: Baseline, added: Sequence[StoredRun], *, kind: str, evidence: Evidence, session_limit: int
) -> Baseline:
    """The fingerprint stays the stored one: it names the file, and what differs is not blocking."""
    level = added if kind == "moved" else _sorted((*existing.runs, *added))
    runs, _ = keep_sessions(level, limit=session_limit)
    anchor = existing.anchor or existing.runs
    placed = {run.id for run in (*anchor, *runs)}
    return replace(
        existing,
        evidence=evidence if kind == "moved" or evidence.status == "confirmed" else existing.evidence,
        runs=runs,
        anchor=anchor,
        retired=tuple(run for run in _sorted((*all_runs(existing), *added)) if run.id not in placed),
    )


def _updated(
    after: Baseline,
    *,
    before: Sequence[StoredRun],
    added: Sequence[StoredRun],
    kind: str,
    why: str,
    occasion: _Occasion,
) -> Update:
    event = BaselineEvent(
        at=occasion.at,
        kind=kind,
        reason=occasion.reason or why,
        runs=len(added),
        change=rounded(change(before, added)),
        by=occasion.by,
        drift=rounded(cumulative_drift(after)),
        accepted=bool(occasion.reason),
    )
    return Update(baseline=replace(after, history=(*after.history, event)), event=event)


def _drift_refusal(existing: Baseline, update: Update, *, bounds: Sequence[Bound], max_drift: float) -> Refusal | None:
    for bound in bounds:
        drift = update.event.drift.get(bound.key)
        if drift is None:
            continue
        lowest, highest = _accepted(existing, bound.key)
        too_low = drift < lowest + math.log1p(-max_drift)
        too_high = update.event.kind == "extended" and drift > highest + math.log1p(max_drift)
        if too_low or too_high:
            anchor = existing.anchor or existing.runs
            return Refusal(
                reason=f"{bound.key} would be {format_change(bound.ratio(drift))} from the anchor of "
                f"{anchor[0].started_at[:10]} ({_level_text(anchor, bound)}), by steps of which none was accepted "
                f"with a reason; the bound on that drift is {format_percent(max_drift)}.",
                next_step=GIVE_REASON,
            )
    return None


def _accepted(existing: Baseline, key: str) -> tuple[float, float]:
    """Lowest and highest drift of ``key`` that somebody answers for."""
    accepted = [event.drift.get(key, 0.0) for event in existing.history if event.accepted]
    answered = [event.drift.get(key, 0.0) for event in existing.history if event.accepted or event.kind == "moved"]
    return min([0.0, *accepted[-1:]]), max([0.0, *answered])


def _level_text(runs: Sequence[StoredRun], bound: Bound) -> str:
    values = [run.values[bound.key] for run in runs if bound.key in run.values]
    mean = math.exp(math.fsum(math.log(value) for value in values) / len(values))
    return f"{format_quantity(mean)} {bound.unit}"


def _sorted(runs: Sequence[StoredRun]) -> tuple[StoredRun, ...]:
    return tuple(sorted(runs, key=lambda run: (run.started_at, run.id)))
