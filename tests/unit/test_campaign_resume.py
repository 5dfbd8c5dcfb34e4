"""Runs of an interrupted invocation are used as the launches that they were."""

from __future__ import annotations

from pytest_moeperf.campaign.resume import Resumable
from pytest_moeperf.model.bounds import Bound
from pytest_moeperf.model.records import ClientReport
from pytest_moeperf.model.run import CANDIDATE, REFERENCE, Launch, Run
from pytest_moeperf.model.workload import Cell, Workload
from pytest_moeperf.rehearse import metrics_of

ONE = Cell(backend="b", workload=Workload(concurrency=1))
TWO = Cell(backend="b", workload=Workload(concurrency=2))


def runs_of(name: str, arm: str, cells: dict[Cell, int], *, session: str = "old", warmup: bool = False) -> list[Run]:
    launch = Launch(id=name, session=session, arm=arm)
    return [
        Run(
            id=f"{name}/{cell.key}/{index}",
            cell=cell,
            launch=launch,
            index=index,
            started_at="",
            metrics=metrics_of(7.0, (Bound(metric="throughput"),)),
            client=ClientReport(clock="user"),
            warmup=warmup,
        )
        for cell, count in cells.items()
        for index in range(count)
    ]


def test_a_single_launch_is_handed_out_once_if_it_holds_enough_of_a_cell() -> None:
    old = Resumable.of(runs_of("A", CANDIDATE, {ONE: 3, TWO: 1}))
    assert old.take_single(REFERENCE, [ONE], 3) is None
    assert old.take_single(CANDIDATE, [TWO], 3) is None
    found = old.take_single(CANDIDATE, [ONE, TWO], 3)
    assert found is not None
    assert (found.launch.id, found.enough(ONE, 3), found.enough(TWO, 3)) == ("A", True, False)
    assert old.take_single(CANDIDATE, [ONE], 3) is None


def test_warm_up_runs_do_not_count() -> None:
    old = Resumable.of(runs_of("A", CANDIDATE, {ONE: 3}, warmup=True))
    assert old.take_single(CANDIDATE, [ONE], 1) is None


def test_a_pair_needs_both_arms_of_one_session_in_a_row() -> None:
    runs = [
        *runs_of("A1", REFERENCE, {ONE: 3}),
        *runs_of("B1", CANDIDATE, {ONE: 3}),
        *runs_of("B2", CANDIDATE, {ONE: 3}),
        *runs_of("A2", REFERENCE, {ONE: 3}, session="later"),
    ]
    old = Resumable.of(runs)
    found = old.take_pair([ONE], 3)
    assert found is not None
    assert [item.launch.id for item in found] == ["A1", "B1"]
    assert old.take_pair([ONE], 3) is None, "B2 and A2 are of different sessions"


def test_a_pair_must_hold_every_cell() -> None:
    runs = [*runs_of("A1", REFERENCE, {ONE: 3, TWO: 3}), *runs_of("B1", CANDIDATE, {ONE: 3, TWO: 2})]
    assert Resumable.of(runs).take_pair([ONE, TWO], 3) is None
    assert Resumable.of(runs).take_pair([ONE], 3) is not None


def test_a_partner_is_the_next_launch_of_the_same_session_and_the_other_arm() -> None:
    screen = Launch(id="A", session="old", arm=CANDIDATE)
    reference = runs_of("B", REFERENCE, {ONE: 3, TWO: 2})
    found = Resumable.of(reference).take_partner(screen, [ONE], 3)
    assert found is not None
    assert found.launch.id == "B"
    assert Resumable.of(reference).take_partner(screen, [ONE, TWO], 3) is None
    assert Resumable.of(runs_of("B", CANDIDATE, {ONE: 3})).take_partner(screen, [ONE], 3) is None
    later = [*runs_of("C", CANDIDATE, {ONE: 3}), *reference]
    assert Resumable.of(later).take_partner(screen, [ONE], 3) is None, "it did not run beside the screen"
    assert Resumable.of(runs_of("B", REFERENCE, {ONE: 3}, session="x")).take_partner(screen, [ONE], 3) is None
    assert Resumable.of([]).take_partner(screen, [ONE], 3) is None
