"""Baselines that no test asks for any more: a renamed backend, a shape that was dropped from a parametrization."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_moeperf.baselines.files import FileStore
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.markers.described import PERF
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.model.verdict import Outcome
from pytest_moeperf.session.last_report import shown_path


def runs_everything(config: pytest.Config, root: str) -> bool:
    """Whether this invocation runs every perf test of the configuration's project; else nothing is known to be unused.

    :param root: folder of the configuration file.
    """
    option = config.option
    chooses = option.keyword or option.deselect or getattr(option, "lf", False) or option.markexpr not in ("", PERF)
    if chooses or any("::" in argument for argument in config.args):
        return False
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        return True
    here = config.invocation_params.dir
    return all(Path(root).resolve().is_relative_to((here / argument).resolve()) for argument in config.args)


def unused_baselines(settings: Settings, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Paths of the baselines of these outcomes' model and of this invocation's backends that none of them is about."""
    store = FileStore(settings.baselines)
    models = {(outcome.session.get("engine", ""), outcome.session.get("model", "")) for outcome in outcomes}
    cells = [outcome.decision.cell for outcome in outcomes]
    try:
        unused = [
            entry
            for engine, model in sorted(models)
            for entry in store.orphans(engine=engine, model=model, cells=cells)
            if entry.baseline.cell.backend in settings.backends
        ]
    except BaselineError:
        return ()  # whoever needs the one that can't be read says so
    return tuple(shown_path(entry.path) for entry in unused)
