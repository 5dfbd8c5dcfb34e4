"""Where a baseline lies below the baselines folder: names that are readable, stable and can't leave it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict

from pytest_moeperf.model.baseline import Baseline
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.workload import Cell

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_LENGTH = 100


def model_slug(model: str) -> str:
    """``zai-org/GLM-5-NVFP4`` -> ``zai-org--GLM-5-NVFP4``; ``/models/x`` -> ``x``: the same model on another host."""
    name = model.rstrip("/")
    if name.startswith(("/", "./", "../", "~")):
        name = name.rpartition("/")[2]
    return slug(name.replace("/", "--"), empty="unnamed-model")


def slug(text: str, *, empty: str = "unnamed") -> str:
    """One path component. Where characters had to go, a digest of the original keeps two names apart."""
    safe = _UNSAFE.sub("-", text).strip("-").lstrip(".")[:_MAX_LENGTH]
    if safe == text:
        return safe or empty
    return f"{safe or empty}-{_digest(text)[:6]}"


def fingerprint_digest(fingerprint: Fingerprint) -> str:
    """Eight hexadecimal digits over every field, unknown ones included."""
    return _digest(json.dumps(asdict(fingerprint), sort_keys=True, separators=(",", ":")))[:8]


def cell_folder(*, engine: str, model: str, cell: Cell) -> str:
    return f"{slug(engine)}/{model_slug(model)}/{slug(cell.backend)}"


def relative_path(baseline: Baseline) -> str:
    """``<engine>/<model>/<backend>/<workload>@<fingerprint>.json``, with forward slashes."""
    folder = cell_folder(engine=baseline.engine, model=baseline.model, cell=baseline.cell)
    return f"{folder}/{slug(baseline.cell.workload.key)}@{fingerprint_digest(baseline.fingerprint)}.json"


def earlier_path(baseline: Baseline) -> str:
    """As ``relative_path`` was while only the shape was in a name: a file that lies there stays there."""
    folder = cell_folder(engine=baseline.engine, model=baseline.model, cell=baseline.cell)
    return f"{folder}/{slug(baseline.cell.workload.shape)}@{fingerprint_digest(baseline.fingerprint)}.json"


def same_cell(baseline: Baseline, *, engine: str, model: str, cell: Cell) -> bool:
    """The baseline is one of this cell's shape, whatever its fingerprint."""
    return (
        baseline.engine == engine
        and model_slug(baseline.model) == model_slug(model)
        and baseline.cell.backend == cell.backend
        and baseline.cell.workload.shape == cell.workload.shape
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
