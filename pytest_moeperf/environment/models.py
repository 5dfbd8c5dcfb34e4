"""What identifies a model: its configuration and quantization by content, its revision by commit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_moeperf.environment.model_files import model_folder, read_json
from pytest_moeperf.model.run import Plain

_QUANTIZATION_FILE = "hf_quant_config.json"
"""ModelOpt's, beside config.json."""


def read_model(model: str, *, env: Mapping[str, str] | None = None, revision: str = "") -> dict[str, Plain]:
    """``name``, and as far as they can be read without a network ``config_digest`` (of config.json's contents, whatever
    the order of its keys), ``quantization`` and, of a hub name, ``revision``.

    Args:
        env: of the server, which says where the hub's cache lies.
        revision: of a hub name, where the launch command gives one.
    """
    facts: dict[str, Plain] = {"name": model}
    folder = model_folder(model, env=env, revision=revision or "main")
    if model and not Path(model).expanduser().is_dir():
        # The hub's cache names a snapshot after its commit.
        facts["revision"] = folder.name if folder is not None else revision or None
    if folder is not None and (config := read_json(folder / "config.json")) is not None:
        facts["config_digest"] = _digest(config)
        facts["quantization"] = _quantization(config, read_json(folder / _QUANTIZATION_FILE))
    return {name: value for name, value in facts.items() if value is not None}


def _quantization(config: Mapping[str, Any], beside: Mapping[str, Any] | None) -> str | None:
    """``fp8 1f2e3d4c``: the method, and all that is said of it."""
    said = config.get("quantization_config")
    if not isinstance(said, Mapping) and beside is None:
        return None
    inner = beside.get("quantization") if beside is not None else None
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    algorithm = inner.get("quant_algo") if isinstance(inner, Mapping) else None
    return f"{method or algorithm or 'quantized'} {_digest({'config': said, 'beside': beside})[:8]}"


def _digest(said: Mapping[str, Any]) -> str:
    told = {key: value for key, value in said.items() if not key.startswith("_") and key != "transformers_version"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
