"""The stored runs that the cells of this invocation were held against, for the page's curves."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome, Verdict


def held_against(outcomes: Sequence[Outcome], settings: Settings) -> dict[str, Baseline]:
    """By cell key. Without what this invocation has written, which holds its own runs."""
    stored = {entry.path: entry.baseline for entry in FileStore(settings.baselines).all()}
    return {
        outcome.decision.cell.key: stored[path]
        for outcome in outcomes
        if (path := str(outcome.session.get("baseline"))) in stored and _was_compared(outcome)
    }


def _was_compared(outcome: Outcome) -> bool:
    comparable = not any(difference.blocking for difference in outcome.decision.differences)
    return not outcome.recorded and (comparable or outcome.verdict is Verdict.INCOMPARABLE)
