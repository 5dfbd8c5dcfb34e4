"""Which source an engine was built from: its commit, and its local changes as a digest, so that two of them differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from pytest_moeperf.model.run import Plain

MODULES: Mapping[str, tuple[str, str]] = {
    "sglang": ("sglang", "sglang"),
    "vllm": ("vllm", "vllm"),
    "trtllm": ("tensorrt_llm", "tensorrt_llm"),
}
"""Distribution and module of an engine."""

NOT_SHOWN = "not shown (git could not be asked)"

# Runs in the engine's own interpreter, with the server's own environment and folder: what that finds is what serves.
_SCRIPT = r"""
import hashlib, importlib.metadata, importlib.util, json, os, subprocess, sys
distribution, module = sys.argv[1:3]
facts = {}
try:
    told = json.loads(importlib.metadata.distribution(distribution).read_text("direct_url.json") or "{}")
    facts["engine_commit"] = told.get("vcs_info", {}).get("commit_id")
except (importlib.metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
    pass
spec = importlib.util.find_spec(module)
places = list(spec.submodule_search_locations or ()) if spec else []

def git(*arguments):
    command = ["git", "-C", places[0], "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]
    # Inside of a hook GIT_DIR names another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env["GIT_OPTIONAL_LOCKS"] = "0"
    return subprocess.run(command, capture_output=True, timeout=60, env=env, check=True).stdout

def in_checkout():
    folder = os.path.realpath(places[0])
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            return True
        folder = os.path.dirname(folder)
    return False

def add_files(digest, names):
    for name in sorted(names):
        digest.update(name.encode() + b"\0")
        try:
            with open(os.path.join(places[0], name), "rb") as file:
                digest.update(file.read(1 << 22))
        except OSError:
            pass

def installed():
    return bool({"site-packages", "dist-packages"} & set(os.path.realpath(places[0]).split(os.sep)))

def state_of_checkout():
    if installed() and not git("ls-files", "--", ".").strip():
        return  # an environment that happens to lie in somebody's checkout
    facts["engine_commit"] = git("rev-parse", "HEAD").decode().strip()
    changes = git("diff", "HEAD", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color",
                  "--src-prefix=a/", "--dst-prefix=b/", "-U0", "--", ".")
    new = git("ls-files", "--others", "--exclude-standard", "-z", "--", ".").decode().split("\0")[:2000]
    digest = hashlib.sha256(changes)
    add_files(digest, filter(None, new))
    facts["engine_changes"] = digest.hexdigest()[:16] if changes or any(new) else "none"

if places and in_checkout():
    try:
        state_of_checkout()
    except (OSError, subprocess.SubprocessError):
        if not installed():
            facts["engine_commit"] = facts.get("engine_commit") or sys.argv[3]
            facts["engine_changes"] = sys.argv[3]
elif places and not installed():
    digest = hashlib.sha256()
    add_files(digest, (os.path.relpath(os.path.join(folder, name), places[0]) for folder, _, names in os.walk(places[0])
                       for name in names if name.endswith(".py")))
    facts["engine_files"] = digest.hexdigest()[:16]
print("\n" + json.dumps({name: value for name, value in facts.items() if value}))
"""


def read_source_build(
    engine: str, python: str = "", *, env: Mapping[str, str] | None = None, timeout_s: float = 120.0
) -> dict[str, Plain]:
    """``engine_commit`` and ``engine_changes`` of a checkout, an editable install or one from a repository's URL;
    ``engine_files`` of sources without git. A wheel of a release has none of them, nor has an interpreter that can't be
    asked.
    """
    if engine not in MODULES:
        return {}
    command = [python or sys.executable, "-c", _SCRIPT, *MODULES[engine], NOT_SHOWN]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            env=os.environ | dict(env or {}),
        )
        facts = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}
