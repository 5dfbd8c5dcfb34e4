"""``moeperf.json``, as ``--perf-report`` writes it, read back."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.foreign import parse_json, read_text
from pytest_moeperf.model import SCHEMA_VERSION
from pytest_moeperf.model.codec import from_plain
from pytest_moeperf.model.run import CANDIDATE, Run
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.outgoing import told
from pytest_moeperf.reporting.json import FILE_NAME
from pytest_moeperf.reporting.view import View

T = TypeVar("T")

_WRITE_ONE = "pytest -m perf --backend=NAME --perf-report=DIR writes one"


def read_report(path: Path) -> tuple[Outcome, ...]:
    """The outcomes of a report: the file, or the folder that holds it.

    :raises UsageProblem: if there is none, or what is there is no report.
    """
    file, data = _read(path)
    outcomes = _decoded(file, tuple[Outcome, ...], data["outcomes"])
    for outcome in outcomes:
        if impossible := outcome.decision.cell.workload.impossible:
            raise UsageProblem(where=str(file), problem=f"is no report: {impossible}", next_step=_WRITE_ONE)
    return outcomes


def digest_of(path: Path) -> str:
    """What names a report in a baseline's history: the first 12 digits of the file's SHA-256."""
    file = path / FILE_NAME if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def read_view(path: Path) -> View:
    """All that the report shows, for drawing it again.

    :raises UsageProblem: as ``read_report``.
    """
    file, data = _read(path)
    fields = {name: data[name] for name in (field.name for field in dataclasses.fields(View)) if name in data}
    # Drawn as it is: somebody may have edited it.
    return _decoded(file, View, told(fields))


def _read(path: Path) -> tuple[Path, dict[str, Any]]:
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = parse_json(read_text(file))
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
        _open_ends(data)
    except KeyError as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error} is missing") from None
    except (TypeError, AttributeError) as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error}", next_step=_WRITE_ONE) from None
    return file, data


def _decoded(file: Path, kind: type[T], data: Any) -> T:
    try:
        return from_plain(kind, data)
    except ValueError as error:
        raise UsageProblem(where=str(file), problem=f"is no report: {error}", next_step=_WRITE_ONE) from None


def _open_ends(data: dict[str, Any]) -> None:
    """JSON has no infinity: an end of an interval that is not known stands as ``null``."""
    intervals = [result["interval"] for outcome in data["outcomes"] for result in outcome["decision"]["results"]]
    changes = [row["change"] for row in data.get("rows", ())]
    for ends in (*intervals, *changes):
        if ends is not None:
            ends["lower"] = -math.inf if ends["lower"] is None else ends["lower"]
            ends["upper"] = math.inf if ends["upper"] is None else ends["upper"]


def candidate_runs(outcomes: Sequence[Outcome]) -> tuple[Run, ...]:
    """Of all outcomes of one cell, once each: tests of one cell share its runs."""
    runs = {run.id: run for outcome in outcomes for run in outcome.runs if run.launch.arm == CANDIDATE}
    return tuple(sorted(runs.values(), key=lambda run: (run.started_at, run.id)))
