"""One measurement at a time on a device, whoever dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_moeperf.model.server import WaitNotice
from pytest_moeperf.servers.measuring import measuring_lock
from pytest_moeperf.servers.problems import DevicesBusy

PATIENCE_S = 30.0
HOLDER = """
import sys
from pytest_moeperf.servers.measuring import measuring_lock
with measuring_lock(sys.argv[1:], label="other job"):
    print("locked", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another process that measures on GPU-1."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "GPU-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def test_it_says_for_whom_it_waits_and_gets_the_lock_of_one_that_was_killed(
    other: subprocess.Popen[str], locks: Path
) -> None:
    notices: list[WaitNotice] = []

    def on_wait(notice: WaitNotice) -> None:
        notices.append(notice)
        other.kill()

    since = json.loads((locks / "GPU-1.measuring.lock").read_text())["since"]
    with measuring_lock(["GPU-2", "GPU-1"], label="me", on_wait=on_wait):
        holder = json.loads((locks / "GPU-1.measuring.lock").read_text())
        assert (holder["pid"], holder["label"]) == (os.getpid(), "me")
    assert notices[0].what == "GPU-1 to measure on"
    assert notices[0].holder == f"pid {other.pid} (other job, since {since}) measures there"
    assert notices[0].waited_s >= 0.9


def test_it_gives_up_when_it_may_wait_no_longer(other: subprocess.Popen[str], locks: Path) -> None:
    since = json.loads((locks / "GPU-1.measuring.lock").read_text())["since"]
    with pytest.raises(DevicesBusy) as caught, measuring_lock(["GPU-1"], label="me", wait_timeout_s=0.0):
        pass
    assert str(caught.value) == (
        f"gave up waiting for GPU-1 to measure on after {caught.value.what.split(' after ')[1].split(':')[0]}: "
        f"pid {other.pid} (other job, since {since}) measures there\n"
        "  hint: one measurement at a time on a device; end the other one, or wait longer: --perf-budget=8h"
    )


def test_other_devices_are_free(other: subprocess.Popen[str]) -> None:
    assert other.poll() is None
    with measuring_lock(["GPU-2", "cpu:0-7"], label="me", wait_timeout_s=0.0):
        pass


def test_the_locks_are_for_all_users(locks: Path) -> None:
    with measuring_lock(["GPU-1"], label="me"):
        assert {each.name: each.stat().st_mode & 0o777 for each in locks.iterdir()} == {"GPU-1.measuring.lock": 0o666}


def test_it_is_free_again_after_an_exception() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), measuring_lock(["GPU-1"], label="me"):
        raise RuntimeError("on purpose")
    with measuring_lock(["GPU-1"], label="me", wait_timeout_s=0.0):
        pass
