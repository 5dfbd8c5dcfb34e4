"""The command of each node, for each launcher. Nothing is started."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_moeperf.bench.nodes import over_nodes
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import LaunchPlan, NodeCommand
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.options.resolve import Given, resolve
from pytest_moeperf.outgoing.key import ApiKey

SPEC = ServerSpec(engine="sglang", backend="triton", tensor_parallel=4, nnodes=2)
PLAN = LaunchPlan(
    command=("python", "-m", "sglang.launch_server", "--port", "{port}", "--api-key={api_key}"),
    name="triton",
    spec_digest="d",
    env={"A": "1 2"},
    cwd="/suite",
    api_key=ApiKey("planted-key"),
)
RANK_0 = (*PLAN.command, "--nnodes", "2", "--node-rank", "0", "--dist-init-addr")
RANK_1 = (*PLAN.command[:-1], "--nnodes", "2", "--node-rank", "1", "--dist-init-addr")


def test_one_node_is_left_as_it_is() -> None:
    assert over_nodes(PLAN, replace(SPEC, nnodes=1)) is PLAN


def test_local_nodes_share_the_gpus_and_meet_on_the_loopback() -> None:
    plan = over_nodes(PLAN, SPEC, gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    address = "127.0.0.1:{rendezvous_port}"
    assert plan.command == (*RANK_0, address)
    assert plan.env == {"A": "1 2", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert plan.followers == (
        NodeCommand(command=(*RANK_1, address), env={"A": "1 2", "CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}),
    )


def test_ssh_gets_one_quoted_line_and_no_api_key() -> None:
    spec = replace(SPEC, nnodes=3, launcher="ssh", hosts=("user@node1", "node2"), rendezvous="10.0.0.1")
    plan = over_nodes(PLAN, spec)
    assert plan.command[-1] == "10.0.0.1:{rendezvous_port}"
    assert [node.command[:6] for node in plan.followers] == [
        ("ssh", "-tt", "-o", "BatchMode=yes", "--", "user@node1"),
        ("ssh", "-tt", "-o", "BatchMode=yes", "--", "node2"),
    ]
    line = shlex.split(plan.followers[1].command[6])
    assert line[:6] == ["env", "--chdir=/suite", "A=1 2", "python", "-m", "sglang.launch_server"]
    assert line[-6:] == ["--nnodes", "3", "--node-rank", "2", "--dist-init-addr", "10.0.0.1:{rendezvous_port}"]
    assert all("api" not in part for node in plan.followers for part in node.command)


def test_no_other_node_gets_the_key_of_a_file_or_a_variable() -> None:
    spec = replace(SPEC, launcher="ssh", hosts=("node1",), rendezvous="10.0.0.1")
    ours = replace(PLAN, command=(*PLAN.command[:-1], "--config", "{key_file}"), key_file="{api_key}")
    theirs = replace(PLAN, command=(*PLAN.command, "--config", "own.yaml"), env={"A": "1 2", "KEY": "{api_key}"})
    plans = [over_nodes(ours, spec), over_nodes(theirs, spec)]
    assert "{key_file}" in plans[0].command
    lines = [plan.followers[0].command[6] for plan in plans]
    assert not [line for line in lines if "key" in line.lower()]
    assert ["own.yaml" in line for line in lines] == [False, True]


def test_slurm_takes_the_next_nodes_of_the_allocation() -> None:
    (node,) = over_nodes(PLAN, replace(SPEC, launcher="slurm", rendezvous="fe80::1")).followers
    srun = ("srun", "--nodes=1", "--ntasks=1", "--relative=1", "--overlap", "--export=ALL", "--kill-on-bad-exit=1")
    assert node.command == (*srun, "--chdir=/suite", *RANK_1, "[fe80::1]:{rendezvous_port}")
    assert node.env == {"A": "1 2"}


def test_ray_starts_its_ranks_itself() -> None:
    plan = over_nodes(PLAN, replace(SPEC, launcher="ray"))
    assert plan.command == (*PLAN.command, "--use-ray", "--nnodes", "2")
    assert plan.followers == ()


def test_a_launcher_of_the_site_is_asked_for_every_further_node() -> None:
    plan = over_nodes(
        PLAN,
        replace(SPEC, nnodes=3),
        launcher=lambda node: NodeCommand(command=("kubectl", "exec", f"engine-{node.rank}", "--", *node.command)),
    )
    assert [node.command[:3] for node in plan.followers] == [
        ("kubectl", "exec", "engine-1"),
        ("kubectl", "exec", "engine-2"),
    ]


def test_the_nodes_are_part_of_what_a_server_is() -> None:
    assert SPEC.digest != replace(SPEC, nnodes=1).digest
    assert SPEC.label == "triton (sglang, TP4, 2 nodes)"
    assert replace(SPEC, nnodes=1, tensor_parallel=1).label == "triton (sglang)"


def settings(**table: object) -> Settings:
    given = Given(file=Path("moeperf.toml"), table=table, environ={}, namespace={})
    return resolve(given, root=Path("."), active=True)


def test_nodes_come_from_the_file() -> None:
    found = settings(engine="sglang", tensor_parallel=16, nnodes=2, launcher="ssh", hosts=["node1"], rendezvous="node0")
    assert (found.nnodes, found.launcher, found.hosts, found.rendezvous) == (2, "ssh", ("node1",), "node0")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            {"engine": "sglang", "tensor_parallel": 3, "nnodes": 2},
            "tensor_parallel = 3 can't be split over 2 nodes",
        ),
        (
            {"engine": "sglang", "tensor_parallel": 4, "nnodes": 2, "launcher": "ssh"},
            "0 hosts for 2 nodes",
        ),
        (
            {"engine": "sglang", "tensor_parallel": 4, "nnodes": 2, "launcher": "ssh", "hosts": ["-oProxyCommand=x"]},
            "'-oProxyCommand=x' is not a host name",
        ),
        ({"launcher": "mpirun"}, "'mpirun'"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_starts(table: dict[str, object], text: str) -> None:
    with pytest.raises(UsageProblem, match=r"nodes|hosts|launcher") as caught:
        settings(**table)
    assert text in str(caught.value)
