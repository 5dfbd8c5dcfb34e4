"""Versions of what computes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from pytest_moeperf.model.run import Plain

PACKAGES: tuple[str, ...] = (
    *("sglang", "sglang-kernel", "sgl-kernel", "flashinfer-python", "flashinfer-cubin", "sgl-deep-gemm", "deep-gemm"),
    *(
        "torch",
        "triton",
        "triton-kernels",
        "nvidia-cutlass-dsl",
        "nvidia-nccl-cu12",
        "nvidia-nccl-cu13",
        "nvidia-cudnn-cu13",
    ),
    *("transformers", "numpy", "vllm", "tensorrt-llm", "deep-ep", "mscclpp", "compressed-tensors", "nvidia-modelopt"),
)
"""Distributions whose version can change a result."""

_SCRIPT = """
import importlib.metadata, json, sys
versions = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in json.loads(sys.argv[1]):
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


def read_software(python: str = "", *, timeout_s: float = 20.0) -> dict[str, Plain]:
    """Versions by distribution, in this interpreter or in the engine's own, without importing any of them.

    An interpreter that can't be asked has no versions.
    """
    # Not resolved: the interpreters of two virtual environments are links to the same file.
    if not python or Path(python) == Path(sys.executable):
        return {"python": ".".join(map(str, sys.version_info[:3])), **_installed_here()}
    command = [python, "-c", _SCRIPT, json.dumps(PACKAGES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True)
        versions = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}


def _installed_here() -> dict[str, Plain]:
    versions: dict[str, Plain] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
