"""What a campaign will cost, before it spends anything, and what a budget can and cannot prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_moeperf import gate
from pytest_moeperf.campaign.cells import merge_plans
from pytest_moeperf.campaign.run import ABBA, VERIFY_ORDER
from pytest_moeperf.model.bench import Bench, CellPlan
from pytest_moeperf.model.run import CANDIDATE
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.units import format_duration

PAIRS_A_BLOCK = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanStage:
    """Launches and time of one phase, if every cell needs it."""

    name: str
    launches_least: int
    launches_most: int
    least_s: float
    most_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignPlan:
    """Least: the first stage alone. Most: every cell goes through every stage to its cap."""

    cells: int
    stages: tuple[PlanStage, ...]
    budget_s: float | None
    proves: tuple[str, ...]
    """What the budget is enough for, and what becomes of the rest; each a full sentence."""

    @property
    def launches_least(self) -> int:
        return self.stages[0].launches_least

    @property
    def launches_most(self) -> int:
        return sum(stage.launches_most for stage in self.stages)

    @property
    def least_s(self) -> float:
        return self.stages[0].least_s

    @property
    def most_s(self) -> float:
        return sum(stage.most_s for stage in self.stages)

    def lines(self) -> Iterator[str]:
        """For people."""
        for stage in self.stages:
            launches = _range(stage.launches_least, stage.launches_most)
            least, most = format_duration(stage.least_s), format_duration(stage.most_s)
            unit = "launch" if stage.launches_most == 1 else "launches"
            yield f"{stage.name}: {launches} {unit}, {most if least == most else f'{least} to {most}'}"
        yield from self.proves


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"


def plan_campaign(
    plans: Sequence[CellPlan], *, bench: Bench, settings: GateSettings, record: bool = False
) -> CampaignPlan:
    """The cost of a campaign over these cells, from the bench's own past launches and runs.

    :raises ValueError: without a cell.
    """
    cells = [plan.cell for plan in merge_plans(plans)]
    if not cells:
        raise ValueError("no cell to plan for")
    measuring_s = sum(bench.expected_measuring_s(cell, runs=settings.runs_per_launch) for cell in cells)

    def cost(arms: Sequence[str]) -> float:
        return sum(bench.expected_launch_s(arm) for arm in arms) + measuring_s * len(arms)

    one = cost((CANDIDATE,))
    if record:
        launches = max(1, settings.record_launches) if bench.can_relaunch else 1
        stages = [_stage("record", launches, launches, launches * one, launches * one)]
    else:
        stages = [_stage("screen", 1, 1, one, one)]
    steps: list[tuple[float, str]] = []
    if not record and settings.mode == gate.CONFIRM and bench.can_relaunch:
        last = settings.looks[-1]
        if bench.can_launch_reference:
            block = cost(ABBA)
            blocks = -(-last // PAIRS_A_BLOCK)
            # Where nothing comparable is stored, the launch of the screen opens the first block.
            stages.append(_stage("confirm", len(ABBA) - 1, blocks * len(ABBA), block - one, blocks * block))
            steps = [(block, f"{PAIRS_A_BLOCK * (number + 1)} pairs") for number in range(blocks)]
            if settings.verify_wins:
                whole = cost(VERIFY_ORDER)
                stages.append(_stage("verify", len(VERIFY_ORDER), len(VERIFY_ORDER), whole, whole))
        else:
            stages.append(_stage("confirm", 1, last - 1, one, (last - 1) * one))
            steps = [(one, f"{number + 2} launches") for number in range(last - 1)]
    return CampaignPlan(
        cells=len(cells),
        stages=tuple(stages),
        budget_s=settings.budget_s,
        proves=tuple(_proves(stages, steps, settings)),
    )


def _stage(name: str, least: int, most: int, least_s: float, most_s: float) -> PlanStage:
    return PlanStage(name=name, launches_least=least, launches_most=most, least_s=least_s, most_s=most_s)


def _proves(stages: Sequence[PlanStage], steps: Sequence[tuple[float, str]], settings: GateSettings) -> list[str]:
    budget = settings.budget_s
    if budget is None:
        return ["No budget is set: every cell is taken to its verdict or its cap."]
    first = stages[0]
    shown = format_duration(budget)
    if budget < first.most_s:
        cost = format_duration(first.most_s)
        text = f"The budget of {shown} is too small for anything: the {first.name} of all cells takes about {cost}."
        return [text, "Cells that are not measured end INCONCLUSIVE."]
    if budget >= sum(stage.most_s for stage in stages):
        return [f"The budget of {shown} is enough for every cell to reach its verdict or its cap."]
    left, reached = budget - first.most_s, ""
    for cost_s, what in steps:
        if cost_s > left:
            break
        left, reached = left - cost_s, what
    if not reached:
        text = f"The budget of {shown} is enough for the {first.name} alone: it can show that a cell is not worse, and"
        return [f"{text} proves no regression.", "Cells that it leaves open end INCONCLUSIVE."]
    if int(reached.split()[0]) < settings.looks[0]:
        return [f"The budget of {shown} is enough for {reached}: a gross change is proven, nothing smaller."]
    most = settings.looks[-1]
    return [f"The budget of {shown} is enough for {reached} of {most}: what is still open then ends INCONCLUSIVE."]
