"""Where state hangs on pytest's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_moeperf.model.settings import Settings
    from pytest_moeperf.session.judging import Judged
    from pytest_moeperf.session.measuring import MeasuringSession
    from pytest_moeperf.session.telling import Telling

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
MEASURING: pytest.StashKey[MeasuringSession] = pytest.StashKey()
JUDGED: pytest.StashKey[list[Judged]] = pytest.StashKey()
"""A test's calls of ``measure``, in their order."""
PASSED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test's own code passed; its teardown is still to come."""
TAKEN: pytest.StashKey[frozenset[str]] = pytest.StashKey()
"""Short names of options that belong to somebody else here."""
TELLING: pytest.StashKey[Telling] = pytest.StashKey()
