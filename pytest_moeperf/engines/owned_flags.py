"""Flags that the launcher sets itself. A second one in the arguments would win: another port would be asked for ever,
other GPUs would be locked than those that are used."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.errors import UsageProblem

_ADDRESS = "none: each launch gets a free port on 127.0.0.1; the fixture's moeperf.url says which"
_MODEL = 'model = "..." in [tool.moeperf]'
_NODES = "nnodes, launcher, hosts and rendezvous in [tool.moeperf]"
_GPUS = "tensor_parallel = N in [tool.moeperf]"
OWNED = {
    **dict.fromkeys(("--port", "--host"), _ADDRESS),
    **dict.fromkeys(("--model-path", "--model"), _MODEL),
    **dict.fromkeys(("--tp-size", "--tp", "--tensor-parallel-size"), _GPUS),
    **dict.fromkeys(("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr"), _NODES),
}
"""Flag -> the key that is meant. ``--api-key`` and ``--enable-metrics`` are not here: what is given is used."""


def refuse_owned_flags(args: Sequence[str], *, backend: str) -> None:
    """:raises UsageProblem: for the first flag that the launcher sets."""
    for argument in args:
        flag = argument.partition("=")[0]
        if flag in OWNED:
            raise UsageProblem(
                where="[tool.moeperf.server] args",
                problem=f"{backend}: {flag} is set by the launcher, and this one would take its place",
                allowed=OWNED[flag],
                next_step=f"take {argument} out of the arguments; nothing was started",
            )
