"""The chain ``moeperf_config`` -> ``moeperf_server_spec`` -> ``moeperf_server`` -> ``moeperf``. Override any."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from pytest_moeperf.session.activation import SKIP_REASON
from pytest_moeperf.session.command import command_of
from pytest_moeperf.session.stash import MEASURING

if TYPE_CHECKING:
    from pytest_moeperf.model.settings import Settings
    from pytest_moeperf.model.spec import ServerSpec
    from pytest_moeperf.model.verdict import Outcome
    from pytest_moeperf.session.group import Group


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """Name of the backend under test: one parameter for each ``--backend``. A test that can't have parameters (a method
    of a ``TestCase``, one that asks for ``moeperf`` as it runs) gets the only one."""
    if MEASURING not in request.config.stash:
        pytest.skip(SKIP_REASON)
    names = request.config.stash[MEASURING].settings.backends
    if not hasattr(request, "param") and len(names) != 1:
        pytest.fail(
            f"{len(names)} backends are named ({', '.join(names)}), and this test can't be run once for each: it has "
            "no parameters\n  next: name one of them, or make it a function with the argument 'moeperf'",
            pytrace=False,
        )
    name: str = getattr(request, "param", names[0])
    return name


@pytest.fixture(scope="session")
def moeperf_config(request: pytest.FixtureRequest) -> Settings:
    """The settings of this invocation, frozen. Override it to change them for a folder of tests: it is asked when cells
    are planned too, so it may ask for ``moeperf_config`` alone."""
    from pytest_moeperf.session.settings import settings_of

    return settings_of(request.config)


@pytest.fixture
def moeperf_server_spec(backend: str, moeperf_config: Settings, request: pytest.FixtureRequest) -> ServerSpec:
    """What the server of ``backend`` must be. Override it to launch it in another way::

    @pytest.fixture
    def moeperf_server_spec(moeperf_server_spec):
        return dataclasses.replace(moeperf_server_spec, env={"SGLANG_X": "1"})
    """
    from pytest_moeperf.session.specs import launched_spec

    return launched_spec(request.config, moeperf_config, backend)


@pytest.fixture
def moeperf_server(moeperf_server_spec: ServerSpec, moeperf_config: Settings, request: pytest.FixtureRequest) -> Group:
    """The group of all cells that share this server. ``.url()`` leases the server and says where it answers."""
    from pytest_moeperf.errors import MoeperfError

    measuring = request.config.stash[MEASURING]
    if moeperf_config != measuring.settings_for(request.node):
        pytest.fail(
            "moeperf_config gives this test other settings than those that its cells were planned by\n"
            "  next: have it return the same each time, and name 'moeperf' among the test's arguments",
            pytrace=False,
        )
    try:
        return measuring.group_of(request.node, moeperf_server_spec)
    except MoeperfError as error:
        raise _Failed(str(error), pytrace=False) from None


@pytest.fixture
def moeperf(moeperf_server: Group, request: pytest.FixtureRequest) -> Moeperf:
    """``moeperf.measure()`` asserts this test's cell."""
    from pytest_moeperf.errors import MoeperfError

    try:
        moeperf_server.run_campaign()
    except MoeperfError as error:
        raise _Failed(str(error), pytrace=False) from None
    return Moeperf(node=request.node, group=moeperf_server)


_Failed: Any = pytest.fail.Exception
"""What pytest shows by its text alone, without the source of the test."""


class MoeperfWarning(pytest.PytestWarning):
    """Something about a measurement that the user chose to be warned of, not stopped by."""


class PerfFailure(AssertionError, _Failed):  # type: ignore[misc]
    """A verdict that does not pass. Its text is the whole report of the cell, so no source lines are shown with it."""

    __module__ = "builtins"  # pytest's one-line summary then starts with the text, not with this module's name

    def __init__(self, text: str) -> None:
        _Failed.__init__(self, msg=text, pytrace=False)


class Moeperf:
    """What a test holds."""

    def __init__(self, *, node: pytest.Item, group: Group) -> None:
        self._node = node
        self._group = group

    @property
    def backend(self) -> str:
        return self._group.spec.backend

    @property
    def url(self) -> str:
        """Where the server answers; leased until all tests of the group are done."""
        return self._group.url()

    @property
    def api_key(self) -> str | None:
        """The server's key, drawn for its launch: ``Authorization: Bearer KEY``. Never print or store it."""
        key = self._group.bench.live().api_key
        return None if key is None else key.reveal()

    def measure(self, **workload: Any) -> Outcome:
        """The verdict on this test's cell; fails the test if it does not pass.

        The arguments are fields of ``Workload`` and override the ``perf`` marker and the test's parameters. A cell
        known at collection was measured together with all others of its backend; another one is measured now.

        :raises AssertionError: the verdict does not pass; its text says what happened, how sure, why, what to do.
        """
        __tracebackhide__ = True
        from pytest_moeperf.errors import MoeperfError
        from pytest_moeperf.reporting.terminal import failure_text
        from pytest_moeperf.reporting.view import FAILED, WARNED, status_of

        measuring = self._node.config.stash[MEASURING]
        try:
            outcome = measuring.judge(self._node, self._group, workload)
        except MoeperfError as error:
            raise _Failed(str(error), pytrace=False) from None
        status = status_of(outcome, warn=measuring.settings.gate.inconclusive == "warn")
        text = failure_text(outcome, pytest_command=command_of(self._node.config))
        if status == FAILED:
            raise PerfFailure(text)
        if status == WARNED:
            warnings.warn(MoeperfWarning(text), stacklevel=2)
        return outcome
