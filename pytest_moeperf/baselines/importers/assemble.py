"""From records to baselines: one for each cell and fingerprint, with the list of what nobody knows about them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_moeperf.baselines.importers.record import Record, refuse
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.fingerprint import VOCABULARY, build_fingerprint
from pytest_moeperf.model.baseline import Baseline, BaselineEvent, StoredRun
from pytest_moeperf.model.run import FINGERPRINT_GROUPS, Evidence, Fingerprint, Plain
from pytest_moeperf.model.workload import Cell, Workload

_SHAPE = {
    "concurrency": "how many requests were in flight at once",
    "input_len": "how long the prompts were",
    "output_len": "how many tokens a request generated",
}
_WANTED = ("throughput", "tpot", "ttft")
_NOT_LIMITING = 100
"""A request rate this many times what the server got through limits nothing: the loop was closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """One thing that a file does not say."""

    cell: str
    """Its label."""
    field: str
    """``workload.seed``, ``hardware``, ``ttft``."""
    why: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.field}: {self.why}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportResult:
    """What a file holds, ready to be saved, and what it doesn't."""

    format: str
    baselines: tuple[Baseline, ...]
    """Each with an event of the kind ``imported``; never comparable where a blocking field is unknown."""
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """What the user says of a file beside what stands in it."""

    engine: str = ""
    model: str = ""
    backend: str = ""
    workload: Mapping[str, Plain]
    provenance: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """A record with its cell and fingerprint."""

    record: Record
    engine: str
    model: str
    cell: Cell
    fingerprint: Fingerprint
    doubts: Mapping[str, str]
    notes: tuple[str, ...]


def assemble(records: Iterable[Record], *, path: str, file_format: str, stated: Stated, at: str) -> ImportResult:
    """One baseline for each engine, model, cell and fingerprint among ``records``.

    :raises UsageProblem: if a record doesn't say what its cell is and ``stated`` doesn't either, or contradicts it.
    :raises BaselineError: for a run that failed in part.
    """
    groups: dict[str, list[_Placed]] = {}
    for record in records:
        placed = _place(record, path=path, stated=stated)
        key = repr((placed.engine, placed.model, placed.cell, placed.fingerprint))
        groups.setdefault(key, []).append(placed)
    if not groups:
        raise UsageProblem(where=path, problem=f"holds no result in the form {file_format}")
    baselines = tuple(_baseline(group, path=path, stated=stated, at=at) for group in groups.values())
    missing = [found for group in groups.values() for placed in group for found in _missing(placed)]
    notes = ["throughput is over each whole run: a steady-state figure is not in such files"]
    notes += [note for group in groups.values() for placed in group for note in placed.notes]
    return ImportResult(
        format=file_format,
        baselines=baselines,
        missing=tuple(dict.fromkeys(missing)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _place(record: Record, *, path: str, stated: Stated) -> _Placed:
    where = f"{path}: {record.where}" if record.where else path
    known = _with_stated(record, stated, where=where)
    _refuse_incomplete(record, known, path=path)
    known, notes = _without_idle_rate(known, record.values)
    backend = stated.backend or record.backend
    if not backend:
        raise UsageProblem(
            where=where, problem="does not say which backend ran", next_step="state it: moeperf import --backend=NAME"
        )
    for name, meaning in _SHAPE.items():
        if known.get(name) is None:
            raise UsageProblem(
                where=where,
                problem=f"does not say {meaning}",
                next_step=f"state it: moeperf import --{name.replace('_', '-')}=N",
            )
    rate = known.get("request_rate")
    workload = Workload(
        concurrency=int(known["concurrency"] or 0),
        input_len=int(known["input_len"] or 0),
        output_len=int(known["output_len"] or 0),
        num_prompts=int(known.get("num_prompts") or 0),
        dataset=str(known.get("dataset") or ""),
        seed=int(known.get("seed") or 0),
        request_rate=float(rate) if isinstance(rate, int | float) and math.isfinite(rate) else None,
    )
    model = stated.model or record.model
    doubts = {name: why for name, why in record.doubts.items() if name not in stated.workload}
    return _Placed(
        record=record,
        engine=stated.engine or record.engine or "attached",
        model=model,
        cell=Cell(backend=backend, workload=workload),
        fingerprint=_fingerprint(record, known, doubts=doubts, model=model),
        doubts=doubts,
        notes=(*record.notes, *notes),
    )


def _with_stated(record: Record, stated: Stated, *, where: str) -> dict[str, Plain]:
    known = dict(record.workload)
    for name, value in stated.workload.items():
        if name in known and name not in record.doubts and known[name] != value:
            raise UsageProblem(
                where=where,
                problem=f"says {name} = {known[name]}, and {value} was stated",
                next_step=f"leave --{name.replace('_', '-')} out, or import another file",
            )
        known[name] = value
    return known


def _refuse_incomplete(record: Record, known: Mapping[str, Plain], *, path: str) -> None:
    sent = known.get("num_prompts")
    if isinstance(sent, int) and record.completed is not None and record.completed < sent:
        raise refuse(path, record.where, f"{sent - record.completed} of {sent} requests failed")
    if "throughput" not in record.values and "tpot" not in record.values:
        raise refuse(path, record.where, "has neither a throughput nor a TPOT")
    for key, value in record.values.items():
        if not (math.isfinite(value) and value > 0):
            raise refuse(path, record.where, f"{key} = {value:g} is not a measurement (finite and above 0)")


def _without_idle_rate(
    known: dict[str, Plain], values: Mapping[str, float]
) -> tuple[dict[str, Plain], tuple[str, ...]]:
    rate, output_len = known.get("request_rate"), known.get("output_len")
    if not isinstance(rate, int | float) or not isinstance(output_len, int) or "throughput" not in values:
        return known, ()
    achieved = values["throughput"] / output_len
    if not math.isfinite(rate) or rate < _NOT_LIMITING * achieved:
        return known, ()
    note = f"a request rate of {rate:g}/s limits nothing at {achieved:.3g} requests/s: taken as a closed loop"
    return {**known, "request_rate": math.inf}, (note,)


def _fingerprint(record: Record, known: Mapping[str, Plain], *, doubts: Mapping[str, str], model: str) -> Fingerprint:
    """Every workload field, None where it is unknown; of the other groups only what the file states."""
    relied_on = {name: value for name, value in known.items() if name not in doubts}
    rate = relied_on.get("request_rate")
    if isinstance(rate, float) and math.isinf(rate):
        relied_on["request_rate"] = None
    groups = {name: dict(record.groups.get(name, {})) for name in FINGERPRINT_GROUPS if name != "workload"}
    if record.server_info is not None:
        groups["software"].setdefault("engine", record.engine)
    built = build_fingerprint(
        workload=relied_on,
        server_info=record.server_info,
        env={},
        software=groups["software"],
        hardware=groups["hardware"],
        environment=groups["environment"],
        model={"name": model} if model else None,
    )
    # Without its field the ids would be those of a model that this product didn't read; these nobody knows.
    workload = {name: built.workload.get(name) for name in (*Workload(concurrency=1).as_fields(), VOCABULARY)}
    return replace(built, workload=workload, server={**built.server, **groups["server"]})


def _baseline(group: list[_Placed], *, path: str, stated: Stated, at: str) -> Baseline:
    first = group[0]
    origin = stated.provenance or first.record.provenance or path
    seen: Counter[str] = Counter()
    runs: list[StoredRun] = []
    for placed in group:
        digest = _digest(placed.record)
        seen[digest] += 1
        runs.append(
            StoredRun(
                # By content: a file that has grown, or was moved, brings only its new runs.
                id=f"import-{digest}-{seen[digest]}",
                # Which launch served which run is not in such files: one launch claims the least.
                session="imported",
                launch="imported",
                started_at=placed.record.started_at,
                values=placed.record.values,
                run_s=placed.record.duration_s,
            )
        )
    event = BaselineEvent(at=at, kind="imported", reason=origin, runs=len(runs), change={}, by="moeperf import")
    return Baseline(
        engine=first.engine,
        model=first.model,
        cell=first.cell,
        fingerprint=first.fingerprint,
        evidence=Evidence(requested=first.cell.backend, looked_for=("the server's log", "a kernel profile")),
        runs=tuple(runs),
        anchor=tuple(runs),
        history=(event,),
        provenance=origin,
    )


def _digest(record: Record) -> str:
    said = repr((sorted(record.values.items()), record.started_at, record.duration_s))
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def _missing(placed: _Placed) -> Iterable[Missing]:
    label, doubts = placed.cell.label, placed.doubts
    for name, value in placed.fingerprint.workload.items():
        if value is None:
            yield Missing(cell=label, field=f"workload.{name}", why=doubts.get(name, "not in the file"))
    for group in FINGERPRINT_GROUPS[1:]:
        stated = {name for name in getattr(placed.fingerprint, group) if not name.startswith("model.")}
        if not stated:
            yield Missing(cell=label, field=group, why=doubts.get(group, "not in the file"))
    for metric in _WANTED:
        if metric not in placed.record.values:
            yield Missing(cell=label, field=metric, why=doubts.get(metric, "not in the file"))
    if "itl" not in placed.record.values and "itl" in doubts:
        yield Missing(cell=label, field="itl", why=doubts["itl"])
