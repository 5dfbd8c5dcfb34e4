"""``moeperf.json``, as ``--perf-report`` writes it, read back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model import SCHEMA_VERSION
from pytest_moeperf.model.codec import from_plain
from pytest_moeperf.model.run import CANDIDATE, Run
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.json import FILE_NAME

_WRITE_ONE = "pytest -m perf --backend=NAME --perf-report=DIR writes one"


def read_report(path: Path) -> tuple[Outcome, ...]:
    """The outcomes of a report: the file, or the folder that holds it.

    :raises UsageProblem: if there is none, or what is there is no report.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageProblem(
            where=str(file), problem=f"no report can be read: {error.strerror}", next_step=_WRITE_ONE
        ) from None
    except ValueError as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error}", next_step=_WRITE_ONE) from None
    if not isinstance(data, dict) or "outcomes" not in data:
        raise UsageProblem(where=str(file), problem="is no report: it has no outcomes", next_step=_WRITE_ONE)
    if data.get("schema") != SCHEMA_VERSION:
        raise UsageProblem(
            where=str(file),
            problem=f"has schema {data.get('schema')!r}; this version of pytest-moeperf reads {SCHEMA_VERSION}",
        )
    try:
        return from_plain(tuple[Outcome, ...], _with_open_ends(data["outcomes"]))
    except KeyError as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error}", next_step=_WRITE_ONE) from None


def _with_open_ends(outcomes: Any) -> Any:
    """JSON has no infinity: an end of an interval that is not known stands as ``null``."""
    for outcome in outcomes:
        for result in outcome["decision"]["results"]:
            interval = result["interval"]
            if interval is not None:
                interval["lower"] = -math.inf if interval["lower"] is None else interval["lower"]
                interval["upper"] = math.inf if interval["upper"] is None else interval["upper"]
    return outcomes


def candidate_runs(outcomes: Sequence[Outcome]) -> tuple[Run, ...]:
    """Of all outcomes of one cell, once each: tests of one cell share its runs."""
    runs = {run.id: run for outcome in outcomes for run in outcome.runs if run.launch.arm == CANDIDATE}
    return tuple(sorted(runs.values(), key=lambda run: (run.started_at, run.id)))
