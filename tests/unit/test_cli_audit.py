"""``moeperf audit``: this machine, and a machine with everything to say."""

from __future__ import annotations

import json

import pytest
from cli_samples import moeperf

from pytest_moeperf import environment
from pytest_moeperf.model.environment import AuditItem

ITEMS = (
    AuditItem(name="gpu_name", read="NVIDIA H200 x 8", verdict="ok"),
    AuditItem(
        name="gpu_throttling",
        read="hardware thermal slowdown x 2",
        verdict="warn",
        advice="cool the GPUs, then measure again",
    ),
    AuditItem(name="kernel_command_line", read="mitigations=auto " * 9, verdict="ok"),
    AuditItem(
        name="cpu_governor",
        read="powersave",
        verdict="warn",
        advice="sudo cpupower frequency-set --governor performance",
    ),
    AuditItem(name="pcie_acs", read="", verdict="unknown", advice="looked for ACS control (needs root)"),
    AuditItem(name="pcie_max_read_request", read="", verdict="unknown", advice="looked for ACS control (needs root)"),
)


@pytest.fixture(autouse=True)
def at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "audit", lambda: ITEMS)
    ran = moeperf("audit")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out
        == """\
warn
  gpu_throttling         hardware thermal slowdown x 2
    cool the GPUs, then measure again
  cpu_governor           powersave
    sudo cpupower frequency-set --governor performance

ok
  gpu_name               NVIDIA H200 x 8
  kernel_command_line    mitigations=auto mitigations=auto mitigations=auto m...

unknown
  pcie_acs, pcie_max_read_request
    looked for ACS control (needs root)

2 warn, 2 unknown, 2 ok
"""
    )


def test_strict_fails_on_a_warning_and_not_on_what_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "audit", lambda: ITEMS)
    assert moeperf("audit", "--strict").code == 1
    assert moeperf("audit", "--strict", "--json").code == 1
    monkeypatch.setattr(environment, "audit", lambda: tuple(item for item in ITEMS if item.verdict != "warn"))
    assert moeperf("audit", "--strict").code == 0


def test_json_of_this_machine_has_every_setting() -> None:
    ran = moeperf("audit", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert {item["name"] for item in found} == {setting.name for setting in environment.SETTINGS}
    assert {item["verdict"] for item in found} <= {"ok", "warn", "unknown"}


def test_this_machine_as_a_table() -> None:
    out = moeperf("audit").out
    assert all(setting.name in out for setting in environment.SETTINGS)
