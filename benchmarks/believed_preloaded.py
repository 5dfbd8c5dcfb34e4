"""Imports what a pytest invocation of the product does, for its forks; runs nothing of it."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil

import believed_server  # noqa: F401
import pytest  # noqa: F401

import pytest_moeperf

for plugin in importlib.metadata.entry_points(group="pytest11"):
    plugin.load()
for module in pkgutil.walk_packages(pytest_moeperf.__path__, "pytest_moeperf."):
    if "simulated" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
