"""Numbers that somebody wrote down: a TOML file with common facts and cells, or a CSV file with a row a run.

```toml
engine = "sglang"
model = "zai-org/GLM-5-NVFP4"
backend = "flashinfer_cutlass"
provenance = "where the numbers come from"
[workload]                     # of every cell that does not say otherwise; what is left out is unknown
input_len = 512
output_len = 128
[hardware]                     # likewise [server], [software], [environment]: fields of the fingerprint
gpu = "NVIDIA RTX PRO 6000"
[[cells]]
concurrency = 1
throughput = 10.36             # tok/s; latencies in ms
"tpot.p99" = 95.14
```
A CSV file has the same names in its first row; an empty field is unknown.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping
from typing import Any

from pytest_moeperf.baselines.importers.record import Record
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.bounds import METRICS, PERCENTILES
from pytest_moeperf.model.run import FINGERPRINT_GROUPS, Plain
from pytest_moeperf.model.workload import Workload

_WORKLOAD = tuple(Workload(concurrency=1).as_fields())
_WHOLE = frozenset(_WORKLOAD) - {"dataset", "request_rate"}
_TEXTS = ("engine", "model", "backend", "provenance", "started_at")
_GROUPS = tuple(group for group in FINGERPRINT_GROUPS if group != "workload")
_KEYS = (
    *METRICS,
    *(f"{metric}.{percentile}" for metric in ("tpot", "ttft", "itl", "e2el") for percentile in PERCENTILES[1:]),
)
_CELL = (*_TEXTS, *_WORKLOAD, *_KEYS)


def read_toml(text: str, *, path: str) -> list[Record]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(where=path, problem=f"is no TOML: {error}") from None
    _refuse_unknown(document, (*_TEXTS, *FINGERPRINT_GROUPS, "cells"), where=path)
    groups = {name: _table(document, name, path=path) for name in FINGERPRINT_GROUPS}
    _refuse_unknown(groups["workload"], _WORKLOAD, where=f"{path}: [workload]")
    cells = document.get("cells")
    if not isinstance(cells, list) or not cells:
        raise UsageProblem(where=path, problem="has no cells", allowed="one [[cells]] table a run")
    common = {key: document[key] for key in _TEXTS if key in document} | groups["workload"]
    stated = {name: groups[name] for name in _GROUPS if groups[name]}
    return [
        _record({**common, **cell}, groups=stated, where=f"cells[{index}]", path=path)
        for index, cell in enumerate(cells)
    ]


def read_csv(text: str, *, path: str) -> list[Record]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    _refuse_unknown(dict.fromkeys(reader.fieldnames or ()), _CELL, where=f"{path}: line 1")
    records: list[Record] = []
    for row in reader:
        where = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise UsageProblem(where=f"{path}: {where}", problem="has another number of fields than the first line")
        cell = {
            key: value if key in (*_TEXTS, "dataset") else _csv_number(value, key=key, where=f"{path}: {where}")
            for key, value in row.items()
            if value.strip()
        }
        records.append(_record(cell, groups={}, where=where, path=path))
    if not records:
        raise UsageProblem(where=path, problem="has no rows", allowed="a row of names, then one row a run")
    return records


def _record(cell: Mapping[str, Any], *, groups: dict[str, dict[str, Plain]], where: str, path: str) -> Record:
    place = f"{path}: {where}"
    _refuse_unknown(cell, _CELL, where=place)
    for key, value in cell.items():
        is_text = key in (*_TEXTS, "dataset")
        if is_text != isinstance(value, str) or isinstance(value, bool):
            raise UsageProblem(
                where=place,
                problem=f"{key} = {value!r}",
                allowed="a text" if is_text else "a number, without separators or units",
            )
        if key in _WHOLE and not isinstance(value, int):
            raise UsageProblem(where=place, problem=f"{key} = {value!r}", allowed="a whole number")
    return Record(
        where=where,
        values={key: float(cell[key]) for key in _KEYS if key in cell},
        workload={key: cell[key] for key in _WORKLOAD if key in cell},
        groups=groups,
        engine=cell.get("engine", ""),
        model=cell.get("model", ""),
        backend=cell.get("backend", ""),
        started_at=cell.get("started_at", ""),
        provenance=cell.get("provenance", ""),
    )


def _csv_number(text: str, *, key: str, where: str) -> float | int:
    try:
        found = float(text)
    except ValueError:
        raise UsageProblem(
            where=where, problem=f"{key} = {text!r}", allowed="a number, without separators or units"
        ) from None
    return int(found) if found.is_integer() and key in _WORKLOAD else found


def _table(document: Mapping[str, Any], name: str, *, path: str) -> dict[str, Plain]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise UsageProblem(where=path, problem=f"{name} = {table!r}", allowed=f"a table [{name}]")
    for key, value in table.items():
        if not isinstance(value, str | int | float | bool):
            raise UsageProblem(
                where=f"{path}: [{name}]", problem=f"{key} = {value!r}", allowed="a text, a number, true or false"
            )
    return table


def _refuse_unknown(given: Mapping[str, Any], allowed: tuple[str, ...], *, where: str) -> None:
    unknown = [key for key in given if key not in allowed]
    if unknown:
        raise UsageProblem(
            where=where, problem=f"{unknown[0]!r} is not a name of this file's form", allowed=", ".join(allowed)
        )
