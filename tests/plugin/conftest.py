"""Plugin tests run pytest in processes of its own, each with a runtime folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_moeperf.testing import SimulatedSuite


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    for variable in list(os.environ):
        if variable in {"GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CI"} or variable.startswith("MOEPERF_"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("MOEPERF_RUNTIME_DIR", str(folder))
    # The tests of another worker need not wait: what is measured here sleeps most of its time.
    monkeypatch.setenv("MOEPERF_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.fixture
def suite(pytester: pytest.Pytester) -> SimulatedSuite:
    return SimulatedSuite(pytester)
