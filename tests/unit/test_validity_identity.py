"""One launch is one server: what it said when it was ready, it says after every run."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_moeperf.bench.witness import Witness
from pytest_moeperf.model.run import Check

MARKS: dict[str, Any] = {"pid": 12, "version": "0.5.14", "model": "m", "arguments": "abc", "start time": None}
COUNTS: dict[str, Any] = {"requests": 100.0, "generated_tokens": 5000.0}


def checks(now: dict[str, Any], *counts: dict[str, Any], known: bool = False, **launched: Any) -> dict[str, Check]:
    witness = Witness()
    witness.begin(MARKS | launched, COUNTS)
    found: tuple[Check, ...] = ()
    for before, after in zip(counts[::2], counts[1::2], strict=True):
        found = witness.checks(now, before, after, process_known=known)
    return {check.name: check for check in found}


GROWN = {"requests": 124.0, "generated_tokens": 6000.0}


def test_the_same_server() -> None:
    assert {check.status for check in checks(MARKS, COUNTS, GROWN).values()} == {"pass"}


@pytest.mark.parametrize(
    ("change", "name", "message"),
    [
        (
            {"pid": 34},
            "same_server_process",
            "this is not the server that was there when measuring began: pid was 12, and is 34",
        ),
        (
            {"version": "0.5.23", "arguments": "x"},
            "same_server_args",
            "the server changed while it was measured: version was 0.5.14, and is 0.5.23; arguments was abc, and is x",
        ),
        ({"model": "n"}, "same_server_args", "the server changed while it was measured: model was m, and is n"),
    ],
)
def test_a_server_replaced_between_two_runs(change: dict[str, Any], name: str, message: str) -> None:
    """The run itself began and ended with the new one: before and after it nothing differs."""
    found = checks(MARKS | change, GROWN, GROWN)
    assert [check.name for check in found.values() if check.status == "fail"] == [name]
    assert found[name].message == message


def test_one_without_a_pid_is_known_by_its_counters() -> None:
    """It began to count again, and has counted more in its own run than the launch had at first."""
    found = checks(MARKS | {"pid": None}, COUNTS, GROWN, {"requests": 8.0}, {"requests": 150.0}, pid=None)
    assert found["same_server_process"].message == (
        "its total of requests fell from 124 to 8: it was started again, or several servers share the address"
    )
    assert checks(MARKS | {"pid": None}, COUNTS, GROWN, pid=None)["same_server_process"].status == "pass"


def test_what_tells_nothing_is_unknown() -> None:
    found = checks({}, {}, {}, pid=None, arguments=None)
    assert [check.status for check in found.values()] == ["unknown", "unknown"]
    assert checks({}, {}, {}, known=True)["same_server_process"].status == "pass"
