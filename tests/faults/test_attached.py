"""A server that somebody else launched: who it is, and that it stays the one it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attachable_server import SGLANG_INFO, Attachable, serving
from fault_world import World

HARDWARE = '\n[attach]\nhardware = "{}"\n'
TEST = """\
import pytest

@pytest.mark.perf(input_len=16, output_len=32, num_prompts=16, concurrency=4)
def test_decode(moeperf):
    moeperf.measure()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "suite", config="runs = 3\n", test=TEST)


def state(world: World, hardware: str) -> None:
    """The file has what README's has: an engine, its arguments, a reference."""
    file = world.folder / "moeperf.toml"
    text = file.read_text("utf-8").partition("\n[attach]")[0].replace('engine = "simulated"', 'engine = "sglang"')
    file.write_text(text + (HARDWARE.format(hardware) if hardware else ""), encoding="utf-8")


def vllm(path: str) -> Any:
    return {
        "/v1/models": {"data": [{"id": "tiny", "root": "/models/tiny", "owned_by": "vllm", "max_model_len": 1024}]},
        "/version": {"version": "0.32.0"},
        # Its development mode has an endpoint of SGLang's name.
        "/server_info": {"vllm_config": "model='tiny', tensor_parallel_size=8", "vllm_env": {}},
    }.get(path)


def test_hardware_is_stated_or_unknown(world: World) -> None:
    state(world, "")
    with serving(Attachable(said=vllm)) as server:
        attach = f"--perf-attach={server.url}/v1"
        silent = world.run(attach, "--update-baselines")
        assert silent.code == 1, silent.raw
        assert (
            'Not recorded: not shown: the attached server\'s hardware ([attach] hardware = "8x H200" states it). '
            "Nothing could ever be compared with such a baseline"
        ) in silent.text
        assert world.baselines() == []

        state(world, "8x H200")
        assert world.run(attach, "--update-baselines").code == 0
        (entry,) = world.baselines()
        assert (entry.baseline.engine, entry.baseline.model) == ("attached", "tiny")
        stored = entry.baseline.fingerprint
        assert stored.hardware == {"stated": "8x H200"}
        assert stored.software == {"engine": "vllm", "engine_version": "0.32.0"}
        assert "client_cpu_count" in stored.environment

        assert "INCOMPARABLE" not in world.run(attach, "--perf-mode=screen").raw
        state(world, "4x H200")
        other = world.run(attach, "--perf-mode=screen")
        assert other.code == 1
        assert "the attached server's hardware: 8x H200 in the baseline, 4x H200 here" in other.text


def test_a_server_that_is_replaced_between_two_runs(world: World) -> None:
    """The runs before and after it are each of one server; together they are of none."""
    state(world, "8x H200")

    def replaced(path: str) -> Any:
        return SGLANG_INFO | {"pid": 34 if server.answered > 40 else 12} if path == "/server_info" else None

    with serving(Attachable(said=replaced)) as server:
        finished = world.run(f"--perf-attach={server.url}", "--update-baselines")
    assert finished.code == 1, finished.raw
    assert "INVALID" in finished.raw
    assert "this is not the server that was there when measuring began: pid was 12, and is 34" in finished.text
    assert world.baselines() == []


def test_replicas_that_take_turns(world: World) -> None:
    """Nothing names them; the requests of one run show two speeds at the same time."""
    state(world, "8x H200")
    with serving(Attachable(said=vllm, step_s=lambda number: (0.008, 0.016)[number % 2])) as server:
        finished = world.run(f"--perf-attach={server.url}", "--update-baselines")
    assert finished.code == 1, finished.raw
    assert "at the same time: several servers share the address" in finished.text
    assert world.baselines() == []


def test_a_router_is_one_server_whatever_its_workers_do_meanwhile(world: World) -> None:
    state(world, "8x H200")

    def router(path: str) -> Any:
        worker = SGLANG_INFO | {"internal_states": [{"last_gen_throughput": server.answered}]}
        said = {"model_path": "/models/tiny", "disable_radix_cache": True, "prefill": [worker], "decode": [worker]}
        return {"/server_info": said, "/flush_cache": {}}.get(path)

    with serving(Attachable(said=router)) as server:
        finished = world.run(f"--perf-attach={server.url}", "--update-baselines")
    assert finished.code == 0, finished.raw
    (entry,) = world.baselines()
    assert entry.baseline.fingerprint.software["engine"] == "sglang"
    assert entry.baseline.fingerprint.server["decode.workers"] == 1
