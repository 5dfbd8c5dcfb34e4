"""Who is told what happens on a bench, while it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_moeperf.load.driver import LoadProgress
from pytest_moeperf.model.run import Launch, Run
from pytest_moeperf.model.server import ServerProgress, WaitNotice
from pytest_moeperf.model.spec import ServerSpec
from pytest_moeperf.model.workload import Cell
from pytest_moeperf.outgoing.key import ApiKey


@dataclass(frozen=True, kw_only=True)
class Listener:
    on_run: Callable[[Run], None]
    """A run ended."""
    on_progress: Callable[[Cell, int, LoadProgress], None]
    """A run goes on: cell, the run's index, how far it is."""
    on_start: Callable[[ServerSpec, ServerProgress], None]
    """A server is starting."""
    on_wait: Callable[[WaitNotice], None]
    """Somebody else has the server or the device."""
    on_ready: Callable[[ServerSpec, Launch, str, ApiKey | None], None]
    """A server answers and nothing was measured on it yet: its spec, its launch, URL and API key."""
