"""What a decision lets a baseline do: nothing, take the new runs in, or move to a new level. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.baselines.levels import change
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence
from pytest_moeperf.model.verdict import Decision, Verdict
from pytest_moeperf.units import format_change

AGAIN = "{pytest} --update-baselines -k {node}"
GIVE_REASON = "{pytest} --update-baselines --perf-reason='why' -k {node}"
VERIFY = "{measure} --perf-verify-wins -k {node}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why nothing may be written."""

    reason: str
    """One sentence, with the figures."""
    next_step: str
    """``{pytest}`` stands for the command so far."""
    because: str = ""
    """What the verdict itself says, for readers who do not see it beside this."""


def unfit_to_record(
    new_runs: Sequence[StoredRun], *, bounds: Sequence[Bound], decision: Decision, evidence: Evidence
) -> Refusal | None:
    """What keeps these runs out of any baseline."""
    if evidence.status == "contradicted":
        requested = evidence.requested or decision.cell.backend
        return Refusal(
            reason=f"{evidence.runner or 'Another backend'} ran instead of {requested}.",
            next_step=f"make the server run the backend that was asked for, then {AGAIN}",
        )
    if decision.verdict is Verdict.INVALID:
        return Refusal(
            reason="Only valid runs make a baseline.",
            next_step=f"fix that, then {AGAIN}",
            because=decision.reasons[0] if decision.reasons else "A validity check failed.",
        )
    if not new_runs:
        return Refusal(reason="There is no valid run that is no warm-up.", next_step=AGAIN)
    for run in new_runs:
        missing = [bound.key for bound in bounds if bound.key not in run.values]
        if missing:
            return Refusal(
                reason=f"Run {run.id} has no value for {', '.join(missing)}, on which the test gates.",
                next_step=f"make the runs longer (num_prompts), then {AGAIN}",
            )
    return None


def unfit_to_join(
    existing: Baseline, added: Sequence[StoredRun], *, decision: Decision, evidence: Evidence
) -> Refusal | None:
    """What keeps these runs out of this baseline. ``added``: those that it doesn't hold yet."""
    if existing.cell.key != decision.cell.key:
        return Refusal(
            reason=f"{decision.cell.label} was held against the baseline of {existing.cell.label}, "
            "which only its own runs may change.",
            next_step=f"{{pytest}} --update-baselines --backend={existing.cell.backend}",
        )
    if evidence.runner and existing.evidence.runner and evidence.runner != existing.evidence.runner:
        return Refusal(
            reason=f"The new runs executed {evidence.runner}, those of the baseline {existing.evidence.runner}.",
            next_step="keep the two apart: give the other server a backend name of its own",
        )
    if not added:
        return Refusal(reason="All of these runs are in the baseline already.", next_step=AGAIN)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What one bound says about moving."""

    bound: Bound
    verdict: Verdict
    estimate: float | None
    """Log-ratio effect against the stored level; None: nothing stored to compare with."""
    noise: bool = False
    """The interval holds "no change"."""

    @property
    def text(self) -> str:
        if self.estimate is None:
            return self.bound.key
        return f"{self.bound.key} {format_change(self.bound.ratio(self.estimate))}"

    @property
    def looks_worse(self) -> bool:
        return self.estimate is not None and self.estimate <= math.log1p(-self.bound.regression)

    @property
    def looks_better(self) -> bool:
        return self.estimate is not None and self.estimate >= math.log1p(self.bound.win)


def steps_of(
    existing: Baseline, runs: Sequence[StoredRun], *, bounds: Sequence[Bound], decision: Decision
) -> tuple[Step, ...]:
    against_level = change(existing.runs, runs)
    judged = {result.bound.key: result for result in decision.results}
    steps: list[Step] = []
    for bound in bounds:
        result = judged.get(bound.key)
        interval = result.interval if result else None
        steps.append(
            Step(
                bound=bound,
                verdict=result.verdict if result else decision.verdict,
                estimate=interval.estimate if interval else against_level.get(bound.key),
                noise=interval is not None and interval.inside_noise,
            )
        )
    return tuple(steps)


def kind_of(steps: Sequence[Step], *, decision: Decision, reason: str, verified: bool) -> str | Refusal:
    """``moved`` or ``extended``."""
    wins = [step for step in steps if step.verdict in (Verdict.UNVERIFIED_WIN, Verdict.VERIFIED_WIN)]
    if wins and (not verified or any(step.verdict is Verdict.UNVERIFIED_WIN for step in wins)):
        return Refusal(reason=f"A win that nobody verified does not move a baseline: {_texts(wins)}.", next_step=VERIFY)
    worse = [step for step in steps if step.verdict is Verdict.REGRESSION]
    if worse and not reason:
        return Refusal(
            reason=f"A worse level needs a reason: {_texts(worse)} against the stored one.", next_step=GIVE_REASON
        )
    if wins or worse:
        return "moved"
    if decision.verdict in (Verdict.EQUIVALENT, Verdict.NON_INFERIOR, Verdict.NO_CHANGE_SEEN):
        return "extended"
    return _kind_of_undecided([step for step in steps if not step.verdict.passes], reason=reason)


def _kind_of_undecided(steps: Sequence[Step], *, reason: str) -> str | Refusal:
    """What is inside the noise joins the level, however far out the estimate is: a store that takes only launches near
    its level never learns how far they spread."""
    better = [step for step in steps if step.looks_better and not step.noise]
    if better:
        return Refusal(
            reason=f"Neither proven nor verified, and outside the noise and the win margin: {_texts(better)}.",
            next_step=VERIFY,
        )
    worse = [step for step in steps if step.looks_worse and (reason or not step.noise)]
    if worse and not reason:
        return Refusal(
            reason=f"Not decided, and outside the noise and the regression margin: {_texts(worse)}.",
            next_step=f"if that is accepted: {GIVE_REASON}",
        )
    return "moved" if worse else "extended"


def _texts(steps: Sequence[Step]) -> str:
    return ", ".join(step.text for step in steps)
