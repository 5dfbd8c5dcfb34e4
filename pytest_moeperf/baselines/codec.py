"""A baseline as text that a reviewer can read: sorted keys, and each run and each event on a line of its own.

A pull request that extends a baseline adds lines and changes none of the old ones.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pytest_moeperf.errors import BaselineError
from pytest_moeperf.foreign import parse_json
from pytest_moeperf.model import SCHEMA_VERSION
from pytest_moeperf.model.baseline import Baseline, StoredRun
from pytest_moeperf.model.bounds import METRICS
from pytest_moeperf.model.codec import from_plain, to_plain
from pytest_moeperf.outgoing import printable_data, scrub_secrets

LARGEST_BYTES = 8 << 20
"""Of a file: some 4000 runs."""
_ONE_A_LINE = frozenset({"anchor", "history", "retired", "runs"})
_RESTORE = "restore it with `git checkout -- {path}` or from a backup; pytest-moeperf itself replaces files as a whole"


def encode(baseline: Baseline) -> str:
    """The whole text of the file, ending in a newline. ``decode`` gives back an equal value."""
    plain = to_plain(baseline)
    members = [f"  {json.dumps(key)}: {_member(key, plain[key])}" for key in sorted(plain)]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _member(key: str, value: Any) -> str:
    if key in _ONE_A_LINE and value:
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False).replace("\n", "\n  ")


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def decode(text: str, *, path: str) -> Baseline:
    """The inverse of ``encode``. Strict: nothing that it doesn't know is passed over.

    :raises BaselineError: names ``path``, what is wrong where, and the next step.
    """
    plain = _parse(text, path=path)
    _refuse_other_schema(plain, path=path)
    try:
        baseline = from_plain(Baseline, plain)
    except ValueError as error:
        raise BaselineError(path=path, problem=f"is no baseline: {error}", next_step=_restore(path)) from None
    unknown = _unknown_key(plain, to_plain(baseline))
    if unknown:
        raise BaselineError(
            path=path,
            problem=f"{unknown} is not a key of schema {SCHEMA_VERSION}",
            next_step=f"remove the key if it was added by hand; otherwise {_restore(path)}",
        )
    refuse_unstorable(baseline, path=path)
    return baseline


def refuse_unstorable(baseline: Baseline, *, path: str) -> None:
    """What may neither be written nor believed: runs without values, values that are no measurements, doubled ids.

    :raises BaselineError: names the run, the key and the value.
    """
    impossible = baseline.cell.workload.impossible
    if impossible:
        raise BaselineError(path=path, problem=f"its cell has {impossible}", next_step=_restore(path))
    if not baseline.runs:
        raise BaselineError(path=path, problem="has no runs", next_step="record some with --update-baselines")
    seen: dict[str, StoredRun] = {}
    for section in (baseline.anchor, baseline.runs, baseline.retired):
        if len({run.id for run in section}) != len(section):
            raise BaselineError(path=path, problem="holds a run twice in one list", next_step=_restore(path))
        for run in section:
            if seen.setdefault(run.id, run) != run:
                raise BaselineError(
                    path=path, problem=f"holds two different runs with the id {run.id}", next_step=_restore(path)
                )
    for run in seen.values():
        _refuse_bad_run(run, path=path)


def refuse_secrets(baseline: Baseline, *, path: str) -> None:
    """Rooms scrub what they collect; a file that gets pushed to a server is checked once more.

    :raises BaselineError: names the place, not the value.
    """
    plain = printable_data(to_plain(baseline))
    where = _first_difference(plain, scrub_secrets(plain))
    if where:
        raise BaselineError(
            path=path,
            problem=f"not written: {where} holds what looks like a credential",
            next_step="take it out of what was given (server arguments, --perf-reason), and revoke it if it was shown",
        )


def _first_difference(given: Any, clean: Any, where: str = "$") -> str:
    if isinstance(given, dict):
        pairs = ((f"{where}.{key}", value, clean.get(key)) for key, value in given.items())
    elif isinstance(given, list | tuple):
        pairs = ((f"{where}[{n}]", value, clean[n]) for n, value in enumerate(given))
    else:
        return where if given != clean else ""
    return next((found for place, value, kept in pairs if (found := _first_difference(value, kept, place))), "")


def _refuse_bad_run(run: StoredRun, *, path: str) -> None:
    if not run.values:
        _refuse(path, f"run {run.id} has no values")
    for key, value in run.values.items():
        if key.partition(".")[0] not in METRICS:
            _refuse(
                path, f"run {run.id} has a value for {key!r}, which is not a metric (they are {', '.join(METRICS)})"
            )
        if not (math.isfinite(value) and value > 0):
            _refuse(path, f"run {run.id} has {key} = {value:g}, which is not a measurement (finite and above 0)")
    for name, seconds in (("start_s", run.start_s), ("run_s", run.run_s)):
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            _refuse(path, f"run {run.id} has {name} = {seconds:g}, which is not a duration")


def _refuse(path: str, problem: str) -> NoReturn:
    raise BaselineError(path=path, problem=problem, next_step="leave this run out: nothing can be held against it")


def _parse(text: str, *, path: str) -> dict[str, Any]:
    conflict = next((n for n, line in enumerate(text.splitlines(), 1) if line.startswith(("<<<<<<<", ">>>>>>>"))), None)
    if conflict is not None:
        raise BaselineError(
            path=path,
            problem=f"has an unresolved merge conflict at line {conflict}",
            next_step="keep the runs and the events of both sides (each is one line) and remove the markers",
        )
    try:
        plain = parse_json(text, object_pairs_hook=_no_doubles, parse_constant=_no_constants)
    except json.JSONDecodeError as error:
        cut = "is cut off or broken" if text.strip() else "is empty"
        raise BaselineError(
            path=path,
            problem=f"{cut}: {error.msg} at line {error.lineno}, column {error.colno}",
            next_step=_restore(path),
        ) from None
    except ValueError as error:
        raise BaselineError(path=path, problem=f"is no baseline: {error}", next_step=_restore(path)) from None
    if not isinstance(plain, dict):
        raise BaselineError(path=path, problem="is no baseline: not a JSON object", next_step=_restore(path))
    return plain


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return plain


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _refuse_other_schema(plain: dict[str, Any], *, path: str) -> None:
    schema = plain.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise BaselineError(path=path, problem=f"is no baseline: schema is {schema!r}", next_step=_restore(path))
    if schema > SCHEMA_VERSION:
        raise BaselineError(
            path=path,
            problem=f"has schema {schema}; this version of pytest-moeperf reads up to {SCHEMA_VERSION}",
            next_step="upgrade it (`pip install --upgrade pytest-moeperf`), or use the version that wrote the file",
        )


def _unknown_key(given: Any, known: Any, where: str = "$") -> str:
    """Path of the first key of ``given`` that decoding dropped; empty if there is none."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            found = f"{where}.{key}" if key not in known else _unknown_key(value, known[key], f"{where}.{key}")
            if found:
                return found
    if isinstance(given, list) and isinstance(known, list | tuple):
        for index, (value, kept) in enumerate(zip(given, known, strict=True)):
            found = _unknown_key(value, kept, f"{where}[{index}]")
            if found:
                return found
    return ""


def _restore(path: str) -> str:
    return _RESTORE.format(path=path)
