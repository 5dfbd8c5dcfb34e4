"""Which stored runs share a session: the state of a machine, which moves from day to day and from machine to machine.

Invocations one after the other meet the same state. Counted as sessions of their own they would make the variance
between sessions look as small as that between launches, and the next day a regression. An hour between them is the
least that makes them two. The simulated engine draws a state for each invocation, so there each is a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pytest_moeperf.model.baseline import StoredRun

APART = timedelta(hours=1)
"""Between the last run of one session and the first of the next."""
LONGEST = timedelta(days=1)
"""Where something is recorded around the clock a day is a session."""


def joined(stored: Sequence[StoredRun], added: Sequence[StoredRun]) -> tuple[StoredRun, ...]:
    """``added`` with the session of the runs, stored or added, that are less than :data:`APART` away, if there are any.
    Times that can't be read join nothing."""
    sessions = _spans(stored)
    names: dict[str, str] = {}
    for session, (first, last) in sorted(_spans(added).items(), key=lambda item: item[1]):
        gaps = (
            (max(first - end, start - last), name)
            for name, (start, end) in sessions.items()
            if max(last, end) - min(first, start) < LONGEST
        )
        near = min(gaps, default=None)
        name = names[session] = near[1] if near is not None and near[0] < APART else session
        start, end = sessions.get(name, (first, last))
        sessions[name] = min(first, start), max(last, end)
    return tuple(replace(run, session=names.get(run.session, run.session)) for run in added)


def _spans(runs: Sequence[StoredRun]) -> dict[str, tuple[datetime, datetime]]:
    """First and last start of a run, by session."""
    starts: dict[str, list[datetime]] = {}
    for run in runs:
        try:
            time = datetime.fromisoformat(run.started_at)
        except ValueError:
            continue
        starts.setdefault(run.session, []).append(time if time.tzinfo else time.replace(tzinfo=UTC))
    return {session: (min(times), max(times)) for session, times in starts.items()}
