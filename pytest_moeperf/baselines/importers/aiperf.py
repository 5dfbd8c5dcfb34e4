"""``profile_export_aiperf.json`` of AIPerf (its schema 1.0 to 1.5)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pytest_moeperf.baselines.importers.record import Record, number, refuse, whole
from pytest_moeperf.foreign import parse_json
from pytest_moeperf.model.run import Plain

_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2el": "request_latency"}
"""AIPerf's "inter-token latency" is (latency - TTFT) / (tokens - 1) of a request: what everybody else calls TPOT."""
_STATS = {"": "avg", ".p50": "p50", ".p99": "p99"}
_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
_RATES = {"throughput": ("output_token_throughput", "tokens/sec"), "goodput": ("goodput", "requests/sec")}


def read_aiperf_json(text: str, *, path: str) -> list[Record]:
    try:
        source = parse_json(text)
    except json.JSONDecodeError as error:
        raise refuse(path, f"line {error.lineno}", f"is no JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(source, dict):
        raise refuse(path, "", "is no JSON object")
    if source.get("was_cancelled"):
        raise refuse(path, "", "the run was cancelled")
    failed = _stat(source, "error_request_count", "avg")
    if failed:
        raise refuse(path, "", f"{failed:g} requests failed")
    doubts: dict[str, str] = {"itl": "not in the file: what AIPerf calls inter-token latency is TPOT"}
    workload = _workload(source, doubts)
    models = _at(source, "input_config", "endpoint", "model_names") or [
        item.get("name") for item in _at(source, "input_config", "models", "items") or []
    ]
    return [
        Record(
            where="",
            values=_values(source, doubts),
            workload=workload,
            doubts=doubts,
            engine="attached",
            model=str(models[0]) if isinstance(models, list) and len(models) == 1 else "",
            started_at=str(source.get("start_time") or ""),
            duration_s=_stat(source, "benchmark_duration", "avg"),
            completed=whole(_stat(source, "request_count", "avg")),
        )
    ]


def _values(source: Mapping[str, Any], doubts: dict[str, str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for metric, name in _LATENCIES.items():
        unit = _at(source, name, "unit")
        if unit is not None and unit not in _MS:
            doubts[metric] = f"its unit is {unit!r}, which is not a known unit of time"
            continue
        for suffix, stat in _STATS.items():
            found = _stat(source, name, stat)
            if found is not None:
                values[metric + suffix] = found * _MS[unit or "ms"]
    for metric, (name, expected) in _RATES.items():
        unit = _at(source, name, "unit")
        found = _stat(source, name, "avg")
        if found is not None and unit not in (expected, None):
            doubts[metric] = f"its unit is {unit!r}, not {expected!r}"
        elif found is not None:
            values[metric] = found
    return values


def _workload(source: Mapping[str, Any], doubts: dict[str, str]) -> dict[str, Plain]:
    workload: dict[str, Plain] = {}
    for side in ("input", "output"):
        name = f"{side}_sequence_length"
        average, shortest, longest = (_stat(source, name, stat) for stat in ("avg", "min", "max"))
        if average is None:
            continue
        workload[f"{side}_len"] = round(average)
        if shortest is None or longest is None:
            doubts[f"{side}_len"] = f"only the average is in the file ({average:g})"
        elif shortest != longest:
            doubts[f"{side}_len"] = f"from {shortest:g} to {longest:g} tokens, not one length"
    concurrency = _load_setting(source, "concurrency")
    if concurrency is not None:
        workload["concurrency"] = whole(concurrency)
        rate = _load_setting(source, "request_rate")
        workload["request_rate"] = math.inf if rate is None else rate
    seed = _at(source, "run_info", "random_seed")
    seed = _at(source, "input_config", "input", "random_seed") if seed is None else seed
    if isinstance(seed, int):
        workload["seed"] = seed
    completed = whole(_stat(source, "request_count", "avg"))
    if completed is not None and source.get("error_summary") == []:
        workload["num_prompts"] = completed
    return workload


def _load_setting(source: Mapping[str, Any], name: str) -> float | None:
    """Where it stands depends on AIPerf's version: the load generator, a phase, or the point of a sweep."""
    phases = _at(source, "input_config", "phases")
    profiling = [
        phase
        for phase in (phases if isinstance(phases, list) else [])
        if isinstance(phase, dict) and phase.get("name", "profiling") == "profiling"
    ]
    candidates = [
        _at(source, "run_info", "variation_values", f"phases.profiling.{name}"),
        *(phase.get(name) for phase in profiling),
        _at(source, "input_config", "loadgen", name),
    ]
    return next((found for found in map(number, candidates) if found is not None), None)


def _stat(source: Mapping[str, Any], name: str, stat: str) -> float | None:
    return number(_at(source, name, stat))


def _at(source: object, *keys: str) -> Any:
    for key in keys:
        source = source.get(key) if isinstance(source, dict) else None
    return source
