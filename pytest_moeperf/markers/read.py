"""What a test's markers say, checked once at collection: its workload and its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.markers.described import PERF
from pytest_moeperf.markers.sound import check_workload
from pytest_moeperf.model.bounds import METRICS, PERCENTILES, Bound
from pytest_moeperf.model.settings import GateSettings
from pytest_moeperf.model.workload import DATASETS, Workload
from pytest_moeperf.units import parse_percent

WORKLOAD_FIELDS = tuple(field.name for field in fields(Workload))
_LATENCY = ("tpot", "ttft", "itl", "e2el")


def workload_of(item: pytest.Item, overrides: Mapping[str, Any] | None = None) -> Workload | None:
    """The item's workload: ``perf`` marker, then its parameters of the same names, then ``overrides`` (the arguments
    of ``measure``). None while no concurrency is known.

    :raises UsageProblem: names the node, the argument, the value and what is allowed.
    """
    values: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers(PERF))):
        if marker.args:
            raise _problem(
                item, PERF, f"takes no positional arguments, got {marker.args!r}", f"{PERF}(NAME=VALUE, ...)"
            )
        values |= marker.kwargs
    callspec = getattr(item, "callspec", None)
    parameters: Mapping[str, Any] = callspec.params if callspec is not None else {}
    values |= {name: value for name, value in parameters.items() if name in WORKLOAD_FIELDS}
    values |= overrides or {}
    unknown = [name for name in values if name not in WORKLOAD_FIELDS]
    if unknown:
        raise _problem(item, PERF, f"unknown argument {unknown[0]!r}", ", ".join(WORKLOAD_FIELDS))
    if "concurrency" not in values:
        return None
    for name, value in values.items():
        _check_workload_value(item, name, value)
    workload = Workload(**{name: value for name, value in values.items() if value is not None})
    check_workload(item, workload)
    return workload


def _check_workload_value(item: pytest.Item, name: str, value: object) -> None:
    if name == "dataset":
        if value not in DATASETS:
            raise _problem(item, PERF, f"dataset={value!r} is not known", ", ".join(DATASETS))
        return
    if name == "request_rate":
        if value is not None and not (_is_number(value) and 0 < value < math.inf):  # type: ignore[operator]
            raise _problem(
                item,
                PERF,
                f"request_rate={value!r} is not a rate",
                "a number above 0, or None (closed loop)",
            )
        return
    if name == "queueing":
        if not isinstance(value, bool):
            raise _problem(item, PERF, f"queueing={value!r} is not allowed", "True or False")
        return
    if name == "num_prompts" and value is None:
        return  # as if it were not there: 4 x concurrency
    least = {"seed": 0, "shared_prefix_len": 0}.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _problem(item, PERF, f"{name}={value!r} is not allowed", f"a whole number of at least {least}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def bounds_of(item: pytest.Item, gate: GateSettings) -> tuple[Bound, ...]:
    """What the item asserts; without any bound marker: throughput and mean TPOT with the configured margins.

    :raises UsageProblem: as ``workload_of``; also for two bounds on one metric and percentile.
    """
    bounds = [
        _bound(item, metric, marker, gate)
        for metric in METRICS
        for marker in _closest_first(item.iter_markers(metric), metric)
    ]
    if not bounds:
        names: Iterable[str] = ("throughput", "tpot")
        return tuple(Bound(metric=name, regression=gate.regression, win=gate.win) for name in names)
    return tuple(bounds)


def _closest_first(markers: Iterable[pytest.Mark], metric: str) -> list[pytest.Mark]:
    """A marker on the function replaces one of the same percentile on its class or module."""
    chosen: dict[Any, pytest.Mark] = {}
    for marker in markers:
        key = repr(marker.kwargs.get("percentile", "mean")) if metric in _LATENCY else "mean"
        chosen.setdefault(key, marker)
    return list(chosen.values())


def _bound(item: pytest.Item, metric: str, marker: pytest.Mark, gate: GateSettings) -> Bound:
    allowed: dict[str, Callable[[Any], Any]] = {"regression": _margin, "win": _margin}
    if metric in _LATENCY:
        allowed |= {"at_most_ms": _positive, "percentile": _percentile}
    else:
        allowed |= {"at_least": _positive}
    if metric == "goodput":
        allowed |= dict.fromkeys(("ttft", "tpot", "e2el"), _positive)
    if marker.args:
        raise _problem(item, metric, f"takes no positional arguments, got {marker.args!r}", ", ".join(allowed))
    values: dict[str, Any] = {"regression": gate.regression, "win": gate.win}
    for name, value in marker.kwargs.items():
        if name not in allowed:
            raise _problem(item, metric, f"unknown argument {name!r}", ", ".join(allowed))
        try:
            values[name] = allowed[name](value)
        except ValueError as error:
            raise _problem(item, metric, f"{name}: {error}", "") from None
    if values["regression"] <= gate.proven:
        raise _problem(
            item,
            metric,
            f"regression={values['regression']:.3%} is not above d0 = {gate.proven:.3%} ([tool.moeperf] proven)",
            "a regression margin above d0; a change between the two may be called either way",
        )
    limits = tuple(
        (name, values.pop(name)) for name in ("ttft", "tpot", "e2el") if metric == "goodput" and name in values
    )
    if metric == "goodput" and not limits:
        raise _problem(item, metric, "no limit says what a good request is", "at least one of ttft, tpot, e2el in ms")
    return Bound(metric=metric, slo_ms=limits, **values)


def _margin(value: Any) -> float:
    margin = parse_percent(value)
    if margin == 0:
        raise ValueError(f"{value!r}: a margin of nothing can never be shown; give at least the noise of one launch")
    return margin


def _positive(value: Any) -> float:
    if not _is_number(value) or not value > 0 or value == float("inf"):
        raise ValueError(f"{value!r} is not a number above 0")
    return float(value)


def _percentile(value: Any) -> str:
    if value not in PERCENTILES:
        raise ValueError(f"{value!r} is not one of {', '.join(PERCENTILES)}")
    return str(value)


def _problem(item: pytest.Item, marker: str, problem: str, allowed: str) -> UsageProblem:
    return UsageProblem(where=f"{item.nodeid}: marker {marker!r}", problem=problem, allowed=allowed)
