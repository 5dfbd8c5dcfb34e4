"""The real SGLang. The command is checked against the installed version, in its own interpreter."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_moeperf.engines.owned_flags import refuse_owned_flags
from pytest_moeperf.engines.sglang_flags import (
    InstalledSglang,
    installed_sglang,
    option_of,
    refuse_unknown_flags,
    without_effect,
    without_option,
)
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.server import PORT_PLACEHOLDER, LaunchPlan
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.outgoing.key import ApiKey
from pytest_moeperf.outgoing.secrets import API_KEY_PLACEHOLDER, KEY_FILE_PLACEHOLDER

BACKEND_FLAG = "--moe-runner-backend"
API_KEY_FLAG = "--api-key"
CONFIG_FLAG = "--config"
KEY_IN_COMMAND = (
    f"its API key is in its command line, which every user of this machine can read: SGLang would take it from one "
    f"{CONFIG_FLAG} file, and one that the arguments name is that one"
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9._~+/=][A-Za-z0-9._~+/=-]*")
READY_MARKER = "The server is fired up and ready to roll!"


class SglangEngine:
    """``python -m sglang.launch_server``."""

    name = "sglang"
    protocol = "sglang"

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def version(self, spec: ServerSpec) -> str | None:
        return self._versions.get(spec.digest)

    def check(self, spec: ServerSpec) -> None:
        refuse_owned_flags(spec.args, backend=spec.backend)
        if not spec.model:
            raise UsageProblem(
                where="[tool.moeperf] model",
                problem="the engine 'sglang' needs a model",
                allowed="a folder with config.json, or a hub name such as 'zai-org/GLM-5-NVFP4'",
            )
        _check_model_folder(spec.model)
        installed = installed_sglang(spec.python or sys.executable, env=spec.env)
        self._versions[spec.digest] = installed.version
        self._check_backend(spec, installed)
        refuse_unknown_flags(spec.args, installed)

    def notes(self, spec: ServerSpec) -> tuple[str, ...]:
        shown = (KEY_IN_COMMAND,) if _key_in_command(spec.args) else ()
        return (*without_effect(spec.args), *shown)

    def _check_backend(self, spec: ServerSpec, installed: InstalledSglang) -> None:
        if option_of(spec.args, BACKEND_FLAG) is not None:
            return
        choices = installed.flags.get(BACKEND_FLAG, ())
        if choices and spec.backend not in choices:
            raise UsageProblem(
                where=f"--backend={spec.backend}",
                problem=f"sglang {installed.version} has no MoE runner of that name, and there is no "
                f"[tool.moeperf.backends.{spec.backend}] table that says what it is",
                allowed=", ".join(choices),
                next_step=f"mend the name, or add [tool.moeperf.backends.{spec.backend}] args = [...]",
            )

    def launch_plan(self, spec: ServerSpec, *, devices: Sequence[str], session: str, launch: str) -> LaunchPlan:
        del session, launch
        refuse_owned_flags(spec.args, backend=spec.backend)  # a fixture may have added some since the check
        python = spec.python or sys.executable
        command = [python, "-m", "sglang.launch_server", "--model-path", spec.model]
        command += ["--host", "127.0.0.1", "--port", PORT_PLACEHOLDER]
        if spec.tensor_parallel > 1:
            command += ["--tp-size", str(spec.tensor_parallel)]
        if option_of(spec.args, BACKEND_FLAG) is None:
            command.append(f"{BACKEND_FLAG}={spec.backend}")
        if "--enable-metrics" not in spec.args:
            command.append("--enable-metrics")
        # Its port is open to every user of this host, and so is its command. A key from the configuration goes the way
        # of a generated one.
        own_key = option_of(spec.args, API_KEY_FLAG)
        in_a_file = not _key_in_command(spec.args)
        command += [CONFIG_FLAG, KEY_FILE_PLACEHOLDER] if in_a_file else [f"{API_KEY_FLAG}={API_KEY_PLACEHOLDER}"]
        command += without_option(spec.args, API_KEY_FLAG)
        return LaunchPlan(
            command=tuple(command),
            name=spec.label,
            spec_digest=spec.digest,
            env=spec.env,
            ready_log_marker=None if "--skip-server-warmup" in spec.args else READY_MARKER,
            start_timeout_s=spec.start_timeout_s,
            devices=tuple(devices),
            api_key=ApiKey.drawn() if own_key is None else ApiKey(own_key),
            # YAML, of which a JSON string is one. The key's own characters are no escapes in it: see _key_in_command.
            key_file=f'api-key: "{API_KEY_PLACEHOLDER}"\n' if in_a_file else "",
        )


def _key_in_command(args: Sequence[str]) -> bool:
    """SGLang takes one ``--config FILE``, and makes arguments of what is in it: a key that begins with a dash would be
    another option."""
    own_key = option_of(args, API_KEY_FLAG)
    return option_of(args, CONFIG_FLAG) is not None or (own_key is not None and not _PLAIN_KEY.fullmatch(own_key))


def on_cpu(args: Sequence[str]) -> bool:
    return option_of(args, "--device") == "cpu"


def _check_model_folder(model: str) -> None:
    """A path must be a model folder; anything else is a hub name, which only the engine can check."""
    path = Path(model)
    looks_like_path = model.startswith((".", "/", "~")) or path.exists()
    if not looks_like_path:
        return
    if not path.expanduser().is_dir():
        raise UsageProblem(
            where="[tool.moeperf] model",
            problem=f"{model!r} is not a folder",
            allowed="a folder with config.json, or a hub name such as 'zai-org/GLM-5-NVFP4'",
        )
    if not (path.expanduser() / "config.json").is_file():
        raise UsageProblem(
            where="[tool.moeperf] model", problem=f"{model!r} has no config.json in it", allowed="a model folder"
        )
