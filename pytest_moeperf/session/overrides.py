"""What a suite's own ``moeperf_config`` fixture makes of the settings. Asked at collection: cells are planned by it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options.resolve import refuse_contradictions
from pytest_moeperf.session.hooks import asked
from pytest_moeperf.session.planning import definitions_of

NAME = "moeperf_config"
CHANGEABLE = (
    *("gate", "model", "tensor_parallel", "nnodes", "launcher", "hosts", "rendezvous", "server", "backend_servers"),
    *("reference_servers", "keep_server_s", "strict_evidence", "profile_kernels", "min_window_s", "request_timeout_s"),
    "provenance",
)
"""What some tests of an invocation may have of their own. The rest (the engine, the store, the report, what is updated)
an invocation has once."""


def settings_for(item: pytest.Item, settings: Settings) -> Settings:
    """The settings as this test sees them.

    :raises UsageProblem: its ``moeperf_config`` can't be known at collection, or changes what it may not.
    """
    for definition in definitions_of(item, NAME):
        if definition.func.__module__ != "pytest_moeperf.fixtures":
            settings = _changed(definition, settings)
    return settings


def _changed(definition: Any, settings: Settings) -> Settings:
    where = f"fixture {NAME} in {definition.baseid or 'conftest.py or a plugin'}"
    needs = [name for name in definition.argnames if name != NAME]
    if needs or definition.params:
        raise UsageProblem(
            where=where,
            problem=f"needs {', '.join(needs) or 'parameters'}, which is not there yet when cells are planned",
            allowed=f"a fixture that asks for {NAME} alone, or for nothing",
            next_step=f"read files and variables in it, or set the values in {settings.config_file or 'moeperf.toml'}",
        )
    changed = asked(where, lambda: definition.func(**dict.fromkeys(definition.argnames, settings)))
    if not isinstance(changed, Settings):
        raise UsageProblem(
            where=where,
            problem=f"returned {changed!r}",
            allowed="Settings",
            next_step=f"return dataclasses.replace({NAME}, ...)",
        )
    own = [f.name for f in fields(Settings) if getattr(changed, f.name) != getattr(settings, f.name)]
    refused = [name for name in own if name not in CHANGEABLE]
    if changed.gate != replace(settings.gate, **_of_a_cell(changed)):
        refused.append("gate.inconclusive or gate.seed")
    if refused:
        raise UsageProblem(
            where=where,
            problem=f"changes {', '.join(refused)}, which an invocation has once",
            allowed=", ".join(name for name in CHANGEABLE if name != "provenance"),
            next_step="set it in the configuration file or by its flag, and run these tests on their own",
        )
    refuse_contradictions(changed)
    return changed


def _of_a_cell(settings: Settings) -> dict[str, Any]:
    """The rules that each cell may have of its own; the report tells the others once."""
    gate = settings.gate
    return {f.name: getattr(gate, f.name) for f in fields(gate) if f.name not in ("inconclusive", "seed")}
