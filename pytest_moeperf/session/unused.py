"""Baselines that no test asks for any more: a renamed backend, a shape that was dropped from a parametrization."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.markers.described import PERF
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.session.command import shown_path


def runs_all_collected(config: pytest.Config) -> bool:
    """Whether this invocation runs every perf test of the paths that it was given; where it chooses among them, those
    left out may ask for a baseline."""
    option = config.option
    chooses = option.keyword or option.deselect or getattr(option, "lf", False) or option.markexpr not in ("", PERF)
    return not chooses and not any("::" in argument for argument in config.args)


def unused_baselines(settings: Settings, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Paths of the baselines of these outcomes' model that none of them is about: of this invocation's backends, and of
    backends that the configuration does not know."""
    store = FileStore(settings.baselines)
    models = {(outcome.session.get("engine", ""), outcome.session.get("model", "")) for outcome in outcomes}
    cells = [outcome.decision.cell for outcome in outcomes]
    try:
        unused = [
            entry
            for engine, model in sorted(models)
            for entry in store.orphans(engine=engine, model=model, cells=cells)
            if entry.baseline.cell.backend in settings.backends or _renamed(entry.baseline.cell.backend, settings)
        ]
    except BaselineError:
        return ()  # whoever needs the one that can't be read says so
    return tuple(shown_path(entry.path) for entry in unused)


def _renamed(backend: str, settings: Settings) -> bool:
    """No backend of the configuration has this name. Known where there is a table for each, or a list of them all."""
    listed = settings.provenance.get("backends", "default") not in ("default", "command line")
    named = {settings.reference, *settings.reference_servers, *settings.backend_servers, *settings.backends}
    return bool(settings.backend_servers or listed) and backend not in named
