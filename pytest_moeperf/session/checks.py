"""What is refused before anything is started."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options.variables import told_unknown
from pytest_moeperf.session.specs import launched_reference, launched_spec


def check_before_start(config: pytest.Config, settings: Settings) -> tuple[str, ...]:
    """What the user should know though nothing is wrong. A plan is printed without the engine too: its flags are then
    not checked.

    What a ``conftest.py`` below the folders that pytest was started on changes is not known yet.

    :raises UsageProblem: no backend, an unknown one, a missing model or interpreter, a flag the engine lacks.
    """
    from pytest_moeperf.engines.adapter import EngineMissing
    from pytest_moeperf.engines.catalog import engine_named
    from pytest_moeperf.evidence import unread_version
    from pytest_moeperf.session.sweeps import stored_sweep_notes

    if not settings.backends:
        raise UsageProblem(
            where="--backend",
            problem="; ".join(["no backend is named, so there is nothing to measure", *told_unknown(os.environ)]),
            allowed="names such as triton, flashinfer_cutlass, flashinfer_cutedsl",
            next_step='pytest -m perf --backend=NAME, or backends = ["NAME"] in [tool.moeperf]',
        )
    engine = engine_named(settings.engine)
    notes: list[str] = []
    for backend in settings.backends:
        candidate = launched_spec(config, settings, backend)
        for spec in filter(None, (candidate, launched_reference(config, settings, candidate))):
            try:
                engine.check(spec)
            except EngineMissing as missing:
                if not settings.plan_only:
                    raise
                notes.append(f"the flags of this plan were not checked: {missing.problem}")
            except UsageProblem as problem:
                if problem.where != f"--backend={spec.backend}":
                    raise
                target = "backends" if spec is candidate else "reference"
                raise replace(problem, where=_where_given(settings, target, spec.backend)) from None
            notes.extend(f"{spec.backend}: {note}" for note in engine.notes(spec))
            if version := engine.version(spec):
                notes.extend(filter(None, [unread_version(spec.engine, version)]))
    notes.extend(stored_sweep_notes(settings))
    return tuple(dict.fromkeys(notes))


def _where_given(settings: Settings, target: str, backend: str) -> str:
    """What to mend: the flag, the variable or the key that named the backend."""
    source = settings.provenance.get(target, "")
    kind, _, name = source.partition(" ")
    if kind == "file":
        return f'{name} [tool.moeperf] {target}, "{backend}"'
    if kind == "environment":
        return f"{name}={backend}"
    return f"--perf-reference={backend}" if target == "reference" else f"--backend={backend}"
