"""What is said of the stored baselines before the first launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_moeperf.bench.server_bench import ServerBench
from pytest_moeperf.campaign import CampaignEvent
from pytest_moeperf.model.baseline import Baseline, BaselineMatch, StoredRun
from pytest_moeperf.model.bench import CellPlan
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.run import Evidence, Fingerprint
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.verdict import Difference
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.session import group as group_module
from pytest_moeperf.session.group import Group
from pytest_moeperf.session.measuring import bounds_beside
from pytest_moeperf.session.plan_text import plan_lines

CELL = Cell(backend="triton", workload=Workload(concurrency=10))
PLAN = CellPlan(cell=CELL, bounds=(Bound(metric="throughput"),))
SPEC = ServerSpec(engine="simulated", backend="triton")
RUNS = tuple(
    StoredRun(id=f"{number}", session="s", launch=f"{number}", started_at="", values={"throughput": 10.0})
    for number in range(2)
)
STORED = Baseline(
    engine="simulated", model="", cell=CELL, fingerprint=Fingerprint(), evidence=Evidence(), runs=RUNS, anchor=RUNS
)
OTHER_MACHINE = (
    Difference(field="hardware.gpu_count", baseline="1", here="2", blocking=True),
    Difference(field="workload.seed", baseline="0", here="1", blocking=False),
)


def bench(differences: tuple[Difference, ...], *, reference: bool = False) -> ServerBench:
    fake = SimpleNamespace(
        can_launch_reference=reference,
        can_relaunch=True,
        foreseen=lambda _: BaselineMatch(baseline=STORED, differences=differences),
        command_text=lambda arm: f"launch the {arm}",
        expected_launch_s=lambda _: 60.0,
        expected_measuring_s=lambda _, *, runs: 10.0 * runs,
    )
    return cast(ServerBench, fake)


@pytest.mark.parametrize(
    ("differences", "reference", "update", "told"),
    [
        (OTHER_MACHINE, False, False, True),
        (OTHER_MACHINE, True, False, False),
        (OTHER_MACHINE, False, True, False),
        (OTHER_MACHINE[1:], False, False, False),
    ],
    ids=["compared", "head to head", "recorded", "comparable"],
)
def test_what_can_not_be_compared_is_said_where_it_matters(
    monkeypatch: pytest.MonkeyPatch, differences: tuple[Difference, ...], reference: bool, update: bool, told: bool
) -> None:
    class Measured:
        def __init__(self, *_: Any, **__: Any) -> None:
            events.append(CampaignEvent(kind="launch", text="launched", elapsed_s=0.0))

        def run(self) -> dict[str, Any]:
            return {CELL.key: None}

    events: list[CampaignEvent] = []
    monkeypatch.setattr(group_module, "Campaign", Measured)
    journal: Any = SimpleNamespace(take=lambda: None, start=lambda _: None, runs=lambda: ())
    Group(
        spec=SPEC,
        plans=(PLAN,),
        bench=bench(differences, reference=reference),
        settings=Settings(update_baselines=update),
        on_event=events.append,
        journal=journal,
    ).run_campaign()
    note = "triton c=10 512/128: its baseline can't be compared: number of GPUs: 1 in the baseline, 2 here"
    assert [event.text for event in events] == [*([note] if told else []), "launched"]


def test_a_reference_of_which_nothing_is_stored_is_said_before_the_launch() -> None:
    events: list[CampaignEvent] = []
    nothing = SimpleNamespace(can_launch_reference=False, foreseen=lambda _: BaselineMatch(baseline=None))
    group = Group(
        spec=SPEC,
        plans=(PLAN,),
        bench=cast(ServerBench, nothing),
        settings=Settings(reference="cutlass"),
        on_event=events.append,
        journal=cast(Any, None),
    )
    with pytest.raises(AttributeError):  # there is no journal: it would be measured now
        group.run_campaign()
    assert [event.text for event in events] == [
        "triton c=10 512/128: nothing is stored of its reference cutlass, which can't be launched here"
    ]


def test_a_plan_says_what_each_cell_has() -> None:
    lines = plan_lines([(SPEC, (PLAN,), bench(OTHER_MACHINE))], Settings())
    assert lines[1:4] == [
        "  cell       c=10 512/128, 40 prompts, a baseline that can't be compared:",
        "             number of GPUs: 1 in the baseline, 2 here",
        "  candidate  launch the candidate",
    ]
    comparable = plan_lines([(SPEC, (PLAN,), bench(OTHER_MACHINE[1:]))], Settings())
    assert comparable[1] == "  cell       c=10 512/128, 40 prompts, baseline of 2 launches in 1 session"


def test_runs_that_are_not_gone_on_from_are_told_before_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Measured:
        def __init__(self, *_: Any, **given: Any) -> None:
            assert given["resume_runs"] == ()

        def run(self) -> dict[str, Any]:
            return {CELL.key: None}

    events: list[CampaignEvent] = []
    monkeypatch.setattr(group_module, "Campaign", Measured)
    journal: Any = SimpleNamespace(take=lambda: None, start=lambda _: None, gone_on_from=lambda: ((), "2 runs are old"))
    Group(
        spec=SPEC,
        plans=(PLAN,),
        bench=bench(()),
        settings=Settings(resume=True),
        on_event=events.append,
        journal=journal,
    ).run_campaign()
    assert [event.text for event in events] == ["2 runs are old"]


def test_all_groups_of_an_invocation_share_one_family() -> None:
    both = (Bound(metric="throughput"), Bound(metric="tpot"))
    other = tuple(
        CellPlan(cell=Cell(backend="cutlass", workload=Workload(concurrency=number)), bounds=both) for number in (1, 10)
    )
    assert bounds_beside((PLAN,), [(PLAN,), other]) == 4
    assert bounds_beside(other, [(PLAN,), other]) == 1
