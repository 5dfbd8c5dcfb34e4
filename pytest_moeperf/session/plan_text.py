"""``--perf-plan``: what would be launched, how often, for how long."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.run import CANDIDATE, REFERENCE
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.units import format_duration


def plan_lines(benches: Sequence[tuple[ServerSpec, Sequence[CellPlan], ServerBench]], settings: Settings) -> list[str]:
    """For each backend: the commands, the cells, what one launch over all of them costs, and what it may come to."""
    lines: list[str] = []
    for spec, plans, bench in benches:
        runs = settings.gate.runs_per_launch + 1
        measuring_s = sum(bench.expected_run_s(plan.cell) * runs for plan in plans)
        launch_s = bench.expected_launch_s(CANDIDATE) + measuring_s
        lines.append(f"moeperf  plan for {spec.label}: {len(plans)} cells, {runs} runs of each in a launch")
        lines.extend(
            f"  cell       {plan.cell.workload.label}, {plan.cell.workload.num_prompts} prompts" for plan in plans
        )
        lines.append(f"  candidate  {bench.command_text(CANDIDATE)}")
        if bench.can_launch_reference:
            lines.append(f"  reference  {bench.command_text(REFERENCE)}")
        if settings.update_baselines:
            count = settings.gate.record_launches
            lines.append(f"  record     {count} launches, about {format_duration(count * launch_s)}")
            continue
        lines.append(f"  screen     1 launch, about {format_duration(launch_s)}")
        if settings.gate.mode == "confirm" and bench.can_launch_reference:
            pairs = settings.gate.looks[-1]
            pair_s = launch_s + bench.expected_launch_s(REFERENCE) + measuring_s
            lines.append(
                f"  confirm    what the screen leaves open: up to {pairs} pairs ({2 * pairs} launches), at most about "
                f"{format_duration(pairs * pair_s)}"
            )
    if settings.gate.budget_s is not None:
        lines.append(f"  budget     {format_duration(settings.gate.budget_s)} (--perf-budget)")
    return lines
