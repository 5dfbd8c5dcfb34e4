"""Can this run be trusted? Each check has a name, a status and its figures; one ``fail`` makes the run INVALID."""

from __future__ import annotations

from pytest_moeperf.validity.client import client_checks, window_check
from pytest_moeperf.validity.readable import cache_flushed, server_readable
from pytest_moeperf.validity.server import server_checks
from pytest_moeperf.validity.stall import compile_stall_check

__all__ = ["cache_flushed", "client_checks", "compile_stall_check", "server_checks", "server_readable", "window_check"]
