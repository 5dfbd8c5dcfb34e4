"""A model's files, where this machine has them: its folder, or the snapshot in the hub's cache. Nothing is fetched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONTEXT_KEYS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
"""In the order in which SGLang looks."""


def model_folder(model: str, *, env: Mapping[str, str] | None = None, revision: str = "main") -> Path | None:
    """Where the files of ``model`` (a path, or a name on the hub) lie; None: not here.

    :param env: the server's own variables; they may name another cache than ours do.
    """
    if not model:
        return None
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(model):
        return None
    variables = os.environ | dict(env or {})
    home = Path(variables.get("HF_HOME") or Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE") or home / "hub").expanduser()
    stored = cache / f"models--{model.replace('/', '--')}"
    try:
        commit = (stored / "refs" / revision).read_text("utf-8").strip()
    except (OSError, ValueError):
        commit = revision
    snapshot = stored / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def read_json(path: Path) -> dict[str, Any] | None:
    """None where there is no such file, or it holds something else."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part about the language model, which models of several kinds of input keep in a table of its own."""
    if "vocab_size" in config:
        return config
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        part = config.get(name)
        if isinstance(part, dict):
            return text_config(part)
    return config


def context_length(config: Mapping[str, Any]) -> int | None:
    """Tokens that a request may have, prompt and answer together, as SGLang derives it from the config."""
    config = text_config(config)
    scaling = config.get("rope_scaling")
    factor = 1.0
    if isinstance(scaling, dict) and "original_max_position_embeddings" not in scaling:
        stretched = (scaling.get("rope_type") or scaling.get("type")) != "llama3"
        told = scaling.get("factor")
        factor = float(told) if stretched and isinstance(told, (int, float)) else 1.0
    for key in _CONTEXT_KEYS:
        value = config.get(key)
        if isinstance(value, int) and value > 0:
            return int(value * factor)
    return None
