"""Servers of several nodes, through the whole product: the simulated engine's processes really meet."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_world import World, cleaned_up, eventually

FAKE_SSH = """\
#!/bin/sh
# As sshd does: a shell gets the one line.
echo "$@" >> "$MOEPERF_TEST_CALLS"
for line in "$@"; do :; done
exec sh -c "$line"
"""
FAKE_SRUN = """\
#!/bin/sh
echo "$@" >> "$MOEPERF_TEST_CALLS"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""
LOST_NODE = """\
import sys
from pytest_moeperf.model.server import NodeCommand

def pytest_moeperf_node_command(spec, node):
    return NodeCommand(command=(sys.executable, "-c", "import sys; print('no GPU here'); sys.exit(7)"))
"""


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(*, launcher: str, rendezvous: str = "127.0.0.1", **how: object) -> World:
        config = f'nnodes = 2\ntensor_parallel = 2\nlauncher = "{launcher}"\nrendezvous = "{rendezvous}"\n'
        config += 'hosts = ["node1"]\n' if launcher == "ssh" else ""
        worlds.append(World(tmp_path / "suite", config=config + "[backends.one]\n", **how))  # type: ignore[arg-type]
        return worlds[0]

    yield make
    for world in worlds:
        with cleaned_up(world):
            world.assert_nothing_is_left()


def nodes_that_met(world: World) -> str:
    (log,) = world.runtime.glob("launches/*/server.log")
    return log.read_text()


def test_two_local_nodes_are_measured_as_one_server(make_world: Callable[..., World]) -> None:
    world = make_world(launcher="local")
    finished = world.run("--backend=one", "--update-baselines")
    assert finished.code == 0, finished.raw
    (guardian,) = world.runtime.glob("launches/*/guardian.log")
    assert "one (simulated, TP2, 2 nodes)" in guardian.read_text()
    log = nodes_that_met(world)
    assert "simulated: node 1 of 2 has joined" in log
    assert "simulated: node 1 of 2 has come" in log


@pytest.mark.parametrize(("launcher", "program"), [("ssh", FAKE_SSH), ("slurm", FAKE_SRUN)])
def test_a_remote_node_joins(launcher: str, program: str, make_world: Callable[..., World], tmp_path: Path) -> None:
    tool = tmp_path / "bin" / {"ssh": "ssh", "slurm": "srun"}[launcher]
    tool.parent.mkdir()
    tool.write_text(program)
    tool.chmod(0o755)
    world = make_world(launcher=launcher)
    calls = tmp_path / "calls"
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    finished = world.run("--backend=one", "--update-baselines", PATH=path, MOEPERF_TEST_CALLS=str(calls))
    assert finished.code == 0, finished.raw
    assert "simulated: node 1 of 2 has come" in nodes_that_met(world)
    (call,) = calls.read_text().splitlines()
    assert "--node-rank 1" in call
    assert "api-key" not in call


@pytest.fixture
def other_machine() -> Iterator[tuple[str, int]]:
    """A network namespace with nothing in it but a cable to this one: our address on it, and a pid inside."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("iproute2 or util-linux is not installed")
    inside = subprocess.Popen(["unshare", "--net", "sleep", "600"], stderr=subprocess.DEVNULL)  # noqa: S607
    ours, theirs = f"mp{inside.pid}a", f"mp{inside.pid}b"
    enter = ["nsenter", f"--net=/proc/{inside.pid}/ns/net"]
    steps = (
        ["ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", str(inside.pid)],
        ["ip", "address", "add", "10.213.7.1/30", "dev", ours],
        ["ip", "link", "set", ours, "up"],
        [*enter, "ip", "address", "add", "10.213.7.2/30", "dev", theirs],
        [*enter, "ip", "link", "set", theirs, "up"],
    )
    try:
        eventually(lambda: own_network(inside.pid) or inside.poll() is not None, lambda: "unshare hangs")
        if not own_network(inside.pid) or any(subprocess.run(step, check=False).returncode for step in steps):
            pytest.skip("this user may not make network namespaces")
        yield "10.213.7.1", inside.pid
    finally:
        inside.kill()
        inside.wait()


def own_network(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False


def test_nodes_in_two_network_namespaces_meet(
    other_machine: tuple[str, int], make_world: Callable[..., World], tmp_path: Path
) -> None:
    address, pid = other_machine
    tool = tmp_path / "bin" / "ssh"
    tool.parent.mkdir()
    tool.write_text(FAKE_SSH.replace("exec sh", f"exec nsenter --net=/proc/{pid}/ns/net sh"))
    tool.chmod(0o755)
    world = make_world(launcher="ssh", rendezvous=address)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    finished = world.run("--backend=one", "--update-baselines", PATH=path, MOEPERF_TEST_CALLS=str(tmp_path / "calls"))
    assert finished.code == 0, finished.raw
    log = nodes_that_met(world)
    assert f"simulated: node 1 of 2 has joined at {address}:" in log
    assert "simulated: node 1 of 2 has come" in log


def test_a_node_that_dies_in_a_run_ends_the_server_and_is_named(make_world: Callable[..., World]) -> None:
    world = make_world(launcher="local", scale=3.0)
    invocation = world.start("--backend=one", "--update-baselines")
    world.server_in_a_run("one")
    (pid,) = (pid for pid, command in world.processes().items() if "--node-rank 1" in command)
    os.kill(pid, signal.SIGKILL)
    finished = invocation.end()
    assert finished.code == 1
    section = finished.section("test_decode[one-2]")
    assert section.startswith("INVALID c=2: same_server failed in 1 of 1 run.")
    assert "one (simulated, TP2, 2 nodes) " in section
    assert "while measuring c=2 16/16" in section
    assert "node 1 of 2 ended with exit code -9" in guardian_log(world)


def test_a_node_that_does_not_start_is_named_with_what_it_said(make_world: Callable[..., World]) -> None:
    world = make_world(launcher="local", conftest=LOST_NODE)
    finished = world.run("--backend=one", "--update-baselines")
    assert finished.code == 1
    section = finished.section("test_decode[one-2]")
    assert "one (simulated, TP2, 2 nodes) exited with code 7 after" in section
    assert "| no GPU here" in section
    assert "| moeperf: node 1 of 2 ended with exit code 7, so the server is ended" in section


def test_a_launcher_that_is_not_there_is_named(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world(launcher="slurm")
    finished = world.run("--backend=one", "--update-baselines", PATH=str(tmp_path))
    assert finished.code == 1
    assert "could not be started: No such file or directory: srun" in finished.section("test_decode[one-2]")


def guardian_log(world: World) -> str:
    return "".join(path.read_text() for path in world.runtime.glob("launches/*/guardian.log"))
