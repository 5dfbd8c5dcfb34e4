"""pytest's entry point: hooks only. Each hands over; nothing is decided here."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_moeperf.fixtures import backend, moeperf, moeperf_config, moeperf_server, moeperf_server_spec
from pytest_moeperf.markers.described import DESCRIPTIONS, uses_moeperf
from pytest_moeperf.options import flags
from pytest_moeperf.session.activation import SKIP_REASON, asks_for_perf
from pytest_moeperf.session.stash import TAKEN

__all__ = ["backend", "moeperf", "moeperf_config", "moeperf_server", "moeperf_server_spec"]


def pytest_addoption(parser: pytest.Parser) -> None:
    flags.add_options(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, object, object]:
    result = yield
    early_config.stash[TAKEN] = flags.add_aliases(parser)
    return result


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_moeperf import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    for description in DESCRIPTIONS:
        config.addinivalue_line("markers", description)
    if asks_for_perf(config) or flags.any_given(config):
        from pytest_moeperf.session.roles import register_roles
        from pytest_moeperf.session.settings import settings_of

        settings = settings_of(config)
        if settings.plan_only:
            # xdist, whose hook comes last, then starts no workers: they would have nothing to do.
            config.option.dist, config.option.tx = "no", []
        if settings.active:
            register_roles(config)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames and "moeperf" in metafunc.fixturenames:
        given = [
            name for mark in metafunc.definition.iter_markers("parametrize") for name in str(mark.args[0]).split(",")
        ]
        if "backend" not in (name.strip() for name in given):
            from pytest_moeperf.session.settings import settings_of

            backends = settings_of(metafunc.config).backends if asks_for_perf(metafunc.config) else ()
            metafunc.parametrize("backend", backends or ("no-backend",), indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not asks_for_perf(config):
        for item in items:
            if uses_moeperf(item):
                item.add_marker(pytest.mark.skip(reason=SKIP_REASON))
