"""Hooks for a site's own facts and policies. Implement them in a ``conftest.py`` or a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_moeperf.model.nodes import Node
    from pytest_moeperf.model.run import Launch, Plain
    from pytest_moeperf.model.server import NodeCommand
    from pytest_moeperf.model.settings import Settings
    from pytest_moeperf.model.spec import ServerSpec
    from pytest_moeperf.model.verdict import Outcome


@pytest.hookspec(firstresult=True)
def pytest_moeperf_server_spec(spec: ServerSpec, settings: Settings) -> ServerSpec | None:
    """Change how the servers of a backend are launched; return None to leave ``spec`` as it is. Called for what a
    backend is held against too, so that both arms are launched in one way.

    Example: the image's own environment for every backend::

        def pytest_moeperf_server_spec(spec, settings):
            return dataclasses.replace(spec, env=spec.env | {"NCCL_P2P_LEVEL": "SYS"})
    """


@pytest.hookspec(firstresult=True)
def pytest_moeperf_node_command(spec: ServerSpec, node: Node) -> NodeCommand | None:
    """How a further node of a server is started from this machine, where none of the launchers ``local``, ``ssh`` and
    ``slurm`` does it; return None to leave it to the one that ``[tool.moeperf] launcher`` names.

    Example: Kubernetes::

        def pytest_moeperf_node_command(spec, node):
            return NodeCommand(command=("kubectl", "exec", f"engine-{node.rank}", "--", *node.command))
    """


@pytest.hookspec
def pytest_moeperf_software(spec: ServerSpec) -> Mapping[str, Plain] | None:
    """Facts for the ``software`` group of every fingerprint: a commit, an image digest.

    Example: the commit that the engine was built from::

        def pytest_moeperf_software(spec):
            return {"sglang_commit": Path("/opt/sglang/COMMIT").read_text().strip()}
    """


@pytest.hookspec
def pytest_moeperf_server_ready(spec: ServerSpec, launch: Launch, url: str, api_key: str | None) -> None:
    """Called when a server answers, before anything is measured on it: once for each fresh launch, of either arm
    (``launch.arm``), and once for a warm or attached server (``launch.reused``). Whatever it raises ends the launch.

    Example: load an adapter before the measurement::

        def pytest_moeperf_server_ready(spec, launch, url, api_key):
            headers = {"Authorization": f"Bearer {api_key}"}
            requests.post(f"{url}/load_lora_adapter", json=ADAPTER, headers=headers).raise_for_status()
    """


@pytest.hookspec
def pytest_moeperf_outcome(outcome: Outcome, config: pytest.Config) -> None:
    """Called once a verdict, on the process that prints (the controller, under xdist).

    Example: send verdicts to a dashboard::

        def pytest_moeperf_outcome(outcome, config):
            dashboard.send(cell=outcome.decision.cell.key, verdict=str(outcome.verdict))
    """
