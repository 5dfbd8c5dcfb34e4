"""``--perf-plan``: what would be launched, how often, for how long, and what that could prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.campaign.plan import plan_campaign
from pytest_moeperf.fingerprint import describe
from pytest_moeperf.model.baseline import BaselineMatch
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.run import CANDIDATE, REFERENCE
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.reporting.figures import count


def plan_lines(benches: Sequence[tuple[ServerSpec, Sequence[CellPlan], ServerBench]], settings: Settings) -> list[str]:
    """For each backend: its cells, the commands, the cost of each stage, and what the budget can and can't prove."""
    return [line for spec, plans, bench in benches for line in _of_backend(spec, plans, bench, settings)]


def _of_backend(spec: ServerSpec, plans: Sequence[CellPlan], bench: ServerBench, settings: Settings) -> Iterator[str]:
    yield f"moeperf  plan for {spec.label}: {count(len(plans), 'cell')}"
    for plan in plans:
        cell = plan.cell
        match = bench.foreseen(cell)
        yield f"  cell       {cell.workload.label}, {cell.workload.num_prompts} prompts, {_stored(match)}"
        yield from (f"             {line}" for line in describe(item for item in match.differences if item.blocking))
    yield f"  candidate  {bench.command_text(CANDIDATE)}"
    if bench.can_launch_reference:
        yield f"  reference  {bench.command_text(REFERENCE)}"
    if plans:
        planned = plan_campaign(plans, bench=bench, settings=settings.gate, record=settings.update_baselines)
        yield from (f"  {line}" for line in planned.lines())
    else:
        yield "  no workload is known before the tests run: put it into the perf marker or a parameter"


def _stored(match: BaselineMatch) -> str:
    baseline = match.baseline
    if baseline is None:
        return "no baseline"
    if not match.comparable:
        return "a baseline that can't be compared:"
    return f"baseline of {count(baseline.launches, 'launch', 'launches')} in {count(baseline.sessions, 'session')}"
