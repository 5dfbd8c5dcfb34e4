"""Properties of one test for JUnit XML, named so that a CI dashboard can plot them."""

from __future__ import annotations

from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.reporting.figures import change_of
from pytest_moeperf.reporting.text import safe
from pytest_moeperf.reporting.view import launches_text


def junit_properties(outcome: Outcome) -> list[tuple[str, str]]:
    """``moeperf.verdict``, ``moeperf.throughput.measured`` ...: names and values for ``item.user_properties``.

    Figures are in the bound's unit, changes are fractions of the metric itself. What is not known has no property.
    """
    decision = outcome.decision
    cell = decision.cell
    properties: list[tuple[str, object]] = [
        ("verdict", outcome.verdict.value),
        ("engine", outcome.session.get("engine") or next((run.launch.engine for run in outcome.runs), None)),
        ("backend", cell.backend),
        ("cell", cell.key),
        ("phase", decision.phase),
        ("launches", launches_text(outcome)),
        ("evidence", outcome.evidence.status),
        ("runner", outcome.evidence.runner),
        ("ceiling", outcome.ceiling_tok_s),
        ("efficiency", outcome.efficiency),
        ("recorded", outcome.recorded),
        ("refused", outcome.refused),
    ]
    for result in decision.results:
        key = result.bound.key
        change = change_of(result)
        properties += [
            (f"{key}.verdict", result.verdict.value),
            (f"{key}.unit", result.bound.unit),
            (f"{key}.measured", result.measured),
            (f"{key}.baseline", result.baseline),
            (f"{key}.change", change.estimate if change else None),
            (f"{key}.change.lower", change.lower if change else None),
            (f"{key}.change.upper", change.upper if change else None),
            (f"{key}.change.level", change.level if change else None),
        ]
    return [(f"moeperf.{name}", _value(value)) for name, value in properties if value is not None]


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else safe(str(value))
