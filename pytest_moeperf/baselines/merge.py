"""Bringing together what the store holds and what is to be saved, so that no run is ever lost. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pytest_moeperf.baselines.levels import cumulative_drift, rounded
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun

SESSION_LIMIT = 12
"""Sessions that a level keeps: enough to know the variance between them, few enough to follow the machine's age."""


def merge(stored: Baseline | None, given: Baseline, *, path: str) -> Baseline:
    """What to write when ``given`` is saved over ``stored``, which somebody may have changed since ``given`` was read.

    Both may have added runs to the same level: all of them are kept. The anchor stays the stored one.

    :raises BaselineError: if one of the two has moved the level meanwhile, or if the file is of another cell.
    """
    if stored is None:
        return given
    if (stored.engine, stored.cell.key, stored.fingerprint) != (given.engine, given.cell.key, given.fingerprint):
        raise BaselineError(
            path=path,
            problem=f"holds the baseline of another cell ({stored.engine} {stored.cell.key})",
            next_step="move that file away",
        )
    common = _common_prefix(stored.history, given.history)
    theirs, ours = stored.history[common:], given.history[common:]
    if not theirs:
        merged = given
    elif not ours:
        merged = stored
    else:
        _refuse_moved(theirs, ours, path=path)
        merged = replace(
            given,
            runs=_union(stored.runs, given.runs),
            history=(*stored.history, *(_extending(event) for event in ours)),
        )
    anchor = stored.anchor or given.anchor
    runs, dropped = keep_sessions(merged.runs)
    placed = {run.id for run in (*anchor, *runs)}
    known = _union(stored.anchor, stored.retired, stored.runs, given.anchor, given.retired, given.runs, dropped)
    merged = replace(merged, anchor=anchor, runs=runs, retired=tuple(run for run in known if run.id not in placed))
    return _with_last_drift(merged) if theirs and ours else merged


def keep_sessions(
    runs: Iterable[StoredRun], *, limit: int = SESSION_LIMIT
) -> tuple[tuple[StoredRun, ...], tuple[StoredRun, ...]]:
    """The runs of the newest ``limit`` sessions, and the others."""
    runs = tuple(runs)
    newest: dict[str, str] = {}
    for run in runs:
        newest[run.session] = max(newest.get(run.session, ""), run.started_at)
    kept = set(sorted(newest, key=lambda session: (newest[session], session))[-limit:])
    return (
        tuple(run for run in runs if run.session in kept),
        tuple(run for run in runs if run.session not in kept),
    )


def _refuse_moved(theirs: tuple[BaselineEvent, ...], ours: tuple[BaselineEvent, ...], *, path: str) -> None:
    moved = next((event for event in (*theirs, *ours) if event.kind == "moved"), None)
    if moved is not None:
        raise BaselineError(
            path=path,
            problem=f"was changed by somebody else at {theirs[-1].at} ({theirs[-1].kind}: {theirs[-1].reason}), "
            "and one of the two changes moves the level",
            next_step="run again: the new runs have to be held against what is stored now; nothing was written",
        )


def _extending(event: BaselineEvent) -> BaselineEvent:
    """Of two first recordings at the same time, the later one only adds."""
    return replace(event, kind="extended") if event.kind == "recorded" else event


def _with_last_drift(baseline: Baseline) -> Baseline:
    last = replace(baseline.history[-1], drift=rounded(cumulative_drift(baseline)))
    return replace(baseline, history=(*baseline.history[:-1], last))


def _common_prefix(left: tuple[BaselineEvent, ...], right: tuple[BaselineEvent, ...]) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def _union(*sections: Iterable[StoredRun]) -> tuple[StoredRun, ...]:
    by_id: dict[str, StoredRun] = {}
    for section in sections:
        for run in section:
            by_id.setdefault(run.id, run)
    return tuple(sorted(by_id.values(), key=lambda run: (run.started_at, run.id)))
