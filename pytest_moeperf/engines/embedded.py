"""The ``simulated`` engine: launched like a real one, named ``simulated`` everywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_moeperf.engines.owned_flags import refuse_owned_flags
from pytest_moeperf.engines.sglang import API_KEY_FLAG
from pytest_moeperf.engines.sglang_flags import option_of, refuse_missing_python, without_option
from pytest_moeperf.engines.simulated.arguments import API_KEY_VARIABLE, refuse_bad_arguments
from pytest_moeperf.engines.simulated.launch import build_command, known_backends
from pytest_moeperf.engines.simulated.profile import load_profile
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import PORT_PLACEHOLDER, LaunchPlan
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.outgoing.secrets import API_KEY_PLACEHOLDER


class SimulatedEngine:
    """``python -m pytest_moeperf.engines.simulated``."""

    name = "simulated"
    protocol = "sglang"

    def check(self, spec: ServerSpec) -> None:
        refuse_owned_flags(spec.args, backend=spec.backend)
        refuse_missing_python(spec.python)
        profile = option_of(spec.args, "--profile")
        if profile is None and spec.backend not in known_backends():
            raise UsageProblem(
                where=f"--backend={spec.backend}",
                problem="the engine 'simulated' has no profile of that name, and there is no "
                f"[tool.moeperf.backends.{spec.backend}] table that names a profile file",
                allowed=", ".join(known_backends()),
                next_step='mend the name, or name a profile file in that table: args = ["--profile=FILE.toml"]',
            )
        load_profile(_from(spec.cwd, profile) if profile else spec.backend)
        try:
            refuse_bad_arguments(spec.args)
        except ValueError as error:
            raise UsageProblem(
                where="[tool.moeperf.server] args",
                problem=f"{spec.backend}: the engine 'simulated' refuses them: {error}",
                next_step="python -m pytest_moeperf.engines.simulated --help lists what it takes",
            ) from None

    def version(self, spec: ServerSpec) -> str | None:
        del spec
        return None

    def notes(self, spec: ServerSpec) -> tuple[str, ...]:
        del spec
        return ()

    def launch_plan(self, spec: ServerSpec, *, devices: Sequence[str], session: str, launch: str) -> LaunchPlan:
        refuse_owned_flags(spec.args, backend=spec.backend)  # a fixture may have added some since the check
        command = build_command(
            python=spec.python or sys.executable,
            host="127.0.0.1",
            port=0,
            backend=spec.backend,
            model=spec.model or None,
            tensor_parallel=spec.tensor_parallel,
            args=without_option(spec.args, API_KEY_FLAG),
            session_key=session,
            launch_key=launch,
            seed=0,
        )
        port_at = command.index("--port") + 1
        command[port_at] = PORT_PLACEHOLDER
        own_key = option_of(spec.args, API_KEY_FLAG)
        return LaunchPlan(
            command=tuple(command),
            name=spec.label,
            spec_digest=spec.digest,
            # Every user of this machine can read a command.
            env={**spec.env, API_KEY_VARIABLE: API_KEY_PLACEHOLDER},
            cwd=spec.cwd or str(Path.cwd()),
            start_timeout_s=spec.start_timeout_s,
            devices=tuple(devices),
            api_key=ApiKey.drawn() if own_key is None else ApiKey(own_key),
        )


def _from(folder: str, profile: str) -> str:
    """A profile's file as the server will find it, which runs in ``folder``; a shipped profile's name stays one."""
    return str(Path(folder) / profile) if profile.endswith((".toml", ".json")) else profile
