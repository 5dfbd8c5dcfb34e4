"""Backends under xdist on a machine with GPUs that only NVML's list knows: one after the other, or side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_world import World, cleaned_up, eventually, fake_gpus, running_requests

pytest.importorskip("xdist")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    config = "tensor_parallel = 2\n[backends.one]\n[backends.two]\n"
    made = World(tmp_path / "suite", config=config, conftest=fake_gpus(4), scale=4.0)
    yield made
    with cleaned_up(made):
        made.assert_nothing_is_left()


def visible_to(pid: int) -> str | None:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return next((line.partition("=")[2] for line in lines if line.startswith("CUDA_VISIBLE_DEVICES=")), None)


def two_workers(world: World, *arguments: str) -> Callable[[], set[str | None]]:
    """Starts both backends at once; the result says what the servers that run at the same time may see."""
    invocation = world.start("--backend=one,two", "--update-baselines", "-n2", *arguments)
    seen: set[str | None] = set()

    def busy() -> bool:
        running = [record for record in world.records() if record.state == "ready" and running_requests(record) > 0]
        if len(running) > 1:
            seen.update(visible_to(record.pid) for record in running)
        return len(seen) > 1 or invocation.process.poll() is not None

    def watch() -> set[str | None]:
        eventually(busy, invocation.output)
        finished = invocation.end()
        assert finished.code == 0, finished.raw
        assert "2 passed" in finished.raw
        return seen

    return watch


def test_backends_are_measured_side_by_side_if_asked(world: World) -> None:
    assert two_workers(world, "--perf-devices=auto")() == {"GPU-0,GPU-1", "GPU-2,GPU-3"}
    for entry in world.baselines():
        assert entry.baseline.fingerprint.environment["device_sets"] == 2


def test_backends_are_measured_one_after_the_other_by_default(world: World) -> None:
    assert two_workers(world)() == set()
    for entry in world.baselines():
        assert "device_sets" not in entry.baseline.fingerprint.environment
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
