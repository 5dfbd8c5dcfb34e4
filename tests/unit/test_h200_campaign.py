"""The script of the GPU campaign, as far as it goes without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from pytest_moeperf.options.declared import ALIASES, OPTIONS
from pytest_moeperf.options.files import find_file
from pytest_moeperf.options.resolve import Given, resolve
from pytest_moeperf.session.specs import reference_spec, server_spec

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "h200" / "campaign.py"
SHORT = {*ALIASES.values(), "-k"}


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("h200_campaign", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "h200_campaign", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    rows = [(0.0, 0.0), (0.2, -0.001), (0.4, 0.01), (0.6, 0.06), (0.8, 0.12)]
    file = tmp_path / "slow_down.json"
    file.write_text(json.dumps({"rows": [{"sleep_ms": ms, "change": {"out_tps": -change}} for ms, change in rows]}))
    return file


@pytest.mark.parametrize(("slowdown", "sleep_ms"), [(0.01, 0.4), (0.035, 0.5), (0.06, 0.6), (0.09, 0.7)])
def test_a_planted_regression_has_the_size_that_was_measured(
    campaign: ModuleType, measured: Path, slowdown: float, sleep_ms: float
) -> None:
    assert campaign.sleep_for(slowdown, measured) == pytest.approx(sleep_ms)


def test_nothing_is_planted_beyond_what_was_measured(campaign: ModuleType, measured: Path) -> None:
    with pytest.raises(ValueError, match=r"slow_down\.json: no sleep took 50% of the throughput$"):
        campaign.sleep_for(0.5, measured)


def test_a_planted_regression_is_held_against_the_same_backend_head_to_head(
    campaign: ModuleType, measured: Path, tmp_path: Path
) -> None:
    command, added = campaign.command_of("slow10", tmp_path, measured=measured, left_s=300.4)
    folder = Path(command[-1])
    assert ("--perf-budget=300s" in command, added) == (True, {"SLEEP_MS": "0.733", "FREEZE_GC": "1"})
    file, table = find_file(folder, folder)
    given = Given(file=file, table=table, environ={}, namespace={"moeperf_backends": ("triton",)})
    settings = resolve(given, root=folder, active=True)
    assert reference_spec(settings, server_spec(settings, "triton")) is not None
    assert (folder / "test_decode.py").is_file()
    assert not (folder / "baselines").exists()


def test_every_step_asks_for_options_that_exist(campaign: ModuleType) -> None:
    known = {option.flag for option in OPTIONS} | SHORT
    asked = {
        argument.partition("=")[0]
        for step in campaign.STEPS.values()
        for argument in step.arguments
        if argument.startswith("-")
    }
    assert asked <= known
    assert "--perf-verify-wins" in asked


INTERRUPTED = """
import sys
sys.path.insert(0, sys.argv[1])
import campaign
campaign.command_of = lambda *_, **__: ([sys.executable, "-c", sys.argv[3]], {})
print("goes on:", campaign.run("pass", campaign.Path(sys.argv[2]), measured=None, left_s=None))
"""
MEASURING = """
import time
print("measured", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("kept")
"""


def test_an_interrupted_step_is_the_last_and_keeps_its_output(tmp_path: Path) -> None:
    """As Ctrl-C does it: the whole group of processes gets the signal."""
    command = [sys.executable, "-c", INTERRUPTED, str(SCRIPT.parent), str(tmp_path), MEASURING]
    output = tmp_path / "pass" / "output.txt"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 30
        while not (output.is_file() and "measured" in output.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert said.splitlines()[-1] == "goes on: False"
    assert (tmp_path / "pass-1" / "output.txt").read_text().splitlines() == ["", "measured", "kept"]
