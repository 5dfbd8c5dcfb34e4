"""What lies in the store, for those who only look."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_moeperf.baselines import Entry, FileStore
from pytest_moeperf.errors import BaselineError
from pytest_moeperf.model.settings import Settings


def readable_entries(settings: Settings) -> Sequence[Entry]:
    """None of a store that can't be read: whoever needs it to decide says so."""
    try:
        return FileStore(settings.baselines).all()
    except BaselineError:
        return ()
