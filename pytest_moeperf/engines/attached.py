"""A server that is already up, somebody else's. Nothing is launched, nothing is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_moeperf.engines.control import Control
from pytest_moeperf.errors import ServerError
from pytest_moeperf.model.server import LaunchPlan
from pytest_moeperf.model.spec import ServerSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a server at a URL is, as far as it says."""

    protocol: str
    """``sglang`` (native /generate), ``openai-completions`` or ``openai-chat``."""
    model: str
    server: str
    """``sglang``, ``simulated``, ``vllm``, ... as far as it says; ``openai-compatible`` otherwise."""


class AttachedEngine:
    """``--perf-attach=URL``."""

    name = "attached"
    protocol = "openai-completions"

    def check(self, spec: ServerSpec) -> None:
        del spec

    def version(self, spec: ServerSpec) -> str | None:
        del spec
        return None

    def notes(self, spec: ServerSpec) -> tuple[str, ...]:
        del spec
        return ()

    def launch_plan(self, spec: ServerSpec, *, devices: Sequence[str], session: str, launch: str) -> LaunchPlan:
        raise NotImplementedError(f"{spec.attach_url} is attached, never launched")


def probe(url: str, *, api_key: str | None = None) -> Capabilities:
    """What the server at ``url`` answers to.

    :raises ServerError: nothing answers, or it is no inference server.
    """
    control = Control(url=url, api_key=api_key)
    info = control.server_info().data
    models = control.get_json("/v1/models").data
    if info is None and models is None:
        raise ServerError(
            what=f"{url} answers neither /v1/models nor /server_info",
            hint="is the server up, and is this its base URL (without /v1)? An api key goes into MOEPERF_API_KEY.",
        )
    served = ((models or {}).get("data") or [{}])[0]
    if info is not None:
        server = "simulated" if str(info.get("version", "")).startswith("simulated") else "sglang"
    else:
        server = str(served.get("owned_by") or "openai-compatible").lower()
    return Capabilities(
        protocol="sglang" if info is not None else "openai-completions",
        model=str((info or {}).get("model_path") or served.get("id", "")),
        server=server,
    )
