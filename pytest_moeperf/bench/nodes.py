"""One server over several nodes: the command that starts each of them. Pure; nothing is started here.

Node 0 is this machine: its server answers on the loopback and is measured from here. The engine's own distributed mode
makes one server of them (``--nnodes``, ``--node-rank``, ``--dist-init-addr``); a launcher only says how a command gets
to its node. All of them are existing tools: the guardian's own children, ``ssh``, Slurm's ``srun``, and Ray, where the
engine starts its ranks itself.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_moeperf.engines.sglang import API_KEY_FLAG, CONFIG_FLAG
from pytest_moeperf.engines.sglang_flags import without_option
from pytest_moeperf.model.nodes import Node
from pytest_moeperf.model.server import RENDEZVOUS_PLACEHOLDER, LaunchPlan, NodeCommand
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.outgoing.secrets import API_KEY_PLACEHOLDER, KEY_FILE_PLACEHOLDER

Launcher = Callable[[Node], NodeCommand]
LOOPBACK = "127.0.0.1"


def local(node: Node) -> NodeCommand:
    """A process of this machine: for several "nodes" of one host."""
    return NodeCommand(command=node.command, env=node.env)


def ssh(node: Node) -> NodeCommand:
    """``ssh -tt``: with a terminal the remote process gets SIGHUP when the connection ends, however it ends.

    The remote shell gets one quoted line. The environment stands in it, since sshd takes none from the client.
    """
    variables = [f"{name}={value}" for name, value in node.env.items()]
    line = shlex.join(["env", f"--chdir={node.cwd}", *variables, *node.command])
    return NodeCommand(command=("ssh", "-tt", "-o", "BatchMode=yes", "--", node.host, line))


def slurm(node: Node) -> NodeCommand:
    """``srun`` inside of the allocation whose first node runs pytest. Slurm carries the environment over."""
    srun = (
        *("srun", "--nodes=1", "--ntasks=1", f"--relative={node.rank}", "--overlap"),
        *("--export=ALL", "--kill-on-bad-exit=1", f"--chdir={node.cwd}"),
    )
    return NodeCommand(command=(*srun, *node.command), env=node.env)


LAUNCHERS: Mapping[str, Launcher] = {"local": local, "ssh": ssh, "slurm": slurm}
RAY_FLAG = "--use-ray"


def over_nodes(
    plan: LaunchPlan, spec: ServerSpec, *, gpus: Sequence[str] = (), launcher: Launcher | None = None
) -> LaunchPlan:
    """The plan of a server that spans ``spec.nnodes`` nodes; the plan as it is for one node.

    :param gpus: UUIDs of this machine's GPUs that the server spans. Local nodes get equal shares.
    :param launcher: instead of the one that the spec names.
    """
    if spec.nnodes == 1:
        return plan
    if spec.launcher == "ray":
        flags = () if RAY_FLAG in plan.command else (RAY_FLAG,)
        return replace(plan, command=(*plan.command, *flags, "--nnodes", str(spec.nnodes)))
    host = LOOPBACK if spec.launcher == "local" else spec.rendezvous or socket.gethostname()
    shares = _shares(gpus, spec.nnodes) if spec.launcher == "local" else [{} for _ in range(spec.nnodes)]
    start = launcher or LAUNCHERS[spec.launcher]
    followers = tuple(
        start(
            Node(
                rank=rank,
                count=spec.nnodes,
                host=spec.hosts[rank - 1] if spec.hosts else "",
                command=_of_rank(_without_key(plan.command), rank, spec.nnodes, host),
                env={**_without_key_variable(plan.env), **shares[rank]},
                cwd=plan.cwd or spec.cwd,
            )
        )
        for rank in range(1, spec.nnodes)
    )
    return replace(
        plan,
        command=_of_rank(plan.command, 0, spec.nnodes, host),
        env={**plan.env, **shares[0]},
        followers=followers,
    )


def _without_key(command: Sequence[str]) -> Sequence[str]:
    """Only node 0 answers requests, and other users of a node can read its command lines."""
    command = without_option(command, API_KEY_FLAG)
    return without_option(command, CONFIG_FLAG) if KEY_FILE_PLACEHOLDER in command else command


def _without_key_variable(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if API_KEY_PLACEHOLDER not in value}


def _of_rank(command: Sequence[str], rank: int, count: int, host: str) -> tuple[str, ...]:
    address = f"[{host}]" if ":" in host else host
    place = ("--nnodes", str(count), "--node-rank", str(rank))
    return (*command, *place, "--dist-init-addr", f"{address}:{RENDEZVOUS_PLACEHOLDER}")


def _shares(gpus: Sequence[str], count: int) -> list[dict[str, str]]:
    share = len(gpus) // count
    if not share:
        return [{} for _ in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[rank * share : (rank + 1) * share])} for rank in range(count)]
