"""The settings that a command works under: those of the tests in this folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_moeperf.model.settings import Settings
from pytest_moeperf.reporting.files import LAST_REPORT

if TYPE_CHECKING:
    from pytest_moeperf.baselines import FileStore


def settings_here() -> Settings:
    """From the nearest ``moeperf.toml`` or ``pyproject.toml`` in this folder or above it, and the environment.

    :raises UsageProblem: for a value that is wrong.
    """
    from pytest_moeperf.options.files import find_file
    from pytest_moeperf.options.resolve import Given, resolve

    here = Path.cwd()
    file, table = find_file(here, Path(here.anchor))
    given = Given(file=file, table=table, environ=os.environ, namespace={})
    return resolve(given, root=file.parent if file else here, active=False)


def store_folder(settings: Settings, folder: str | None) -> Path:
    """Of ``--baselines``, else the configured one."""
    return Path(folder) if folder is not None else beside_file(settings, settings.baselines_dir)


def beside_file(settings: Settings, folder: str) -> Path:
    """A configured path, which starts at the configuration file; shown from here where it lies below."""
    configured = Path(settings.root) / folder
    here = Path.cwd()
    return configured.relative_to(here) if configured.is_relative_to(here) else configured


def report_at(settings: Settings, given: str | None) -> Path:
    """Of the command line, else where reports were asked for, else that of the last invocation."""
    if given:
        return Path(given)
    if not settings.report_dir:
        return beside_file(settings, str(LAST_REPORT))
    from_file = settings.provenance.get("report_dir", "").startswith("file")
    return beside_file(settings, settings.report_dir) if from_file else Path(settings.report_dir)


def store_at(settings: Settings, folder: str | None) -> FileStore:
    from pytest_moeperf.baselines import FileStore

    return FileStore(store_folder(settings, folder))
