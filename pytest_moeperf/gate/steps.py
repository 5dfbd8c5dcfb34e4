"""What to do after a verdict, most useful first: the cause before its acceptance, and nothing that would be refused.

Templates, filled in by reporters (``reporting/steps.py``): ``{pytest}`` is the command so far, ``{measure}`` the same
without what records, ``{node}`` the test, ``{accept}`` and ``{diff}`` the commands over the report that this
invocation leaves. Lines after the first are to be written into a file before the command is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pytest_moeperf.gate.evidence import Finding, short_runs
from pytest_moeperf.gate.state import CONFIRM, VERIFY, VERIFY_PAIRS, CellState
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.verdict import BoundResult, Verdict
from pytest_moeperf.units import format_percent

Judged = Sequence[tuple[Finding, BoundResult]]

RECORD_STEP = "{pytest} --update-baselines -k {node}"
AGAIN_STEP = "{pytest} -k {node}"
HEADROOM = 0.05
"""What a margin that is to take in a known change gets beyond it: the next interval is not the same one."""
LIMIT_ROOM = 0.1
"""Likewise of a limit, which no baseline moves with."""
_REFERENCE_LINES = '[reference]\npython = "/opt/sglang-before/bin/python"'


def next_steps(state: CellState, verdict: Verdict, judged: Judged) -> list[str]:
    """Nothing after a pass, but for what a pass leaves to decide."""
    steps = _STEPS.get(verdict)
    deciding = [(finding, result) for finding, result in judged if result.verdict is verdict]
    return steps(state, deciding) if steps is not None else []


def invalid_steps() -> list[str]:
    return [f"{AGAIN_STEP}    (once what is named above is put right)"]


def _no_baseline(state: CellState, _: Judged) -> list[str]:
    other = state.plan.reference
    if not other:
        return [f"{RECORD_STEP}    (records this cell)"]
    steps = []
    if state.paired and state.settings.mode != CONFIRM:
        steps.append(
            f"{{pytest}} --perf-mode=confirm -k {{node}}    (launches {other} beside it; needs no stored baseline)"
        )
    return [*steps, f"or record the baseline of {other} first: that test under --backend={other} --update-baselines"]


def _incomparable(state: CellState, _: Judged) -> list[str]:
    steps = [f"Once what differs is set back, or on the machine of the baseline: {AGAIN_STEP}"]
    if state.paired and state.settings.mode != CONFIRM:
        steps.append("{pytest} --perf-mode=confirm -k {node}    (head to head in fresh launches of both arms)")
    elif not state.paired:
        steps += _with_reference_table(state, AGAIN_STEP)
    if state.plan.reference:
        return [*steps, _own_baseline(state)]
    return [*steps, f"If these conditions stay, with a baseline of their own beside the old one: {RECORD_STEP}"]


def _unverified(state: CellState, deciding: Judged) -> list[str]:
    if state.paired and state.budget_wanted_s is not None:
        budget = f"--perf-budget={_whole_time(state.budget_wanted_s)}"
        return [f"{{measure}} --perf-verify-wins {budget} --perf-continue -k {{node}}    (a larger budget)"]
    if state.paired and state.phase == VERIFY:
        return ["Once what keeps it from being verified is put right: {measure} --perf-verify-wins -k {node}"]
    if state.paired:
        # On from the kept runs without -k: what the neighbours did is part of the verification, and costs nothing.
        chosen = " -k {node}" if state.record else " --perf-continue"
        return [f"{{measure}} --perf-verify-wins{chosen}    ({2 * VERIFY_PAIRS} more launches)"]
    if state.capabilities.relaunch:
        return _with_reference_table(state, "{measure} --perf-verify-wins -k {node}", what="Verified beside")
    steps = ["{measure} -k {node}    (again; a running server can't be verified: nothing is launched beside it)"]
    return [*steps, *_through_margin(state, deciding, "If the gain is known to be real")]


def _verified(state: CellState, deciding: Judged) -> list[str]:
    if not state.plan.reference:
        return ["{accept}    (records its verification; nothing is measured again)"]
    return [*_through_margin(state, deciding, "If this lead is to be expected"), _own_baseline(state)]


def _worse(state: CellState, deciding: Judged) -> list[str]:
    steps = [
        "{measure} -k {node}    (again, in fresh launches)" if state.capabilities.relaunch else "{measure} -k {node}"
    ]
    if state.comparable:
        steps.append("{diff}    (what else differs from the baseline)")
    limits = {result.bound: _other_limit(result) for finding, result in deciding if finding.detail}
    if limits:
        steps.append(_markers(state, "If that is allowed to be so, another limit in the test", limits))
    compared = [(finding, result) for finding, result in deciding if not finding.detail]
    if compared and state.plan.reference:
        steps.append(_own_baseline(state))
    elif compared:
        steps.append("If this loss is accepted, with the reason: {accept}")
    return steps


def _screened(_: CellState, __: Judged) -> list[str]:
    return ["{pytest} --perf-mode=confirm -k {node}    (optional: measures until it is clear)"]


def _undecided(state: CellState, deciding: Judged) -> list[str]:
    steps = []
    if state.settings.mode != CONFIRM:
        steps.append("{pytest} --perf-mode=confirm -k {node}")
    if state.budget_wanted_s is not None:
        goes_on = " --perf-continue" if state.launches else ""
        what = "a larger budget, on from these runs" if state.launches else "a larger budget"
        budget = f"--perf-budget={_whole_time(state.budget_wanted_s)}"
        steps.append(f"{{pytest}} {budget}{goes_on} -k {{node}}    ({what})")
    if not state.capabilities.reference:
        steps += _with_reference_table(state, "{measure} -k {node}")
    if not state.paired and not state.plan.reference and all(map(_near, deciding)):
        steps.append(f"{RECORD_STEP}    (in further sessions, an hour apart or more: they narrow every interval)")
    noises = [sd for bound in state.bounds if (sd := short_runs(state, bound)) is not None]
    if noises:
        differ = format_percent(round(max(noises), 3))
        steps.append(
            f"or longer runs (num_prompts): those of one launch differ by {differ}, most of what launches differ by"
        )
    steps.append("moeperf audit    (looks for what makes launches on this host differ)")
    return steps


_STEPS: dict[Verdict, Callable[[CellState, Judged], list[str]]] = {
    Verdict.NO_BASELINE: _no_baseline,
    Verdict.INCOMPARABLE: _incomparable,
    Verdict.UNVERIFIED_WIN: _unverified,
    Verdict.VERIFIED_WIN: _verified,
    Verdict.REGRESSION: _worse,
    Verdict.INCONCLUSIVE: _undecided,
    Verdict.NO_CHANGE_SEEN: _screened,
}


def _with_reference_table(state: CellState, command: str, *, what: str = "Head to head with") -> list[str]:
    """Nothing of the kind for an attached server: there nothing can be launched beside it."""
    if not state.capabilities.relaunch:
        return []
    where = "once moeperf.toml names it (in pyproject.toml: [tool.moeperf.reference])"
    return [f"{what} the installation before, {where}: {command}\n{_REFERENCE_LINES}"]


def _own_baseline(state: CellState) -> str:
    """What is recorded is always a backend's own baseline: that of another one takes nothing in."""
    own = state.plan.cell.backend
    return (
        f"If {own} is to be compared with itself from now on (--perf-reference={own}): "
        f"{{pytest}} --perf-reference={own} --update-baselines -k {{node}}"
    )


def _through_margin(state: CellState, deciding: Judged, when: str) -> list[str]:
    """The lines that let a gain pass, where a margin can: one of 100 % or more can't be given. No margin lets a proven
    loss pass."""
    margins = {result.bound: _win_margin(result) for _, result in deciding}
    if not all(margins.values()):
        return []
    arguments = {bound: {"win": f'"{margin}%"'} for bound, margin in margins.items()}
    return [_markers(state, f"{when}, a margin in the test takes it in", arguments)]


def _win_margin(result: BoundResult) -> int | None:
    """In whole steps of 5 %, with room for the next interval."""
    if result.interval is None:
        return None
    percent = 5 * math.ceil((abs(result.bound.ratio(result.interval.upper)) + HEADROOM) * 20 - 1e-9)
    return percent if percent < 100 else None


def _other_limit(result: BoundResult) -> dict[str, str]:
    name, room = ("at_least", 1 - LIMIT_ROOM) if result.bound.at_least is not None else ("at_most_ms", 1 + LIMIT_ROOM)
    return {name: f"{(result.measured or 0.0) * room:.3g}"}


def _markers(state: CellState, text: str, changed: Mapping[Bound, Mapping[str, str]]) -> str:
    """All markers of the test: one that is missing would be a bound that is gone."""
    lines = [_marker(bound, state.settings, changed.get(bound, {})) for bound in state.bounds]
    return "\n".join([f"{text}:", *lines])


def _marker(bound: Bound, gate: GateSettings, changed: Mapping[str, str]) -> str:
    """The bound as a marker says it, without what is the default."""
    said: dict[str, str] = {name: f"{limit:g}" for name, limit in bound.slo_ms}
    for name in ("regression", "win"):
        if getattr(bound, name) != getattr(gate, name):
            said[name] = f'"{getattr(bound, name) * 100:.3g}%"'
    for name in ("at_least", "at_most_ms"):
        if getattr(bound, name) is not None:
            said[name] = f"{getattr(bound, name):g}"
    if bound.percentile != "mean":
        said["percentile"] = f'"{bound.percentile}"'
    arguments = ", ".join(f"{name}={value}" for name, value in (said | dict(changed)).items())
    return f"@pytest.mark.{bound.metric}" + (f"({arguments})" if arguments else "")


def _near(judged: tuple[Finding, BoundResult]) -> bool:
    """Whether recording takes this in without a reason: inside the noise, or inside both margins."""
    interval, bound = judged[1].interval, judged[1].bound
    if interval is None or interval.inside_noise:
        return interval is not None
    return math.log1p(-bound.regression) < interval.estimate < math.log1p(bound.win)


def _whole_time(seconds: float) -> str:
    """``90s``, ``14min``: rounded up, and as the option reads it."""
    return f"{math.ceil(seconds)}s" if seconds < 90 else f"{math.ceil(seconds / 60)}min"
