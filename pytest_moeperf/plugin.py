"""pytest's entry point: hooks only. Each hands over; nothing is decided here."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from pytest_moeperf import markers
from pytest_moeperf.errors import MoeperfError
from pytest_moeperf.fixtures import backend, moeperf, moeperf_config, moeperf_server, moeperf_server_spec
from pytest_moeperf.options import flags, resolve
from pytest_moeperf.session.activation import SKIP_REASON, asks_for_perf
from pytest_moeperf.session.stash import SETTINGS

__all__ = ["backend", "moeperf", "moeperf_config", "moeperf_server", "moeperf_server_spec"]


def pytest_addoption(parser: pytest.Parser) -> None:
    flags.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, object, object]:
    result = yield
    flags.add_aliases(parser)
    return result


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_moeperf import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    for description in markers.DESCRIPTIONS:
        config.addinivalue_line("markers", description)
    try:
        start = resolve.start_folder(config.args, config.invocation_params.dir)
        file, table = resolve.find_file(start, config.rootpath)
        given = resolve.Given(file=file, table=table, environ=os.environ, namespace=vars(config.option))
        root = file.parent if file else config.rootpath
        config.stash[SETTINGS] = resolve.resolve(given, root=root, active=asks_for_perf(config))
        if config.stash[SETTINGS].active:
            from pytest_moeperf.session.roles import register_roles

            register_roles(config)
    except MoeperfError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames and "moeperf" in metafunc.fixturenames:
        given = [
            name for mark in metafunc.definition.iter_markers("parametrize") for name in str(mark.args[0]).split(",")
        ]
        if "backend" not in (name.strip() for name in given):
            backends = metafunc.config.stash[SETTINGS].backends
            metafunc.parametrize("backend", backends or ("no-backend",), indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[SETTINGS].active:
        for item in items:
            if markers.is_perf(item):
                item.add_marker(pytest.mark.skip(reason=SKIP_REASON))
