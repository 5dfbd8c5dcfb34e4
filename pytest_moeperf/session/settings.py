"""The settings of an invocation, resolved when first asked for: an unused plugin reads no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_moeperf.errors import MoeperfError, UsageProblem
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options import resolve
from pytest_moeperf.options.files import FILE_NAME, files_below, find_file, start_folders, table_of
from pytest_moeperf.session.activation import asks_for_perf
from pytest_moeperf.session.command import command_in, shown_path
from pytest_moeperf.session.stash import SETTINGS


def settings_of(config: pytest.Config) -> Settings:
    """:raises pytest.UsageError: a file, a variable or a flag says something impossible."""
    if SETTINGS not in config.stash:
        try:
            config.stash[SETTINGS] = _resolved(config)
        except MoeperfError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


def _resolved(config: pytest.Config) -> Settings:
    active = asks_for_perf(config)
    file = _file_of(config, active=active)
    table = (table_of(file) if file else None) or {}
    given = resolve.Given(file=file, table=table, environ=os.environ, namespace=vars(config.option))
    root = file.parent if file else config.rootpath
    return resolve.resolve(given, root=root, active=active)


def _file_of(config: pytest.Config, *, active: bool) -> Path | None:
    """The one configuration of an invocation: beside what pytest was started on, or above; else the only one below.
    That each selected test has just this one is asked again when the tests are known.

    :raises UsageProblem: there are several.
    """
    starts = start_folders(config.args, config.invocation_params.dir)
    found = {file: start for start in starts if (file := find_file(start, config.rootpath)[0]) is not None}
    if not found and active:
        found = {file: file.parent for file in files_below(starts, ignored=config.getini("norecursedirs"))}
    if len(found) > 1 and active:
        raise UsageProblem(
            where=FILE_NAME,
            problem=f"{len(found)} of them are below what pytest was started on: {', '.join(map(shown_path, found))}",
            allowed="one an invocation: it has one engine, one store and one report",
            next_step="\n     ".join(f"{command_in(config, shown_path(folder))}" for folder in found.values()),
        )
    return next(iter(found), None)
