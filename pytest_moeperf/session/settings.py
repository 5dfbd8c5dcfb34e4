"""The settings of an invocation, resolved when first asked for: an unused plugin reads no file."""

from __future__ import annotations

import os

import pytest

from pytest_moeperf.errors import MoeperfError
from pytest_moeperf.model.settings import Settings
from pytest_moeperf.options import resolve
from pytest_moeperf.session.activation import asks_for_perf
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
    start = resolve.start_folder(config.args, config.invocation_params.dir)
    file, table = resolve.find_file(start, config.rootpath)
    given = resolve.Given(file=file, table=table, environ=os.environ, namespace=vars(config.option))
    root = file.parent if file else config.rootpath
    return resolve.resolve(given, root=root, active=asks_for_perf(config))
