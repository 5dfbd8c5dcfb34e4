"""Checks that the bench itself makes of a run."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_moeperf.bench.limits import ceiling_check
from pytest_moeperf.bench.live import evidence_checks
from pytest_moeperf.bench.simulation import simulation_check
from pytest_moeperf.model.ceiling import Ceiling
from pytest_moeperf.model.run import Check, Evidence, EvidenceItem


def told(lateness_max_s: object) -> dict[str, Any]:
    return {"simulated": {"punctuality": {"lateness_max_s": lateness_max_s}}}


def test_a_simulation_on_time_passes() -> None:
    assert simulation_check(told(0.02), 1.0) == (Check(name="simulation_on_time", status="pass"),)


def test_a_late_simulation_voids_its_run() -> None:
    (check,) = simulation_check(told(0.082), 1.05)
    assert (check.status, check.repeatable) == ("fail", True)
    assert check.message == (
        "the simulated engine was 82 ms late in a run of 1.05 s (at most 5% of it): other programs took this machine's"
        " cores"
    )


@pytest.mark.parametrize("info", [None, {"version": "0.5.14"}])
def test_a_real_engine_is_not_asked(info: dict[str, Any] | None) -> None:
    assert simulation_check(info, 1.0) == ()


@pytest.mark.parametrize("info", [told(None), {"simulated": {}}])
def test_a_silent_simulation_is_unknown(info: dict[str, Any]) -> None:
    assert [check.status for check in simulation_check(info, 1.0)] == ["unknown"]


def contradicted() -> Evidence:
    item = EvidenceItem(source="server log line 3", text="using triton", runner="triton", says="contradicted")
    return Evidence(status="contradicted", requested="flashinfer_cutlass", runner="triton", items=(item,))


def test_contradicted_evidence_is_a_failure_with_its_line() -> None:
    (check,) = evidence_checks(contradicted(), strict=False)
    assert (check.status, check.repeatable) == ("fail", False)
    assert check.message == ("flashinfer_cutlass was asked for, triton ran (server log line 3: using triton)")


def test_unknown_evidence_fails_only_where_the_user_wants_it() -> None:
    unknown = Evidence(status="unknown", requested="triton", looked_for=("a log line", "a kernel"))
    assert [check.status for check in evidence_checks(unknown, strict=False)] == ["unknown"]
    (check,) = evidence_checks(unknown, strict=True)
    assert check.status == "fail"
    assert check.message == "nothing shows which runner executed; looked for: a log line; a kernel"


def test_more_than_the_hardware_can_do_is_a_failure() -> None:
    ceiling = Ceiling(tok_s=309.0, impossible_tok_s=400.0)
    assert ceiling_check(380.0, ceiling).status == "pass"
    check = ceiling_check(401.0, ceiling)
    assert check.status == "fail"
    assert check.message == "401 tok/s is more than this hardware can do, 400 tok/s: the figure can't be true"


def test_without_a_ceiling_it_says_what_is_missing() -> None:
    check = ceiling_check(10.0, Ceiling(looked_for=("a GPU: this server runs on none",)))
    assert (check.status, check.message) == ("unknown", "no ceiling is known: a GPU: this server runs on none")
