"""Which flags the installed SGLang has. Asked of itself, once for each state of its source: they change with every
release, and in a checkout with every edit."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_moeperf.engines.adapter import EngineMissing
from pytest_moeperf.errors import UsageProblem

# The version, and on a second line what the source looks like: a checkout keeps its version while it is edited.
_VERSION = """
import hashlib, importlib.metadata as m, importlib.util, os
spec = importlib.util.find_spec("sglang")
places = list(spec.submodule_search_locations or ()) if spec else []
try:
    version = m.version("sglang")
except m.PackageNotFoundError:
    if not places:
        raise
    version = "of an unknown version"  # a checkout on the path, not installed
digest = hashlib.sha256()
for place in places:
    for folder, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                state = os.stat(os.path.join(folder, name))
                digest.update(f"{folder} {name} {state.st_size} {state.st_mtime_ns}".encode())
print(version)
print(digest.hexdigest())
"""
_FLAGS = """
import argparse, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
flags = {}
for action in parser._actions:
    for name in action.option_strings:
        flags[name] = [str(choice) for choice in action.choices or ()]
print("\\n" + json.dumps(flags))
"""
_ASK_TIMEOUT_S = 300.0

RENAMED = {
    "--enable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=full (piecewise graphs were removed)",
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=disabled (piecewise graphs were removed)",
    "--enforce-piecewise-cuda-graph": "--cuda-graph-backend-prefill=full (piecewise graphs were removed)",
    "--piecewise-cuda-graph-max-tokens": "--cuda-graph-max-bs-prefill (piecewise graphs were removed)",
    "--enable-flashinfer-cutlass-moe": "--moe-runner-backend=flashinfer_cutlass",
    "--enable-flashinfer-trtllm-moe": "--moe-runner-backend=flashinfer_trtllm",
    "--enable-ep-moe": "--ep-size=N",
    "--disable-cuda-graph": "--cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled",
}
"""Flags of older versions and what took their place (sglang's arguments, read in the wheels of 0.5.14 and 0.5.23)."""

NO_EFFECT = {
    "--num-continuous-decode-steps": "parsed, but nothing in the engine reads it",
}
"""Flags that are accepted and change nothing (sglang's source, read in the wheels of 0.5.14 and 0.5.23)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledSglang:
    """One installation."""

    python: str
    version: str
    flags: dict[str, tuple[str, ...]]
    """Option string -> its choices, empty where it takes any value."""


def refuse_missing_python(python: str) -> None:
    """:raises EngineMissing: there is no such interpreter. Empty: the one that runs this."""
    if python and shutil.which(python) is None:
        raise EngineMissing(
            where="[tool.moeperf.server] python",
            problem=f"{python!r} is not a file",
            allowed="the path of the Python interpreter that has the engine installed",
        )


def installed_sglang(python: str, *, env: Mapping[str, str] | None = None) -> InstalledSglang:
    """Ask the SGLang of this interpreter, as a server with this environment would find it; remembered per interpreter,
    version and state of the source files in the user's cache folder.

    :raises EngineMissing: no such interpreter, no sglang in it, or it does not import.
    """
    refuse_missing_python(python)
    ask = partial(_ask, python, env=env or {})
    answer = ask(_VERSION, f"{python} has no sglang", "pip install sglang there, or name another interpreter")
    version = answer.splitlines()[0] if answer else "of an unknown version"
    cache = _cache_file(python, answer)
    if cache.is_file():
        flags = json.loads(cache.read_text())
    else:
        answer = ask(_FLAGS, f"sglang {version} in {python} does not import", "mend that installation")
        flags = json.loads(answer.splitlines()[-1])
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(flags))
        part.replace(cache)
    return InstalledSglang(
        python=python, version=version, flags={name: tuple(choices) for name, choices in flags.items()}
    )


def _cache_file(python: str, state: str) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    identity = hashlib.sha256(f"{python}\n{state}".encode()).hexdigest()[:16]
    return base / "pytest-moeperf" / f"sglang-flags-{identity}.json"


def _ask(python: str, code: str, problem: str, next_step: str, *, env: Mapping[str, str]) -> str:
    # SGLANG_USE_CPU_ENGINE: the flags can be asked on a machine without a GPU, whatever the server will run on.
    env = os.environ | dict(env) | {"SGLANG_USE_CPU_ENGINE": "1"}
    try:
        answer = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineMissing(
            where="[tool.moeperf.server] python", problem=f"{problem}: no answer in {_ASK_TIMEOUT_S:.0f} s"
        ) from None
    if answer.returncode != 0:
        reason = answer.stderr.strip().splitlines()[-1:] or ["no message"]
        raise EngineMissing(
            where="[tool.moeperf.server] python", problem=f"{problem}: {reason[0]}", next_step=next_step
        )
    return answer.stdout.strip()


def option_of(args: Sequence[str], name: str) -> str | None:
    """The value of ``--name=value`` or ``--name value``, the last one; None if absent."""
    value = None
    for position, argument in enumerate(args):
        if argument.startswith(f"{name}="):
            value = argument.partition("=")[2]
        elif argument == name:
            value = args[position + 1] if position + 1 < len(args) else ""
    return value


def without_effect(args: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each argument that changes nothing."""
    names = dict.fromkeys(argument.partition("=")[0] for argument in args)
    return tuple(
        f"{name} has no effect in sglang 0.5.14 and newer: {NO_EFFECT[name]}" for name in names if name in NO_EFFECT
    )


def without_option(args: Sequence[str], name: str) -> list[str]:
    """``args`` without any ``--name=value`` or ``--name value``."""
    kept: list[str] = []
    skip = False
    for argument in args:
        if not skip and argument != name and not argument.startswith(f"{name}="):
            kept.append(argument)
        skip = not skip and argument == name
    return kept


def refuse_unknown_flags(args: Sequence[str], installed: InstalledSglang) -> None:
    """:raises UsageProblem: the first flag that this version does not have, with what took its place."""
    for argument in args:
        name = argument.partition("=")[0]
        if not name.startswith("--") or name in installed.flags:
            continue
        near = difflib.get_close_matches(name, installed.flags, n=3)
        replacement = RENAMED.get(name) or (f"did you mean {' or '.join(near)}?" if near else "")
        raise UsageProblem(
            where="[tool.moeperf.server] args",
            problem=f"sglang {installed.version} has no {name}",
            allowed=replacement,
            next_step=f"{installed.python} -m sglang.launch_server --help lists them",
        )
