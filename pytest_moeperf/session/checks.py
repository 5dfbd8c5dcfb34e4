"""What is refused before anything is started."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.errors import BaselineError, UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options.files import find_file
from pytest_moeperf.options.variables import told_unknown
from pytest_moeperf.session.command import command_in, shown_path
from pytest_moeperf.session.specs import launched_reference, launched_spec
from pytest_moeperf.session.stash import TAKEN


def check_before_start(config: pytest.Config, settings: Settings) -> tuple[str, ...]:
    """What the user should know though nothing is wrong. A plan is printed without the engine too: its flags are then
    not checked. Tests that are only collected need nothing.

    What a ``conftest.py`` below the folders that pytest was started on changes is not known yet.

    :raises UsageProblem: no backend, an unknown one, a missing model or interpreter, a flag the engine lacks.
    """
    from pytest_moeperf.session.sweeps import stored_sweep_notes

    if config.option.collectonly:
        return ()
    if not settings.backends:
        taken = "--backend" in config.stash.get(TAKEN, ())
        flag = "--perf-backend" if taken else "--backend"
        unknown = told_unknown(name for name, value in os.environ.items() if value)
        theirs = " (--backend is an option of another plugin or conftest.py here)" if taken else ""
        raise UsageProblem(
            where=flag,
            problem="; ".join([f"no backend is named, so there is nothing to measure{theirs}", *unknown]),
            allowed="names such as triton, flashinfer_cutlass, flashinfer_cutedsl",
            next_step=f'pytest -m perf {flag}=NAME, or backends = ["NAME"] in [tool.moeperf]',
        )
    notes = [*check_specs(config, settings)]
    if settings.update_baselines and not settings.plan_only:
        refuse_unwritable(settings.baselines)
    strays = (f"{shown_path(error.path)}: {error.problem}; it is left alone" for error in _strays(settings))
    return tuple(dict.fromkeys([*notes, *strays, *stored_sweep_notes(settings)]))


def check_specs(config: pytest.Config, settings: Settings) -> list[str]:
    """What is to be known of the servers that these settings launch, of both arms.

    :raises UsageProblem: one of them could not be launched as it is.
    """
    from pytest_moeperf.engines.adapter import EngineMissing
    from pytest_moeperf.engines.catalog import engine_named
    from pytest_moeperf.evidence import unread_version

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
    return notes


def _where_given(settings: Settings, target: str, backend: str) -> str:
    """What to mend: the flag, the variable or the key that named the backend."""
    source = settings.provenance.get(target, "")
    kind, _, name = source.partition(" ")
    if kind == "file":
        return f'{name} [tool.moeperf] {target}, "{backend}"'
    if kind == "environment":
        return f"{name}={backend}"
    return f"--perf-reference={backend}" if target == "reference" else f"--backend={backend}"


def refuse_unwritable(folder: Path) -> None:
    """:raises UsageProblem: what is to be recorded could not be written there."""
    standing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    problem = ""
    if not standing.is_dir():
        problem = f"{standing} is a file"
    elif not os.access(standing, os.W_OK | os.X_OK):
        problem = f"{standing} can't be written by this user"
    if problem:
        raise UsageProblem(
            where="--update-baselines",
            problem=f"nothing could be recorded in {folder}: {problem}",
            next_step="make it a folder that this user may write, or name another one: [tool.moeperf] baselines",
        )


def _strays(settings: Settings) -> tuple[BaselineError, ...]:
    return FileStore(settings.baselines).strays()


def refuse_other_configuration(item: pytest.Item, settings: Settings) -> None:
    """An invocation measures what its one configuration says. A test that has another, or none, beside it is of
    another suite.

    :raises UsageProblem: for such a test, with the command that runs it.
    """
    own, _ = find_file(item.path.parent, item.config.rootpath)
    if str(own or "") == settings.config_file:
        return
    here = shown_path(settings.config_file) if settings.config_file else "none, so the simulated engine"
    raise UsageProblem(
        where=item.nodeid,
        problem=f"its configuration is {shown_path(own) if own else 'missing'}, and that of this invocation is {here}",
        allowed="tests of one configuration an invocation: it has one engine, one store and one report",
        next_step=command_in(item.config, shown_path(item.path.parent))
        if own
        else "put a moeperf.toml beside this test or above it, or leave it out",
    )
