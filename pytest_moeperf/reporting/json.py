"""The JSON report: every raw run, what was decided from it, and under which settings. Strict JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pytest_moeperf import __version__
from pytest_moeperf.model import SCHEMA_VERSION
from pytest_moeperf.model.codec import to_plain
from pytest_moeperf.reporting.files import write_atomically
from pytest_moeperf.reporting.view import View, counts

FILE_NAME = "moeperf.json"


def as_plain(view: View) -> dict[str, Any]:
    """The report as JSON-plain data.

    ``outcomes`` decode to ``model.verdict.Outcome`` with ``model.codec.from_plain``; ``baselines`` are those that they
    were held against, by cell. A number that isn't finite (the
    end of an interval that is not known) is ``null``.
    """
    data = {
        "schema": SCHEMA_VERSION,
        "generator": f"pytest-moeperf {__version__}",
        "started_at": view.started_at,
        "heading": to_plain(view.heading),
        "verdicts": counts(view),
        "rows": to_plain(view.rows),
        "findings": to_plain(view.findings),
        "remarks": to_plain(view.remarks),
        "notes": list(view.notes),
        "settings": to_plain(view.settings),
        "environment": dict(view.environment),
        "outcomes": to_plain(view.outcomes),
        "baselines": to_plain(view.baselines),
    }
    finite: dict[str, Any] = _finite(data)
    return finite


def write_json(view: View, directory: Path | str) -> Path:
    """Write ``moeperf.json`` into ``directory``, which is made if needed.

    :raises ReportError: if the disk is full, the folder is read-only, ...
    """
    text = json.dumps(as_plain(view), indent=1, ensure_ascii=False, allow_nan=False)
    return write_atomically(Path(directory) / FILE_NAME, f"{text}\n")


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(item) for item in data]
    return data
