"""What to do next: the gate's steps with commands filled in, and a step for every verdict that names none."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_moeperf.model.secrets import scrub_secrets
from pytest_moeperf.model.verdict import Outcome, Verdict
from pytest_moeperf.reporting.text import fill, safe


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    text: str
    """Prose, or what the command does; may be empty."""
    command: str = ""
    """To be pasted into a shell."""
    remark: str = ""
    """What it costs."""


_DEFAULT_STEPS: dict[Verdict, tuple[str, ...]] = {
    Verdict.REGRESSION: (
        "See it again: {pytest} -k {node}",
        'Accept it, with the reason: {pytest} --update-baselines --perf-reason="..." -k {node}',
    ),
    Verdict.UNVERIFIED_WIN: ("{pytest} --perf-verify-wins -k {node}",),
    Verdict.VERIFIED_WIN: ("{pytest} --update-baselines -k {node}",),
    Verdict.INCONCLUSIVE: (
        "Quiet the host (moeperf audit says how), or allow more launches with --perf-budget: {pytest} -k {node}",
    ),
    Verdict.INVALID: ("Repair what the check names, then run again: {pytest} -k {node}",),
    Verdict.INCOMPARABLE: (
        "Measure under the baseline's conditions, or store these beside it: {pytest} --update-baselines -k {node}",
    ),
    Verdict.NO_BASELINE: ("{pytest} --update-baselines -k {node}",),
}
"""Where the gate names no step: nobody is left without one."""
_CONTRADICTED = (
    "The server's log may say why it fell back; put that right, or ask for what it can run: {pytest} -k {node}",
)
"""Whatever the gate says: its own step for an INVALID cell shows the checks, and this one is no riddle."""


def next_steps(outcome: Outcome, *, pytest_command: str) -> list[NextStep]:
    if outcome.recorded:
        return []
    contradicted = outcome.verdict is Verdict.INVALID and outcome.evidence.status == "contradicted"
    default = _DEFAULT_STEPS.get(outcome.verdict, ())
    steps = _CONTRADICTED if contradicted else outcome.decision.next_steps or default
    return [_next_step(step, node_id=outcome.node_id, pytest_command=pytest_command) for step in steps]


def _next_step(template: str, *, node_id: str, pytest_command: str) -> NextStep:
    # Reporters say "Or" themselves where there are several steps.
    template = template.removeprefix("or ").removeprefix("Or ")
    lead, mark, tail = template.partition("{pytest}")
    if not mark and not template.startswith("moeperf "):
        return NextStep(text=safe(fill(template, node_id=node_id, pytest_command=pytest_command)))
    text, rest = (lead, mark + tail) if mark else ("", template)
    command, _, remark = rest.partition("  (")
    return NextStep(
        text=safe(text).rstrip(": "),
        command=scrub_secrets(fill(command.strip(), node_id=node_id, pytest_command=pytest_command)),
        remark=safe(remark.strip().removesuffix(")")),
    )
