"""Can this run be trusted? Each check has a name, a status and its figures; one ``fail`` makes the run INVALID."""

from __future__ import annotations

from pytest_moeperf.validity.as_asked import Limits, ranks_balanced, running_limits, server_ran_as_asked
from pytest_moeperf.validity.client import client_checks, window_check
from pytest_moeperf.validity.readable import cache_flushed, server_readable
from pytest_moeperf.validity.server import counted_between, server_checks
from pytest_moeperf.validity.stall import compile_stall_check

__all__ = [
    "Limits",
    "cache_flushed",
    "client_checks",
    "compile_stall_check",
    "counted_between",
    "ranks_balanced",
    "running_limits",
    "server_checks",
    "server_ran_as_asked",
    "server_readable",
    "window_check",
]
