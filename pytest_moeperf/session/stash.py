"""Where state hangs on pytest's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_moeperf.model.settings import Settings
    from pytest_moeperf.model.verdict import Outcome
    from pytest_moeperf.session.measuring import MeasuringSession
    from pytest_moeperf.session.telling import Telling

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
MEASURING: pytest.StashKey[MeasuringSession] = pytest.StashKey()
OUTCOMES: pytest.StashKey[list[Outcome]] = pytest.StashKey()
"""Of a test's calls of ``measure``, in their order."""
TELLING: pytest.StashKey[Telling] = pytest.StashKey()
