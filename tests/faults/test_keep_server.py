"""``--perf-keep-server`` on a machine with GPUs that only NVML's list knows: a warm server is never in its own way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_world import World, cleaned_up, fake_gpus

from pytest_moeperf.servers.registry import list_servers, stop_server


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    config = 'tensor_parallel = 2\n[backends.one]\n[backends.two]\nargs = ["--time-scale=6"]\n'
    made = World(tmp_path / "suite", config=config, conftest=fake_gpus(2))
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    with cleaned_up(made):
        made.assert_nothing_is_left()


def test_it_makes_room_for_the_fresh_launches_and_the_next_backend(world: World) -> None:
    assert world.run("--backend=one", "--update-baselines").code == 0
    finished = world.run("--backend=one,two", "--perf-reference=one", "--perf-keep-server=10min")
    assert finished.code == 1, finished.raw
    assert "REGRESSION" in finished.section("test_decode[two-2]")
    assert "1 failed, 1 passed" in finished.raw
    logs = [log.read_text("utf-8") for log in world.runtime.glob("launches/*/guardian.log")]
    # One that records; a screen each; four pairs, fresh: with one launch stored the first two claim nothing.
    assert len(logs) == 1 + 2 + 8
    # `one` gave way to `two`, whose first launch gave way to the first fresh one, of whichever arm.
    reasons = re.findall(
        r"asked to stop by pytest pid \d+: (?:one|two) \(simulated, TP2\) needs its devices", "".join(logs)
    )
    assert len(reasons) == 2
    assert list_servers() == ()


def test_one_of_an_earlier_invocation_is_named_not_ended(world: World) -> None:
    assert world.run("--backend=one", "--update-baselines").code == 0
    assert world.run("--backend=one", "--perf-keep-server=10min").code == 0
    (warm,) = list_servers()
    refused = world.run("--backend=two", "--update-baselines")
    assert refused.code == 1
    assert (
        f"two (simulated, TP2) cannot start: one (simulated, TP2) (launch {warm.launch_id[:8]}, pid {warm.pid}) is on "
        f"GPU-0, GPU-1, held by nobody, kept warm until {warm.keep_until} hint: moeperf servers stop "
        f"{warm.launch_id[:8]}"
    ) in refused.section("test_decode[two-2]")
    assert [server.launch_id for server in list_servers()] == [warm.launch_id]
    # The same backend takes it up, whoever kept it.
    again = world.run("--backend=one")
    assert "1 passed" in again.raw
    assert len(list(world.runtime.glob("launches/*/guardian.log"))) == 2
    for server in list_servers():
        stop_server(server)
