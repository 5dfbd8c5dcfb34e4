"""What one launch said of itself when it was ready, so that every later reading is compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_moeperf.model.run import Check
from pytest_moeperf.validity.identity import Counts, Marks, identity_checks


class Witness:
    """Of one launch, over all its runs: a server that is replaced between two of them is found."""

    def __init__(self) -> None:
        self._launched: Marks = {}
        self._counts: Counts = {}

    def begin(self, now: Marks, counters: Mapping[str, Any]) -> None:
        """The server is ready, and nothing was measured on it yet."""
        self._launched, self._counts = now, counters

    def checks(self, now: Marks, before: Counts, after: Counts, *, process_known: bool) -> tuple[Check, ...]:
        """Of one run, with the counters before and after it; see ``identity_checks``."""
        counts = (self._counts, before, after)
        self._counts = after
        return identity_checks(self._launched, now, counts, process_known=process_known)
